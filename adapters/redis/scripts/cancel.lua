-- Requests the cancellation of messages, and stores the ends of those that waited. ARGV: where they must be, how many, ids, and ends, as `look`
-- says, which have the numbers of their ids. Returns as for deleting them.

local last = 2 + tonumber(ARGV[2])
local all = ledger().look(last + 1)
local answers = take_out(ARGV[1], true, 3, last)
ledger().keep(all, answers, 'g')
return answers
