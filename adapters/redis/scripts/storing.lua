-- Storing messages.

-- The front of a record.
local function front_of(record)
    local flag, at = byte(record, 1), 11
    for _ = 1, (is_grouped(flag) and 1 or 0) + (is_keyed(flag) and 1 or 0) do
        at = select(2, text_at(record, at)) + 1
    end
    return sub(record, 1, 9) .. string.upper(sub(record, 10, 10)) .. sub(record, 11, at - 1)
end

-- Stores a message that is not there, in its window only if others opened it.
local function keep(of, id, record)
    local hash = hash_of(of, id)
    if #record > BULKY then
        call('HSET', of .. 'bulky', id, record)
        record = front_of(record)
    end
    call('HSET', call('EXISTS', hash) == 1 and hash or of .. 'messages', id, record)
end

-- The partition gets messages of this level, with these ids, whose largest record has so many bytes: it is made, if it is new. Whether
-- it ever had a bulky (1) or a large one (2) is noted.
local function admit(to, level, ids, bytes)
    local state = call('HMGET', to .. 'state', 'top', 'astray', 'size')
    local top = state[1]
    if state[2] and state[2] ~= '0' then
        call_off(to, ids) -- they stand in line anew
    end
    if bytes > BULKY then
        local size = bytes > LARGE and 2 or 1
        if tonumber(state[3] or 0) < size then
            call('HSET', to .. 'state', 'size', size)
        end
    end
    if not top then
        call('HSET', to .. 'state', 'top', level)
        -- A long value keeps the server from storing the leases as a list, which it would search from end to end.
        call('HSET', to .. 'leases', '', string.rep('.', 80))
        if sub(KEYS[2], -11) == ':partitions' then
            call('ZADD', KEYS[2], 'GT', LAYOUT, string.match(to, '{(.*)}'))
        end
    elseif tonumber(top) < level then
        call('HSET', to .. 'state', 'top', level)
    end
end
