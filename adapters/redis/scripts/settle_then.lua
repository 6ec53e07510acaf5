-- Settles, then stores successors. KEYS: also the states of their partitions. ARGV: as `finish` says, then as `follow` does.

refuse_if_in_vain()
local answers, at = finish()
follow(answers, at)
return answers
