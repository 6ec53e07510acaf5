//! The scripts.

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

/// The hash of messages.
pub(super) const MESSAGES: &str = "bench:m";
/// The list on which whoever waits blocks.
pub(super) const EXTRA: &str = "bench:x";

/// ids and payloads. Nothing is stored if an id is known. Levels would be one list each; the one that is used is enough.
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

/// How many, the lease in milliseconds, a token, and tokens and ids to remove.
const CYCLE: &str = "
local proofs, answers, gone, by = ARGV[4], {}, {}, {}
for at = 1, #proofs, 32 do
    local token, id = string.sub(proofs, at, at + 15), string.sub(proofs, at + 16, at + 31)
    local claim = by[token] or {}
    claim[#claim + 1] = id
    by[token] = claim
end
local held = {}
for token, ids in pairs(by) do
    local is = redis.call('SMISMEMBER', 'bench:c' .. token, unpack(ids))
    local out = {}
    for i, id in ipairs(ids) do
        if is[i] == 1 then
            held[id .. token] = true
            gone[#gone + 1] = id
            out[#out + 1] = id
        end
    end
    if #out > 0 then
        redis.call('SREM', 'bench:c' .. token, unpack(out))
        if redis.call('EXISTS', 'bench:c' .. token) == 0 then redis.call('ZREM', 'bench:l', token) end
    end
end
for at = 1, #proofs, 32 do
    local key = string.sub(proofs, at + 16, at + 31) .. string.sub(proofs, at, at + 15)
    answers[#answers + 1] = held[key] and '1' or '0'
end
if #gone > 0 then
    redis.call('HDEL', 'bench:m', unpack(gone))
    if redis.call('EXISTS', 'bench:n') == 1 then redis.call('HDEL', 'bench:n', unpack(gone)) end
end
local max = tonumber(ARGV[1])
if max == 0 then return { table.concat(answers), {}, {}, {} } end
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
if not ids then return { table.concat(answers), {}, {}, {} } end
redis.call('SADD', 'bench:c' .. ARGV[3], unpack(ids))
redis.call('ZADD', 'bench:l', now + ARGV[2], ARGV[3])
local counts = redis.call('EXISTS', 'bench:n') == 1 and redis.call('HMGET', 'bench:n', unpack(ids)) or {}
return { table.concat(answers), ids, redis.call('HMGET', 'bench:m', unpack(ids)), counts }";

/// What the server calls them.
pub(super) struct Hashes {
    pub(super) push: String,
    pub(super) cycle: String,
}

/// Makes the server know them.
pub(super) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<Hashes> {
    let mut load = redis::pipe();
    load.cmd("SCRIPT").arg("LOAD").arg(PUSH).cmd("SCRIPT").arg("LOAD").arg(CYCLE);
    let (push, cycle) = load.query_async(connection).await?;
    Ok(Hashes { push, cycle })
}
