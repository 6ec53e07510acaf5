-- What every script begins with.
--
-- KEYS[1] is the state of the partition, KEYS[2] the list of all partitions; in a cluster, where that may be elsewhere, there is no
-- KEYS[2]. The partition's other keys begin as its state's does: `home` is what it shares with its dead letters.
-- All numbers of time are microseconds since 1970, by this server's clock.
--
-- An entry is an id (16 bytes) and a flag: the level, + 16 in a group, + 32 with a deduplication key.
-- A record is a flag, when it was pushed (8 bytes), where it is (l, or d among the dead letters), the group and the key, if any
-- (each with a length of 2 bytes), and the envelope.

local call, sub, byte, char, concat = redis.call, string.sub, string.byte, string.char, table.concat
local root = string.match(KEYS[1], '^[^{]*')
local home = string.match(KEYS[1], '^[^}]*}:')
local messages = home .. 'messages'
local base = sub(KEYS[1], 1, -6)

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- A message of more bytes than this is large. A partition that ever had one is handled in smaller steps.
local LARGE = 256 * 1024

-- A server that is full refuses a script whose first write could need memory. Taking, extending and deleting must go on then,
-- so they begin with a write that needs none.
local function write_though_full()
    call('HDEL', base .. 'state', '')
end

local function level_of(flag)
    return flag % 16
end

local function is_grouped(flag)
    return flag % 32 >= 16
end

local function is_keyed(flag)
    return flag >= 32
end

-- The text with a length before it that begins there, and where it ends.
local function text_at(record, at)
    local last = at + 1 + byte(record, at) * 256 + byte(record, at + 1)
    return sub(record, at + 2, last), last
end

local function group_of(record)
    return (text_at(record, 11))
end

local function key_of(record)
    local at = 11
    if is_grouped(byte(record, 1)) then
        local _, last = text_at(record, at)
        at = last + 1
    end
    return (text_at(record, at))
end

-- Tells waiting pulls that so many messages are ready, or that one becomes so at this time. Whoever looks and finds nothing asks
-- for it again. A caller that has a name knows it already.
local function tell(to, ready, due, caller)
    local who = call(ready > 0 and 'GETDEL' or 'GET', to .. 'waits')
    if who then
        local in_us = due and math.max(due - now, 0) or -1
        call('PUBLISH', root .. 'wake', concat({ who, ready, string.format('%.0f', in_us), caller or '-' }, ' '))
    end
end

-- The partition gets messages of this level: it is made, if it is new.
local function admit(to, level)
    local top = call('HGET', to .. 'state', 'top')
    if not top then
        call('HSET', to .. 'state', 'top', level)
        -- A long value keeps the server from storing the leases as a list, which it would search from end to end.
        call('HSET', to .. 'leases', '', string.rep('.', 80))
        if KEYS[2] then
            call('ZADD', KEYS[2], 0, string.match(to, '{(.*)}'))
        end
    elseif tonumber(top) < level then
        call('HSET', to .. 'state', 'top', level)
    end
end

-- The hash of the messages of this partition.
local function store_of(to)
    return string.match(to, '^[^}]*}:') .. 'messages'
end

-- Notes that there are large messages, if this is one.
local function note_size(to, record)
    if #record > LARGE then
        call('HSET', to .. 'state', 'large', 1)
    end
end

-- Puts a message at the end of its level or, if its group has another head, of its group. Answers how many became ready.
local function line_up(to, id, flag)
    if is_grouped(flag) and sub(to, -5) ~= 'dead:' then
        local group = group_of(call('HGET', store_of(to), id))
        if call('HSETNX', to .. 'heads', group, id) == 0 and call('HGET', to .. 'heads', group) ~= id then
            local place = call('HINCRBY', to .. 'state', 'places', 1)
            call('ZADD', to .. 'behind:' .. group, place, id .. char(flag))
            call('HINCRBY', to .. 'state', 'behind', 1)
            return 0
        end
    end
    call('RPUSH', to .. 'ready' .. level_of(flag), id)
    return 1
end

-- Lets those line up whose delay is over, at most a thousand of them.
local function promote(to)
    local due = call('ZRANGEBYSCORE', to .. 'due', '-inf', now, 'LIMIT', 0, 1000)
    if #due > 0 then
        call('ZREM', to .. 'due', unpack(due))
        for _, entry in ipairs(due) do
            line_up(to, sub(entry, 1, 16), byte(entry, 17))
        end
    end
end

-- A message leaves the partition: its key is free, and its group goes on. Answers how many became ready by it.
local function leave(id, record)
    local flag = byte(record, 1)
    if is_keyed(flag) then
        local key = key_of(record)
        if call('HGET', base .. 'keys', key) == id then
            call('HDEL', base .. 'keys', key)
        end
    end
    if not is_grouped(flag) then
        return 0
    end
    local group = group_of(record)
    if call('HGET', base .. 'heads', group) ~= id then
        return 0
    end
    local next = call('ZPOPMIN', base .. 'behind:' .. group)[1]
    if not next then
        call('HDEL', base .. 'heads', group)
        return 0
    end
    local following = sub(next, 1, 16)
    call('HSET', base .. 'heads', group, following)
    call('HINCRBY', base .. 'state', 'behind', -1)
    call('RPUSH', base .. 'ready' .. level_of(byte(next, 17)), following)
    return 1
end

-- Forgets what some messages have: a count, headers, a request for cancellation.
local function forget(ids)
    if call('EXISTS', base .. 'counts', base .. 'headers', base .. 'asked') > 0 then
        call('HDEL', base .. 'counts', unpack(ids))
        call('HDEL', base .. 'headers', unpack(ids))
        call('SREM', base .. 'asked', unpack(ids))
    end
end
