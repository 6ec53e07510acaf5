-- Settles, then claims. ARGV: as `finish` says, then as for a pull.

local answers, at = finish()
local pulled = claim(tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]))
pulled[7] = answers
return pulled
