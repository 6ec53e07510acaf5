-- Stores messages. ARGV: the time that the records bear; the common level; the name of the caller; runs; then the messages, as
-- `store_all` says.
-- Returns the time, and of each that was not stored what `store_each` says.

local common = tonumber(ARGV[2])
local step = step_of(common)
correct(ARGV[1], 6, #ARGV, step)
return { now, store_all(base, 4, (#ARGV - 4) / step, common, ARGV[4], ARGV[3], {}) }
