-- Some partitions in which ends have lapsed, those first in which it was first. KEYS[1]: the list of partitions with ends. ARGV: how many.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, ARGV[1])
