-- Takes a partition that has no ends off the list, unless somebody who was told not long ago that it is there may rely on that. KEYS[1]:
-- the list. ARGV: its name, and how many seconds are not long.

local told = redis.call('ZSCORE', KEYS[1], ARGV[1])
if told and tonumber(told) + tonumber(ARGV[2]) < tonumber(redis.call('TIME')[1]) then
    redis.call('ZREM', KEYS[1], ARGV[1])
end
return 1
