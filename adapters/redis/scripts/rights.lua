-- Tries every command that the scripts use, on KEYS[1], and returns the names of those that are refused. ARGV: the channel.

local key, missing = KEYS[1], {}

local function try(...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
        local text = string.lower(answer.err)
        if string.find(text, 'user executing', 1, true) or string.find(text, 'noperm', 1, true)
            or string.find(text, 'acl failure', 1, true) then
            missing[#missing + 1] = (...)
        end
    end
end

try('TIME')
try('EXISTS', key)
try('UNLINK', key)
for _, command in ipairs({ { 'RPUSH', key, 1 }, { 'LPUSH', key, 1 }, { 'LLEN', key }, { 'LRANGE', key, 0, 0 }, { 'LPOP', key, 2 } }) do
    try(unpack(command))
end
for _, command in ipairs({ { 'HSET', key, 'f', 1 }, { 'HSETNX', key, 'f', 1 }, { 'HGET', key, 'f' }, { 'HMGET', key, 'f' },
    { 'HINCRBY', key, 'f', 1 }, { 'HLEN', key }, { 'HEXISTS', key, 'f' }, { 'HKEYS', key }, { 'HGETALL', key }, { 'HSCAN', key, 0 },
    { 'HRANDFIELD', key, 1 }, { 'EXPIREAT', key, 4102444800 }, { 'HDEL', key, 'f' } }) do
    try(unpack(command))
end
for _, command in ipairs({ { 'ZADD', key, 1, 'm' }, { 'ZSCORE', key, 'm' }, { 'ZRANGE', key, 0, 0 }, { 'ZRANGEBYSCORE', key, 0, 1 },
    { 'ZRANGEBYLEX', key, '-', '+' }, { 'ZREVRANGEBYLEX', key, '+', '-' }, { 'ZLEXCOUNT', key, '-', '+' },
    { 'ZCARD', key }, { 'ZCOUNT', key, 0, 1 }, { 'ZREM', key, 'm' }, { 'ZREMRANGEBYSCORE', key, 2, 3 },
    { 'ZPOPMIN', key } }) do
    try(unpack(command))
end
for _, command in ipairs({ { 'SADD', key, 'm' }, { 'SMISMEMBER', key, 'm' }, { 'SREM', key, 'm' }, { 'SET', key, 1 }, { 'GET', key },
    { 'GETDEL', key } }) do
    try(unpack(command))
end
try('PUBLISH', ARGV[1], '')
return table.concat(missing, ', ')
