-- What every script begins with.
--
-- KEYS[1] is the state of the partition, KEYS[2] the list of all partitions; in a cluster, where that may be elsewhere, there is no
-- KEYS[2]. The partition's other keys begin as its state's does: `home` is what it shares with its dead letters.
-- All numbers of time are microseconds since 1970, by this server's clock.
--
-- An entry is an id (16 bytes) and a flag: the level, + 16 in a group, + 32 with a deduplication key.
-- A record is a flag, when it was pushed (8 bytes), where it is (l, or d among the dead letters), the group and the key, if any
-- (each with a length of 2 bytes), and the envelope.
-- A window is some milliseconds of the time that is in ids. Messages that are stored together are together in a hash of their window:
-- neighbours in line are neighbours in the server's memory then, and few of its hashes are in use at a time. Those that come alone,
-- and those whose ids tell no time, are in one hash with all others of that kind, as hashes of few would take more memory.

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

-- How long a window is. Clients know it too.
local WINDOW_MS = 16

-- The time of an id of version 7, which begins with it in milliseconds, without its last bits; an empty text for other ids.
local function window_of(id)
    local version = byte(id, 7)
    if version < 112 or version > 127 then
        return ''
    end
    local last = byte(id, 6)
    return sub(id, 1, 5) .. char(last - last % WINDOW_MS)
end

-- What a partition's keys share with those of its dead letters.
local function home_of(to)
    return string.match(to, '^[^}]*}:')
end

-- The hash of a window. Without a name, that of the messages without one.
local function window_hash(of, window)
    return of .. (window == '' and 'messages' or 'messages:' .. window)
end

-- The hash that this message is in, if it is not among those without a window.
local function hash_of(of, id)
    return window_hash(of, window_of(id))
end

local function read_of(of, id)
    return call('HGET', hash_of(of, id), id) or call('HGET', of .. 'messages', id)
end

local function read(id)
    return read_of(home, id)
end

-- Looks in this hash for those that were not found yet, from first to last. Answers whether that were all.
local function read_more(found, hash, ids, first, last)
    local names, numbers = {}, {}
    for i = first, last do
        if not found[i] then
            names[#names + 1] = ids[i]
            numbers[#names] = i
        end
    end
    local more = #names > 0 and call('HMGET', hash, unpack(names)) or names
    for n, i in ipairs(numbers) do
        found[i] = more[n]
    end
    return #names == 0
end

-- Reads messages. Most often the window of the first one has all, or none is in a window.
local function read_all(ids)
    local window, at = window_of(ids[1]), 1
    local found = call('HMGET', window_hash(home, window), unpack(ids))
    if read_more(found, messages, ids, 1, #ids) then
        return found
    end
    while at <= #ids do
        local other, last = not found[at] and window_of(ids[at]), at
        while other and last < #ids and window_of(ids[last + 1]) == other do
            last = last + 1
        end
        if other and other ~= '' and other ~= window then
            read_more(found, window_hash(home, other), ids, at, last)
        end
        at = last + 1
    end
    return found
end

-- Stores a message that is not there, in its window only if others opened it.
local function keep(of, id, record)
    local hash = hash_of(of, id)
    call('HSET', call('EXISTS', hash) == 1 and hash or of .. 'messages', id, record)
end

-- Deletes some of these messages, which are of one window, if they are in its hash.
local function erase_in_window(ids, first, last)
    local window = window_of(ids[first])
    local hash = window_hash(home, window)
    if call('HDEL', hash, unpack(ids, first, last)) > 0 and window ~= '' and call('EXISTS', hash) == 0 then
        call('ZREM', home .. 'windows', window)
    end
end

local function erase(id)
    if call('HDEL', messages, id) == 0 then
        erase_in_window({ id }, 1, 1)
    end
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

-- Notes that there are large messages, if this is one.
local function note_size(to, record)
    if #record > LARGE then
        call('HSET', to .. 'state', 'large', 1)
    end
end

-- Puts a message at the end of its level or, if its group has another head, of its group. Answers how many became ready.
local function line_up(to, id, flag)
    if is_grouped(flag) and sub(to, -5) ~= 'dead:' then
        local group = group_of(read_of(home_of(to), id))
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
