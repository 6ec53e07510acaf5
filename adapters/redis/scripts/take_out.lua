-- Deletes messages that nobody holds. ARGV: 1 to request the cancellation of held ones, else 0; where they must be; ids.
-- Returns for each: g gone, h held, - not there.

return take_out(ARGV[2], ARGV[1] == '1', 3, #ARGV)
