-- Claiming.

-- Rounds of taking: more are needed only where messages were deleted while they waited.
local ROUNDS = 64
-- What one answer may hold before it is cut short.
local MOST_BYTES = 32 * 1024 * 1024

-- Forgets that an id stands in line for a message that was deleted: its turn came.
local function bury(id)
    if call('HINCRBY', base .. 'tombs', id, -1) <= 0 then
        call('HDEL', base .. 'tombs', id)
    end
    call('HINCRBY', base .. 'state', 'tombs', -1)
end

-- How often each of these stands in line for a message that was deleted; nothing if none does. Its present message, if it has one,
-- stands behind.
local function tombs_of(ids)
    if call('EXISTS', base .. 'tombs') == 0 then
        return
    end
    local tombs, found = {}, call('HMGET', base .. 'tombs', unpack(ids))
    for i, id in ipairs(ids) do
        tombs[id] = tonumber(found[i] or 0)
    end
    return tombs
end

-- Takes messages of these levels out of their lines: ids, records, and entries. What one step reads is bounded, as its messages are.
local function take(top, max, has_large)
    local step = has_large and 4 or 100
    local ids, records, entries, bytes, count = {}, {}, {}, 0, 0
    local level, rounds = top, 0
    while level >= 0 and count < max and rounds < ROUNDS and bytes < MOST_BYTES do
        local at = level
        rounds = rounds + 1
        local wanted = math.min(max - count, step)
        local some = call('LPOP', base .. 'ready' .. level, wanted) or {}
        if #some < wanted then
            level = level - 1 -- this one is empty now
        end
        if #some > 0 then
            local found, first = read_all(some), count + 1
            local tombs = tombs_of(some)
            for i = 1, #some do
                local id, record = some[i], found[i]
                if tombs and tombs[id] > 0 then
                    tombs[id] = tombs[id] - 1
                    bury(id)
                elseif record then
                    count = count + 1
                    ids[count], records[count] = id, record
                    bytes = bytes + #record
                end
            end
            if count >= first then
                local flag = char(at)
                entries[#entries + 1] = concat(ids, flag, first, count) .. flag
            end
        end
    end
    return ids, records, concat(entries), level >= 0 and count < max
end

-- Whether a message is ready at any of these levels.
local function is_more(top)
    local lines = {}
    for level = 0, top do
        lines[level + 1] = base .. 'ready' .. level
    end
    return call('EXISTS', unpack(lines)) > 0
end

-- When the next message becomes ready by itself, in how many microseconds; -1 for never.
local function next_due()
    local due = tonumber(call('ZRANGE', base .. 'due', 0, 0, 'WITHSCORES')[2])
    local claim = tonumber(call('ZRANGE', base .. 'claims', 0, 0, 'WITHSCORES')[2])
    local first = due and claim and math.min(due, claim) or due or claim
    return first and math.max(first - now, 0) or -1
end

-- Leases up to `max` messages. `who`, if not empty, waits for more: what is left is told at once, or else when it comes.
-- Answers the time, when the next is due, whether more are ready, records, counts of earlier deliveries, and headers.
local function claim(max, lease, token, who)
    local state = call('HMGET', base .. 'state', 'top', 'paused', 'large')
    local top = tonumber(state[1] or -1)
    local ids, records, entries, is_cut, counts, headers = {}, {}, '', false, false, false
    if not state[2] and top >= 0 then
        promote(base)
        reap()
        ids, records, entries, is_cut = take(top, max, state[3])
    end
    if #ids > 0 then
        if call('EXISTS', base .. 'counts', base .. 'headers') > 0 then
            counts = call('HMGET', base .. 'counts', unpack(ids))
            headers = call('HMGET', base .. 'headers', unpack(ids))
        end
        local pairs_of = {}
        for i = 1, #ids do
            pairs_of[2 * i - 1], pairs_of[2 * i] = ids[i], token
        end
        call('HSET', base .. 'leases', unpack(pairs_of))
        call('ZADD', base .. 'claims', now + lease, token)
        call('HSET', base .. 'taken', token, entries, 'n' .. token, #ids)
    end
    local due, more = -1, is_cut or (who ~= '' and #ids == max and is_more(top))
    if who ~= '' and not more then
        write_though_full()
        call('SET', base .. 'waits', who)
        due = state[2] and -1 or next_due()
    end
    return { now, due, more and 1 or 0, records, counts, headers }
end
