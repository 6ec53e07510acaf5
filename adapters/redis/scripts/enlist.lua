-- Notes in the list of partitions with ends, which in a cluster clients keep, that one may get such. KEYS[1]: the list. ARGV: its name.

local time = redis.call('TIME')
return redis.call('ZADD', KEYS[1], time[1], ARGV[1])
