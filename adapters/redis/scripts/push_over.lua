-- Stores messages some of which do more with a taken key than leave what is there as it is. ARGV and the answer: as for a push.

local common = tonumber(ARGV[2])
local step = step_of(common)
correct(ARGV[1], 6, #ARGV, step)
return { now, store_all(base, 4, (#ARGV - 4) / step, common, ARGV[4], ARGV[3], {}, compact) }
