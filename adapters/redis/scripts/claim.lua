-- Claiming.

-- Rounds of taking that bring nothing: there are so many only where messages were deleted while they waited.
local ROUNDS = 64
-- Of these, so many are passed in one call.
local MOST_BURIED = 4096
-- So many of those that were put aside are looked after in one call.
local LOOKED_AFTER = 64
-- How long it is noted who waits, in seconds: whoever does looks again sooner.
local MARKED_S = 180
-- What one answer may hold before it is cut short.
local MOST_BYTES = 32 * 1024 * 1024

-- Lets some of those line up that were put aside, if their records came back.
local function bring_back()
    local some = call('HRANDFIELD', base .. 'astray', LOOKED_AFTER)
    local place = sub(base, -5) == 'dead:' and 'd' or 'l'
    for _, id in ipairs(some) do
        local record = read(id)
        if record and place_of(record) == place then
            call_off(base, { id })
            line_up(base, id, flag_of(record))
        end
    end
end

-- What takes members of groups, and tells in the entries of a claim who has a group: so entries are made only where groups are counted. Takes
-- the first in line with each that comes, up to so many of one group, as long as there are fewer than `max` of all.
local function taking_groups(ids, records, entries, max, members, step)
    local function add(id, record, level)
        ids[#ids + 1], records[#records + 1] = id, record
        entries[#entries + 1] = id .. char(is_grouped(flag_of(record)) and level + 16 or level)
        return #record
    end

    -- Takes some of a line in front. Returns how many were there, and their bytes.
    local function take_some(group, wanted, has_fronts)
        local some = call('ZPOPMIN', base .. 'behind:' .. group, wanted)
        local names, places, bytes = {}, {}, 0
        for i = 1, #some, 2 do
            names[#names + 1] = sub(some[i], 1, 16)
        end
        local found = #names > 0 and read_all(names) or names
        if has_fronts then
            fill_in(names, found)
        end
        for i, id in ipairs(names) do
            local level = level_of(byte(some[2 * i - 1], 17))
            if found[i] then
                bytes = bytes + add(id, found[i], level)
                places[#places + 1], places[#places + 2] = some[2 * i], id
            else
                put_aside(base, id, level)
            end
        end
        if #places > 0 then
            call('ZADD', base .. 'places:' .. group, unpack(places))
        end
        call('HINCRBY', base .. 'heads', group, #places / 2)
        call('HINCRBY', base .. 'state', 'behind', -#names)
        return #names, bytes
    end

    local bytes = 0

    -- Adds a message, and members behind it if it has a group. Returns the bytes of all so far.
    return function(id, record, level, has_fronts)
        bytes = bytes + add(id, record, level)
        local left = math.min(members - 1, max - #ids)
        local group = left > 0 and is_grouped(flag_of(record)) and group_of(record)
        if not group or call('EXISTS', base .. 'behind:' .. group) == 0 or not is_front_of(base, group, id) then
            return bytes
        end
        counted().begin(base, group)
        while left > 0 and bytes < MOST_BYTES do
            local wanted = math.min(left, step)
            local count, more = take_some(group, wanted, has_fronts)
            bytes, left = bytes + more, count == wanted and left - count or 0
        end
        return bytes
    end
end

-- Takes messages out of their lines: ids, records, and entries. What one step reads is bounded, as its messages are. `size` says
-- whether there are bulky (1) or even large messages (2), or neither; `amended` that some may be placed; `members` how many of one group come
-- at once, if groups matter.
local function take(top, max, size, tombs, amended, members)
    local step = size == '2' and 4 or 100
    local has_tombs, draw = tombs and tombs ~= '0', amended and standing().draw
    local ids, records, entries, bytes, count = {}, {}, {}, 0, 0
    local level, rounds, buried = top, 0, 0
    local take_group = members and sub(base, -5) ~= 'dead:' and taking_groups(ids, records, entries, max, members, step)
    members = take_group and members or 1
    while level >= 0 and count < max and rounds < ROUNDS and bytes < MOST_BYTES do
        local at, before = level, count
        if has_tombs then
            buried = buried + bury(level, MOST_BURIED - buried)
            if buried >= MOST_BURIED then
                break
            end
        end
        -- So many that there is room for the members behind each.
        local wanted = math.max(math.min(math.floor((max - count) / members), step), 1)
        local some, are_placed
        if draw then
            some, are_placed = draw(level, wanted)
        else
            some = call('LPOP', base .. 'ready' .. level, wanted) or {}
        end
        if #some < wanted and (#some == 0 or not draw) then
            level = level - 1 -- this one is empty now
        end
        if #some > 0 then
            local found, first = read_all(some), count + 1
            if size then
                fill_in(some, found)
            end
            local spent = has_tombs and not are_placed and spend(at, some)
            for i = 1, #some do
                local id, record = some[i], found[i]
                local is_deleted = spent and spent[i]
                if record and not is_deleted and take_group then
                    bytes = take_group(id, record, at, size)
                    count = #ids
                elseif record and not is_deleted then
                    count = count + 1
                    ids[count], records[count] = id, record
                    bytes = bytes + #record
                elseif not is_deleted then
                    put_aside(base, id, at)
                end
            end
            if count >= first and not take_group then
                local flag = char(at)
                entries[#entries + 1] = concat(ids, flag, first, count) .. flag
            end
        end
        rounds = count == before and rounds + 1 or rounds
    end
    return ids, records, concat(entries), level >= 0 and count < max
end

-- Whether a message is ready at any of these levels.
local function is_more(top, amended)
    local lines = {}
    for level = 0, top do
        lines[#lines + 1] = base .. 'ready' .. level
        lines[#lines + 1] = amended and base .. 'placed' .. level or nil
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

-- Leases up to `max` messages, and up to so many members of one group. `who`, if not empty, waits for more: what is left is told at once, or
-- else when it comes.
-- Returns the time, when the next is due, whether more are ready (1) and ids are aside (2), records, counts of earlier deliveries, and
-- headers.
local function claim(max, lease, token, who, members)
    local state = call('HMGET', base .. 'state', 'top', 'paused', 'size', 'tombs', 'astray', 'amended', 'counted')
    local top, has_astray, amended = tonumber(state[1] or -1), state[5] and state[5] ~= '0', state[6]
    members = (members > 1 or state[7]) and members or nil
    local ids, records, entries, is_cut, has_lifted, counts, headers = {}, {}, '', false, false, false, false
    if not state[2] and top >= 0 then
        if has_astray then
            bring_back()
        end
        promote(base)
        reap()
        if amended then
            is_cut, has_lifted = standing().lift_due()
            top, state[4] = has_lifted and 9 or top, call('HGET', base .. 'state', 'tombs')
        end
        if not is_cut then
            ids, records, entries, is_cut = take(top, max, state[3], state[4], amended, members)
        end
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
        local count = #ids
        if call('ZADD', base .. 'claims', now + lease, token) == 0 then
            -- The client sent this call again, for it missed the answer: what was taken then is held too, until the claim ends.
            local earlier = call('HMGET', base .. 'taken', token, 'n' .. token)
            entries, count = (earlier[1] or '') .. entries, count + tonumber(earlier[2] or 0)
        end
        call('HSET', base .. 'taken', token, entries, 'n' .. token, count)
    end
    local due, more = -1, is_cut or (who ~= '' and #ids == max and is_more(top, amended))
    if who ~= '' and not more then
        write_though_full()
        call('SET', base .. 'waits', who, 'EX', MARKED_S)
        due = state[2] and -1 or next_due()
    end
    local seen = (more and 1 or 0) + ((has_astray or has_strayed) and 2 or 0)
    return { now, due, seen, records, counts, headers }
end
