-- Takes in a message of another partition. ARGV: its id, record and headers.

land(base, ARGV[1], ARGV[2], ARGV[3])
