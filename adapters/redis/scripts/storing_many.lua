-- Storing what clients bring. Of each message ARGV has the id, the record and, without a common level, the delay. A common level means
-- that none has a group, a key or a delay, becomes urgent, or is large; it is 16 more if some are bulky. Where there is none, it is -1; or -2, and then
-- there is also what to do with a key that another has, as `compact` says, or nothing. Behind a delay and a space there may be when the
-- message becomes urgent. Runs are how many (2 bytes each) follow one
-- another that are of one window. No id is there twice, unless it is -2.

-- So many messages of a window that come together get a hash of their own.
local MANY = 16
-- So far may the time that records bear be from this server's, in microseconds.
local TOLERANCE = 20000

-- How many arguments each message has.
local function step_of(common)
    return common < 0 and 2 - common or 2
end

-- Gives the records at these arguments this server's time, if the clock of the pusher ran ahead or behind. As the pusher's times do, they
-- tell the order too.
local function correct(pushed, first, last, step)
    if math.abs(now - tonumber(pushed)) > TOLERANCE then
        for at = first, last, step do
            local stamp = struct.pack('>I8', now + (at - first) / step)
            ARGV[at] = sub(ARGV[at], 1, 1) .. stamp .. sub(ARGV[at], 10)
        end
    end
end

-- Does something with those of each window: the numbers of the first and the last.
local function by_window(runs, act)
    local first = 1
    for at = 1, #runs, 2 do
        local last = first - 1 + byte(runs, at) * 256 + byte(runs, at + 1)
        act(first, last)
        first = last + 1
    end
end

-- Which of these messages are there, by their ids.
local function find_known(of, ids, runs)
    local known = {}
    local function look_in(hash, first, last)
        local found = call('HMGET', hash, unpack(ids, first, last))
        for i = 1, #found do
            if found[i] then
                known[ids[first - 1 + i]] = true
            end
        end
    end
    by_window(runs, function(first, last)
        look_in(hash_of(of, ids[first]), first, last)
    end)
    if call('EXISTS', of .. 'messages') == 1 then
        look_in(of .. 'messages', 1, #ids)
    end
    return known
end

-- Puts bulky records into their hash, and all others and the fronts into this one.
local function keep_fronts(of, hash, before, first, last)
    local bulky, rest = {}, {}
    for at = before + 2 * first - 1, before + 2 * last, 2 do
        local id, record = ARGV[at], ARGV[at + 1]
        if #record > BULKY then
            bulky[#bulky + 1] = id
            bulky[#bulky + 1] = record
            record = front_of(record)
        end
        rest[#rest + 1] = id
        rest[#rest + 1] = record
    end
    if #bulky > 0 then
        call('HSET', of .. 'bulky', unpack(bulky))
    end
    call('HSET', hash, unpack(rest))
end

-- Stores messages of one window that have ids and records only.
local function keep_all(of, before, ids, first, last, has_bulky)
    local window, hash = window_of(ids[first]), of .. 'messages'
    if window ~= '' then
        local own = window_hash(of, window)
        local is_open = call('EXISTS', own) == 1
        if is_open or last - first + 1 >= MANY then
            hash = own
            if not is_open then
                call('ZADD', of .. 'windows', 0, window)
            end
        end
    end
    if has_bulky then
        keep_fronts(of, hash, before, first, last)
    else
        call('HSET', hash, unpack(ARGV, before + 2 * first - 1, before + 2 * last))
    end
end

-- Stores messages of a common level. Returns how many became ready.
local function store_together(to, of, before, ids, common, runs)
    local has_bulky = common >= 16
    local level = has_bulky and common - 16 or common
    by_window(runs, function(first, last)
        keep_all(of, before, ids, first, last, has_bulky)
    end)
    admit(to, level, ids, has_bulky and BULKY + 1 or 0)
    promote(to) -- what is due by now stands before
    call('RPUSH', to .. 'ready' .. level, unpack(ids))
    return #ids
end

-- Stores a message that nothing is in the way of, and that is due at this time, or ready if that is now. Returns how many became ready,
-- and when this one does.
local function store_one(to, of, id, record, key, due, urgent)
    local flag = byte(record, 1)
    keep(of, id, record)
    admit(to, level_of(flag), { id }, #record)
    if key then
        call('HSET', to .. 'keys', key, id)
    end
    if urgent then
        mark_amended(to)
        call('ZADD', to .. 'urgent', now + urgent, id)
    end
    if due == now then
        return line_up(to, id, flag)
    end
    call('ZADD', to .. 'due', due, id .. char(flag))
    return 0, due
end

-- Stores messages of any kind, except those that are known or left out. Returns how many became ready, when the first one of the
-- others does, and of each that was not stored its number, less than 0 if it replaced another, and the message that is in its way.
local function store_each(to, of, before, ids, step, known, left_out, compact)
    local present, ready, due = {}, 0, nil
    promote(to)
    for i, id in ipairs(ids) do
        local at = before + (i - 1) * step
        local record, delay, urgent = ARGV[at + 2], step > 2 and tonumber(ARGV[at + 3]) or 0, nil
        if step > 2 and string.find(ARGV[at + 3], ' ', 1, true) then
            delay, urgent = string.match(ARGV[at + 3], '^(%d+) (%d+)$')
            delay, urgent = tonumber(delay), tonumber(urgent)
        end
        local due_at = delay == 0 and now or now + delay + i -- in their order, if they have one delay
        local key = not left_out[i] and is_keyed(byte(record, 1)) and key_of(record)
        local holder = known[id] and id or key and call('HGET', to .. 'keys', key)
        local is_stored, is_changed, more, at_time = not holder and not left_out[i], false, 0, nil
        if step > 3 and holder and holder ~= id and ARGV[at + 4] ~= '' then
            is_stored, is_changed, more, at_time = compact(to, of, holder, record, ARGV[at + 4], due_at)
        end
        if is_stored then
            more, at_time = store_one(to, of, id, record, key, due_at, urgent)
            known[id] = true
        elseif holder then
            present[#present + 1] = is_changed and -i or i
            present[#present + 1] = holder
        end
        ready = ready + more
        due = at_time and math.min(due or at_time, at_time) or due
    end
    return ready, due, present
end

-- Stores the messages behind this argument, so many, and tells who waits for them. `left_out` has the numbers of some that are not to be
-- stored. Returns for each other one that was not stored what `store_each` says.
local function store_all(to, before, count, common, runs, caller, left_out, compact)
    local of, step, ids = home_of(to), step_of(common), {}
    for i = 1, count do
        ids[i] = ARGV[before + (i - 1) * step + 1]
    end
    local known = find_known(of, ids, runs)
    local ready, due, present = 0, nil, {}
    if common >= 0 and not next(known) and not next(left_out) then
        ready = store_together(to, of, before, ids, common, runs)
    else
        ready, due, present = store_each(to, of, before, ids, step, known, left_out, compact)
    end
    if ready > 0 or (due and tonumber(call('ZRANGE', to .. 'due', 0, 0, 'WITHSCORES')[2] or 0) >= due) then
        tell(to, ready, due, caller)
    end
    return present
end
