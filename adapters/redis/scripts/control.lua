-- What the scripts of control entries begin with.
--
-- KEYS: the hash of entries, the sorted set of their names (all with the same score, so in the order of their bytes), the sorted set of when they
-- lapse, in milliseconds, and a key that never exists: see common.lua.
--
-- An entry is text: its version, a blank, when it lapses in milliseconds since 1970, or 0, a blank, and its value. Versions have more digits than
-- numbers here can tell apart: they are compared as text.

local call = redis.call
local entries, names, lapses = KEYS[1], KEYS[2], KEYS[3]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = string.format('%.0f', now)

-- The entry with this name, unless it has lapsed, and its version.
local function find(name)
    local entry = call('HGET', entries, name)
    if not entry then
        return nil
    end
    local version, ends = string.match(entry, '^(%d+) (%d+) ')
    if ends and ends ~= '0' and tonumber(ends) <= now then
        return nil
    end
    return entry, version
end

local function delete(name)
    call('HDEL', entries, name)
    call('ZREM', names, name)
    call('ZREM', lapses, name)
end

