-- Where messages stand that nobody holds, for those who change that, and for pulls where that was done. All of it is made when it is
-- needed first: no other call pays for it.
--
-- What stands elsewhere than at the end of its level is in `placed`, by its position: since when it stands in line, as `since` says, or
-- when it was pushed; less than 0 if it was released, for which `since` has an r. It may stand in the level's list too, where it has a
-- tomb. Of each disabled message there is a note: when it is due, its number in the line of its group, and in which level's list it has a
-- tomb; a - for each that it has not.

local made

local function standing()
    if made then
        return made
    end
    local RETURNED = 4e15
    -- So many messages become urgent in one call.
    local MOST_LIFTED = 100

    local function position_of(since, record)
        local at = #record > 9 and struct.unpack('>I8', record, 2) or 0
        return since == 'r' and at - RETURNED or tonumber(since or at)
    end

    local function has_tomb(id, level)
        return tonumber(call('HGET', base .. 'tombs', id .. char(level)) or 0) > 0
    end

    -- Takes a member of a group out of its line. Returns its place there, or nothing if it was not there.
    local function leave_line(id, flag, group)
        local line = base .. 'behind:' .. group
        for _, mark in ipairs({ 0, GIVEN_BACK }) do
            local place = call('ZSCORE', line, id .. char(flag + mark))
            if place then
                call('ZREM', line, id .. char(flag + mark))
                call('HINCRBY', base .. 'state', 'behind', -1)
                return place
            end
        end
        return nil
    end

    -- Takes a message out of wherever it stands. Returns what is needed to put it back.
    local function lift_out(id, record)
        local flag = flag_of(record)
        local level, entry = level_of(flag), id .. char(flag)
        local note = call('HGET', base .. 'disabled', id)
        if note then
            call('HDEL', base .. 'disabled', id)
            local due, number, tomb = string.match(note, '^(%S+) (%S+) (%S+)$')
            return { is_disabled = true, due = tonumber(due), number = tonumber(number), tomb = tonumber(tomb) }
        end
        local due = call('ZSCORE', base .. 'due', entry)
        if due then
            call('ZREM', base .. 'due', entry)
            return { due = tonumber(due) }
        end
        local number = is_grouped(flag) and leave_line(id, flag, group_of(record))
        if number then
            return { number = tonumber(number) }
        end
        if call('ZREM', base .. 'placed' .. level, id) == 1 or call_off(base, { id }) == 1 then
            return {}
        end
        call('HINCRBY', base .. 'tombs', id .. char(level), 1) -- finding it in the list would take time
        call('HINCRBY', base .. 'state', 'tombs', 1)
        return { tomb = level }
    end

    local function set_aside(id, stood)
        local note = { stood.due and string.format('%.0f', stood.due) or '-', stood.number or '-', stood.tomb or '-' }
        call('HSET', base .. 'disabled', id, concat(note, ' '))
    end

    -- Lets a message stand where its level's list has it already, or else at its position.
    local function stand(id, record, level, tomb)
        if tomb == level and has_tomb(id, level) then
            if call('HINCRBY', base .. 'tombs', id .. char(level), -1) <= 0 then
                call('HDEL', base .. 'tombs', id .. char(level))
            end
            call('HINCRBY', base .. 'state', 'tombs', -1)
            return
        end
        call('ZADD', base .. 'placed' .. level, position_of(call('HGET', base .. 'since', id), record), id)
    end

    -- Lets a member of a group stand where it was pushed.
    local function offer(id, level)
        local record = read(id)
        if record then
            stand(id, record, level)
        else
            put_aside(base, id, level)
        end
    end

    -- Puts a member of a group in front, or to its place in the line. Returns how many became ready; nothing if it is to be offered itself.
    local function put_in_group(id, flag, group, stood)
        local head = call('HSETNX', base .. 'heads', group, id) == 0 and call('HGET', base .. 'heads', group)
        if not head or head == id then
            return nil
        end
        if stood.is_lifted and is_counted_in(base, group, id) then
            return nil
        end
        if call('HGET', base .. 'since', id) == 'r' then
            flag = flag + GIVEN_BACK
        end
        if is_counted(head) then
            return counted().stand_back(base, group, id, flag, stood.number, offer)
        end
        wait_behind(base, group, id, flag, stood.number or next_place(base))
        return 0
    end

    -- Puts a message to where it belongs: aside, among those that are due later, behind the front of its group, at the end or where it
    -- stood. Returns how many became ready, and when this one does.
    local function put(id, record, stood)
        local flag = flag_of(record)
        if stood.is_disabled then
            set_aside(id, stood)
            return 0
        end
        if stood.due and stood.due > now then
            call('ZADD', base .. 'due', stood.due, id .. char(flag))
            return 0, stood.due
        end
        if stood.due or stood.joins then
            return line_up(base, id, flag, now)
        end
        local ready = is_grouped(flag) and put_in_group(id, flag, group_of(record), stood)
        if ready then
            return ready
        end
        stand(id, record, level_of(flag), stood.tomb)
        return 1
    end

    -- Gives a message the highest level. Its record says so to scripts, not to those who get it.
    local function lift(id, record)
        local flag = flag_of(record)
        local highest = char(flag - level_of(flag) + 9)
        local stood = lift_out(id, record)
        stood.is_lifted = true
        for _, hash in ipairs({ hash_of(home, id), messages, home .. 'bulky' }) do
            local found = call('HGET', hash, id)
            if found then
                call('HSET', hash, id, highest .. sub(found, 2))
            end
        end
        put(id, highest .. sub(record, 2), stood)
    end

    -- Lifts those that are urgent by now; what is held then, when it is released. Returns whether there are more, and whether the highest
    -- level has any of them.
    local function lift_due()
        local some, has_lifted = call('ZRANGEBYSCORE', base .. 'urgent', '-inf', now, 'LIMIT', 0, MOST_LIFTED), false
        for _, id in ipairs(some) do
            local record = read(id)
            if record and call('HGET', base .. 'leases', id) then
                call('ZADD', base .. 'urgent', '+inf', id)
            else
                call('ZREM', base .. 'urgent', id)
                if record and place_of(record) == 'l' and level_of(flag_of(record)) < 9 then
                    lift(id, record)
                    has_lifted = true
                end
            end
        end
        if has_lifted then
            call('HSET', base .. 'state', 'top', 9)
        end
        return #some == MOST_LIFTED, has_lifted
    end

    -- How many of these, which begin a level's list, stand before a position, and the position of the next.
    local function count_before(ids, position)
        local records, since = read_all(ids), call('HMGET', base .. 'since', unpack(ids))
        for i = 1, #ids do
            local at = records[i] and position_of(since[i], records[i])
            if at and at >= position then
                return i - 1, at
            end
        end
        return #ids
    end

    local step = 4

    -- Takes the next messages of a level: some of its list, or some that were placed. Returns them, and whether they were placed.
    local function draw(level, wanted)
        local list, placed = base .. 'ready' .. level, base .. 'placed' .. level
        local first = call('ZRANGE', placed, 0, 0, 'WITHSCORES')[2]
        if not first then
            return call('LPOP', list, wanted) or {}, false
        end
        local front = call('LRANGE', list, 0, math.min(wanted, step) - 1)
        local count, limit = 0, nil
        if #front > 0 then
            count, limit = count_before(front, tonumber(first))
        end
        step = count == step and math.min(step * 4, 100) or 4
        if count > 0 then
            return call('LPOP', list, count), false
        end
        local some = call('ZRANGEBYSCORE', placed, '-inf', limit or '+inf', 'LIMIT', 0, wanted)
        call('ZREM', placed, unpack(some))
        return some, true
    end

    made = { lift_out = lift_out, put = put, offer = offer, lift_due = lift_due, draw = draw }
    return made
end
