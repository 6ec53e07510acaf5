//! The scripts.

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

/// The hash of messages.
pub(super) const MESSAGES: &str = "bench:m";
/// The list on which waiting calls block.
pub(super) const EXTRA: &str = "bench:x";

/// Takes ids and payloads. Nothing is stored if an id is known. Each level would be a list; the one that is
/// used is enough.
const PUSH: &str = "
local ids = {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', 'bench:m', unpack(ids))
for i = 1, #ids do if known[i] then return 0 end end
redis.call('HSET', 'bench:m', unpack(ARGV))
if redis.call('RPUSH', 'bench:r0', unpack(ids)) == #ids and redis.call('EXISTS', 'bench:x') == 0 then
    redis.call('RPUSH', 'bench:x', 1)
end
return #ids";

/// Takes how many to claim, the lease in milliseconds, a token; then for each claim its token, how many of it
/// to remove, and their ids. Returns a digit for each removal, and what was claimed.
const CYCLE: &str = "
local answers, at = {}, 4
while at < #ARGV do
    local token, n = ARGV[at], tonumber(ARGV[at + 1])
    local first, last = at + 2, at + 1 + n
    local held = redis.call('SMISMEMBER', 'bench:c' .. token, unpack(ARGV, first, last))
    local all = true
    for i = 1, n do
        if held[i] == 0 then all = false end
    end
    if all then
        redis.call('SREM', 'bench:c' .. token, unpack(ARGV, first, last))
        redis.call('HDEL', 'bench:m', unpack(ARGV, first, last))
        if redis.call('EXISTS', 'bench:n') == 1 then redis.call('HDEL', 'bench:n', unpack(ARGV, first, last)) end
        answers[#answers + 1] = string.rep('1', n)
    else
        for i = 1, n do
            local id = ARGV[first + i - 1]
            if held[i] == 1 then
                redis.call('SREM', 'bench:c' .. token, id)
                redis.call('HDEL', 'bench:m', id)
                redis.call('HDEL', 'bench:n', id)
            end
            answers[#answers + 1] = tostring(held[i])
        end
    end
    if redis.call('EXISTS', 'bench:c' .. token) == 0 then redis.call('ZREM', 'bench:l', token) end
    at = last + 1
end
answers = table.concat(answers)
local max = tonumber(ARGV[1])
if max == 0 then return { answers, {}, {}, {} } end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, token in ipairs(redis.call('ZRANGEBYSCORE', 'bench:l', 0, now, 'LIMIT', 0, 16)) do
    local ids = redis.call('SMEMBERS', 'bench:c' .. token)
    for _, id in ipairs(ids) do
        redis.call('HINCRBY', 'bench:n', id, 1)
        redis.call('LPUSH', 'bench:r0', id)
    end
    redis.call('DEL', 'bench:c' .. token)
    redis.call('ZREM', 'bench:l', token)
end
local ids = redis.call('LPOP', 'bench:r0', max)
if not ids then return { answers, {}, {}, {} } end
redis.call('SADD', 'bench:c' .. ARGV[3], unpack(ids))
redis.call('ZADD', 'bench:l', now + ARGV[2], ARGV[3])
local counts = redis.call('EXISTS', 'bench:n') == 1 and redis.call('HMGET', 'bench:n', unpack(ids)) or {}
return { answers, ids, redis.call('HMGET', 'bench:m', unpack(ids)), counts }";

/// Takes for each a token, the id that is held, and the id and payload of the successor. Returns how many
/// were held.
const SETTLE_THEN: &str = "
local tokens, gone, stored, ids = {}, {}, {}, {}
for i = 1, #ARGV, 4 do
    if redis.call('SREM', 'bench:c' .. ARGV[i], ARGV[i + 1]) == 1 then
        tokens[ARGV[i]] = true
        gone[#gone + 1] = ARGV[i + 1]
        ids[#ids + 1] = ARGV[i + 2]
        stored[#stored + 1] = ARGV[i + 2]
        stored[#stored + 1] = ARGV[i + 3]
    end
end
if #gone == 0 then return 0 end
redis.call('HDEL', 'bench:m', unpack(gone))
if redis.call('EXISTS', 'bench:n') == 1 then redis.call('HDEL', 'bench:n', unpack(gone)) end
for token in pairs(tokens) do
    if redis.call('EXISTS', 'bench:c' .. token) == 0 then redis.call('ZREM', 'bench:l', token) end
end
local known = redis.call('HMGET', 'bench:m', unpack(ids))
for i = 1, #ids do if known[i] then return -1 end end
redis.call('HSET', 'bench:m', unpack(stored))
if redis.call('RPUSH', 'bench:r0', unpack(ids)) == #ids and redis.call('EXISTS', 'bench:x') == 0 then
    redis.call('RPUSH', 'bench:x', 1)
end
return #gone";

/// The names by which the server knows the scripts.
pub(super) struct Hashes {
    pub(super) push: String,
    pub(super) cycle: String,
    pub(super) settle_then: String,
}

/// Loads the scripts into the server.
pub(super) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<Hashes> {
    let mut load = redis::pipe();
    for script in [PUSH, CYCLE, SETTLE_THEN] {
        load.cmd("SCRIPT").arg("LOAD").arg(script);
    }
    let (push, cycle, settle_then) = load.query_async(connection).await?;
    Ok(Hashes { push, cycle, settle_then })
}
