-- Claims. ARGV: how many, for how long, the token, who waits, how many of one group at once.

return claim(tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5]))
