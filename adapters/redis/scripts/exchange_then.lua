-- Settles, then stores successors, then claims. KEYS: also the states of the successors' partitions. ARGV: as for an exchange, then as
-- `follow` says.

refuse_if_in_vain()
local answers, at = finish()
follow(answers, at + 5)
local pulled = claim(tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]))
pulled[7] = answers
return pulled
