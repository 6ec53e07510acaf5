-- Stores messages. ARGV: the time that the records bear; the level of all, and 16 more if some are bulky, or -1; the name of the caller; how many (2 bytes each)
-- follow one another that are of one window; then of each message its id, its record and, without a common level, its delay. A common
-- level means that none has a group, a key or a delay, or is large.
-- Answers the time, and of each that was not stored its number and the message that is in its way.

-- So many messages of a window that come together get a hash of their own.
local MANY = 16

local common = tonumber(ARGV[2])
local step = common < 0 and 3 or 2
local has_bulky = common >= 16
common = has_bulky and common - 16 or common

if math.abs(now - tonumber(ARGV[1])) > 20000 then -- the clock of the pusher ran ahead or behind
    local stamp = struct.pack('>I8', now)
    for at = 6, #ARGV, step do
        ARGV[at] = sub(ARGV[at], 1, 1) .. stamp .. sub(ARGV[at], 10)
    end
end

local ids = {}
for at = 5, #ARGV, step do
    ids[#ids + 1] = ARGV[at]
end

-- Does something with those of each window: the numbers of the first and the last.
local function by_window(act)
    local runs, first = ARGV[4], 1
    for at = 1, #runs, 2 do
        local last = first - 1 + byte(runs, at) * 256 + byte(runs, at + 1)
        act(first, last)
        first = last + 1
    end
end

local known, is_known = {}, false

-- Notes which of these are in this hash.
local function look_in(hash, first, last)
    local found = call('HMGET', hash, unpack(ids, first, last))
    for i = 1, #found do
        if found[i] then
            known[first - 1 + i], is_known = true, true
        end
    end
end

by_window(function(first, last)
    look_in(hash_of(home, ids[first]), first, last)
end)
if call('EXISTS', messages) == 1 then
    look_in(messages, 1, #ids)
end

-- Puts bulky records into their hash, and all others and the fronts into this one.
local function keep_fronts(hash, first, last)
    local bulky, rest = {}, {}
    for i = first, last do
        local id, record = ids[i], ARGV[4 + 2 * i]
        if #record > BULKY then
            bulky[#bulky + 1] = id
            bulky[#bulky + 1] = record
            record = front_of(record)
        end
        rest[#rest + 1] = id
        rest[#rest + 1] = record
    end
    if #bulky > 0 then
        call('HSET', home .. 'bulky', unpack(bulky))
    end
    call('HSET', hash, unpack(rest))
end

-- Stores messages of one window that have ids and records only.
local function keep_all(first, last)
    local window, hash = window_of(ids[first]), messages
    if window ~= '' then
        local own = window_hash(home, window)
        local is_open = call('EXISTS', own) == 1
        if is_open or last - first + 1 >= MANY then
            hash = own
            if not is_open then
                call('ZADD', home .. 'windows', 0, window)
            end
        end
    end
    if has_bulky then
        keep_fronts(hash, first, last)
    else
        call('HSET', hash, unpack(ARGV, 3 + 2 * first, 4 + 2 * last))
    end
end

local present, ready, due = {}, 0, nil

local function store(i, id, record, delay)
    local flag = byte(record, 1)
    local key = is_keyed(flag) and key_of(record)
    local holder = key and call('HGET', base .. 'keys', key)
    if known[i] or holder then
        present[#present + 1] = i
        present[#present + 1] = known[i] and id or holder
        return
    end
    keep(home, id, record)
    admit(base, level_of(flag), { id }, #record)
    if key then
        call('HSET', base .. 'keys', key, id)
    end
    if delay > 0 then
        local at = now + delay + i
        call('ZADD', base .. 'due', at, id .. char(flag))
        due = math.min(due or at, at)
    else
        ready = ready + line_up(base, id, flag)
    end
end

if common >= 0 and not is_known then
    by_window(keep_all)
    admit(base, common, ids, has_bulky and BULKY + 1 or 0)
    promote(base) -- what is due by now stands before
    call('RPUSH', base .. 'ready' .. common, unpack(ids))
    ready = #ids
else
    promote(base)
    for i, id in ipairs(ids) do
        local at = 5 + (i - 1) * step
        store(i, id, ARGV[at + 1], common < 0 and tonumber(ARGV[at + 2]) or 0)
    end
end
if ready > 0 or (due and tonumber(call('ZRANGE', base .. 'due', 0, 0, 'WITHSCORES')[2]) >= due) then
    tell(base, ready, due, ARGV[3])
end
return { now, present }
