-- Frees ends that have lapsed. ARGV: how many at most. Answers how many, and whether some are left that lapse sooner or later.

local count = ledger().purge(tonumber(ARGV[1]))
ledger().note_next()
return { count, call('EXISTS', ledger().lapsing) }
