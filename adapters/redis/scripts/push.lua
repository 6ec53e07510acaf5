-- Stores messages. ARGV: the time that the records bear; the level of all, or -1; the name of the caller; then of each its id, its
-- record and, without a common level, its delay. A common level means that none has a group, a key or a delay, or is large.
-- Answers the time, and of each that was not stored its number and the message that is in its way.

local common = tonumber(ARGV[2])
local step = common < 0 and 3 or 2

if math.abs(now - tonumber(ARGV[1])) > 20000 then -- the clock of the pusher ran ahead or behind
    local stamp = struct.pack('>I8', now)
    for at = 5, #ARGV, step do
        ARGV[at] = sub(ARGV[at], 1, 1) .. stamp .. sub(ARGV[at], 10)
    end
end

local ids = {}
for at = 4, #ARGV, step do
    ids[#ids + 1] = ARGV[at]
end
local known, is_known = call('HMGET', messages, unpack(ids)), false
for i = 1, #ids do
    is_known = is_known or known[i]
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
    call('HSET', messages, id, record)
    admit(base, level_of(flag))
    note_size(base, record)
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
    call('HSET', messages, unpack(ARGV, 4))
    admit(base, common)
    promote(base) -- what is due by now stands before
    call('RPUSH', base .. 'ready' .. common, unpack(ids))
    ready = #ids
else
    promote(base)
    for i, id in ipairs(ids) do
        local at = 4 + (i - 1) * step
        store(i, id, ARGV[at + 1], common < 0 and tonumber(ARGV[at + 2]) or 0)
    end
end
if ready > 0 or (due and tonumber(call('ZRANGE', base .. 'due', 0, 0, 'WITHSCORES')[2]) >= due) then
    tell(base, ready, due, ARGV[3])
end
return { now, present }
