-- What every script begins with.
--
-- KEYS[1] is the state of the partition, KEYS[2] the list of all partitions. The partition's other keys begin as its state's does:
-- `home` is what it shares with its dead letters.
-- In a cluster the list may be elsewhere. There KEYS[2] is a key of the partition's slot that never exists: while the slot is moved, a
-- server that is asked for several keys and has not all of them refuses. So no script runs while keys are at both ends.
-- All numbers of time are microseconds since 1970, by this server's clock.
--
-- An entry is an id (16 bytes) and a flag: the level, + 16 in a group, + 32 with a deduplication key.
-- A record is a flag, when it was pushed (8 bytes), where it is (l, or d among the dead letters), the group and the key, if any
-- (each with a length of 2 bytes), and the envelope. A bulky record is in a hash of its own; where it would be there is its front
-- alone, all before the envelope, with the place in upper case.
-- A window is some milliseconds of the time that is in ids. Messages that are stored together are together in a hash of their window:
-- neighbours in line are neighbours in the server's memory then, and few of its hashes are in use at a time. Those that come alone,
-- and those whose ids tell no time, are in one hash with all others of that kind, as hashes of few would take more memory.

local call, sub, byte, char, concat = redis.call, string.sub, string.byte, string.char, table.concat
local root = string.match(KEYS[1], '^[^{]*')
local home = string.match(KEYS[1], '^[^}]*}:')
local messages = home .. 'messages'
local base = sub(KEYS[1], 1, -6)

-- What is on the server is of this layout: the score of each partition in their list. Clients know it too, and what comes of it when a
-- message was amended or can become urgent (`AMENDED_LAYOUT`), or a group has several members in front (`COUNTED_LAYOUT`).
local LAYOUT = 2

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- A message of more bytes than this is large. A partition that ever had one is handled in smaller steps.
local LARGE = 256 * 1024
-- A record of more bytes than this is bulky: who goes through messages, which cannot be done without their records, meets no larger
-- ones. Clients know it too.
local BULKY = 16 * 1024

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

-- The text with a length before it that begins there, and where it ends. A record that is damaged may end before.
local function text_at(record, at)
    local high, low = byte(record, at, at + 1)
    local last = at + 1 + (high or 0) * 256 + (low or 0)
    return sub(record, at + 2, last), last
end

-- The flag of a record. One that is damaged may have none.
local function flag_of(record)
    return byte(record, 1) or 0
end

local function group_of(record)
    return (text_at(record, 11))
end

local function key_of(record)
    local at = 11
    if is_grouped(flag_of(record)) then
        local _, last = text_at(record, at)
        at = last + 1
    end
    return (text_at(record, at))
end

local function is_front(record)
    local place = byte(record, 10)
    return place == 76 or place == 68
end

-- Where a record, or its front, says that its message is.
local function place_of(record)
    local place = byte(record, 10)
    return (place == 100 or place == 68) and 'd' or 'l'
end

-- Whether an id was put aside since this script began.
local has_strayed = false

-- An id came up that has no record, as where a cluster lost sight of a part of its keys: it is kept, for the record may come back.
local function put_aside(to, id, level)
    has_strayed = true
    call('HINCRBY', to .. 'state', 'astray', call('HSETNX', to .. 'astray', id, level))
    return 0
end

-- These ids are not to come back any more. Returns how many of them were aside.
local function call_off(to, ids)
    local count = call('HDEL', to .. 'astray', unpack(ids))
    if count > 0 then
        call('HINCRBY', to .. 'state', 'astray', -count)
    end
    return count
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
