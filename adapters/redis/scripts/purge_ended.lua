-- Frees ends that have lapsed. ARGV: how many to look at. Returns how many were freed, how many were looked at, and whether some are left that lapse
-- sooner or later.

local count, looked_at = ledger().purge(tonumber(ARGV[1]))
return { count, looked_at, call('EXISTS', ledger().lapsing) }
