-- Groups, and who lines up.
--
-- Of each group `heads` has who is in front: on offer, held, or postponed. Most often that is one alone, its first member: then it is an id.
-- Else the group is counted: it is how many are in front, and `places:…` has the place of each in its group; and of each disabled member, with
-- a - behind the id. All others stand in `behind:…`, as entries, by their places; + 64 if they were released.

-- The layout of a partition that has or had a counted group. Clients know it too.
local COUNTED_LAYOUT = 4
-- What the flag of a member in line has more that was released.
local GIVEN_BACK = 64

-- Whether this partition has or had a counted group; nothing until somebody asked.
local has_counted

local function is_counted(head)
    return head and #head < 16
end

-- Whether a message is in front of a counted group.
local function is_counted_in(to, group, id)
    return is_counted(call('HGET', to .. 'heads', group)) and call('ZSCORE', to .. 'places:' .. group, id)
end

-- Whether a message is in front of a group. One with a damaged record may name another's.
local function is_front_of(to, group, id)
    return call('HGET', to .. 'heads', group) == id or is_counted_in(to, group, id)
end

-- Puts a message at the front of its level.
local function put_ahead(to, id, level)
    -- One that was amended may also stand in this line for nothing, and of those the first ones are passed.
    if call('HEXISTS', to .. 'tombs', id .. char(level)) == 1 then
        call('ZADD', to .. 'placed' .. level, '-inf', id)
    else
        call('LPUSH', to .. 'ready' .. level, id)
    end
end

-- Lets a member of a group wait for its turn.
local function wait_behind(to, group, id, flag, place)
    call('ZADD', to .. 'behind:' .. group, place, id .. char(flag))
    call('HINCRBY', to .. 'state', 'behind', 1)
end

local function next_place(to)
    return call('HINCRBY', to .. 'state', 'places', 1)
end

-- The first in line of a group is offered: it joins the end of its level, or the front if it was released; or is handed to `offer`. Returns
-- its id and place, or nothing if nobody waits.
local function move_up(to, group, offer)
    local first = call('ZPOPMIN', to .. 'behind:' .. group)
    if not first[1] then
        return nil
    end
    call('HINCRBY', to .. 'state', 'behind', -1)
    local id, flag = sub(first[1], 1, 16), byte(first[1], 17)
    if offer then
        offer(id, level_of(flag))
    elseif flag >= GIVEN_BACK then
        put_ahead(to, id, level_of(flag))
    else
        call('RPUSH', to .. 'ready' .. level_of(flag), id)
    end
    return id, first[2]
end

-- Notes who is in front of a group: an id, a count, or nobody.
local function set_head(to, group, head)
    if head then
        call('HSET', to .. 'heads', group, head)
    else
        call('HDEL', to .. 'heads', group)
    end
end

local made_counted

-- What is done with counted groups. It is made when it is needed first: no other call pays for it.
local function counted()
    if made_counted then
        return made_counted
    end

    -- From now on the group is counted. Who was alone in front was the first of all that are in line, and of one that was at this place.
    local function begin(to, group, other)
        local head = call('HGET', to .. 'heads', group)
        if is_counted(head) then
            return
        end
        if call('HSETNX', to .. 'state', 'counted', 1) == 1 and sub(KEYS[2], -11) == ':partitions' then
            call('ZADD', KEYS[2], 'GT', COUNTED_LAYOUT, string.match(to, '{(.*)}'))
        end
        has_counted = true
        set_head(to, group, head and 1 or 0)
        if head then
            local first = call('ZRANGE', to .. 'behind:' .. group, 0, 0, 'WITHSCORES')[2]
            first = math.min(first or math.huge, other or math.huge)
            call('ZADD', to .. 'places:' .. group, first < math.huge and first - 0.5 or next_place(to), head)
        end
    end

    -- Takes a member from the front, if it is there. Returns its place, and whether nobody is there then.
    local function step_out(to, group, id)
        local place = call('ZSCORE', to .. 'places:' .. group, id)
        if not place then
            return nil, call('HGET', to .. 'heads', group) == '0'
        end
        call('ZREM', to .. 'places:' .. group, id)
        return place, call('HINCRBY', to .. 'heads', group, -1) == 0
    end

    -- Where nobody is in front, the first in line goes there, and the group is counted only as long as it has disabled members. Returns how
    -- many became ready.
    local function fill(to, group, offer)
        local id, place = move_up(to, group, offer)
        if call('EXISTS', to .. 'places:' .. group) == 0 then
            set_head(to, group, id)
        elseif id then
            set_head(to, group, 1)
            call('ZADD', to .. 'places:' .. group, place, id)
        end
        return id and 1 or 0
    end

    -- A member stands in line at the place that it had in front, or at this one, or at the end. Returns how many became ready.
    local function stand_back(to, group, id, flag, place, offer)
        local own, is_free = step_out(to, group, id)
        wait_behind(to, group, id, flag, own or place or next_place(to))
        return is_free and fill(to, group, offer) or 0
    end

    -- A member, in front or disabled, leaves the group. Returns how many became ready.
    local function leave(to, group, id, offer)
        local place, is_free = step_out(to, group, id)
        if not place then
            call('ZREM', to .. 'places:' .. group, id .. '-')
        end
        return is_free and fill(to, group, offer) or 0
    end

    -- A member that is not in line is disabled, and was in line at this place, if it was. Returns its place, if it has one, and how many became
    -- ready.
    local function disable(to, group, id, place, offer)
        if place or call('HGET', to .. 'heads', group) == id then
            begin(to, group, place)
        end
        local own, is_free = step_out(to, group, id)
        place = own or place
        if place then
            call('ZADD', to .. 'places:' .. group, place, id .. '-')
        end
        return place, own and is_free and fill(to, group, offer) or 0
    end

    made_counted = { begin = begin, stand_back = stand_back, leave = leave, disable = disable }
    return made_counted
end

-- Puts a message at the end of its level or, if others of its group are in front, of its group; if it was in front itself, where it was
-- there. `since` has from when on it stands there, for one that was pushed before. Returns how many became ready.
local function line_up(to, id, flag, since)
    if since and sub(to, -5) ~= 'dead:' then
        call('HSET', to .. 'since', id, since)
    end
    if is_grouped(flag) and sub(to, -5) ~= 'dead:' then
        local record = read_of(home_of(to), id)
        if not record then
            return put_aside(to, id, level_of(flag))
        end
        local group = group_of(record)
        local head = call('HSETNX', to .. 'heads', group, id) == 0 and call('HGET', to .. 'heads', group)
        if is_counted(head) then
            return counted().stand_back(to, group, id, flag)
        end
        if head and head ~= id then
            wait_behind(to, group, id, flag, next_place(to))
            return 0
        end
    end
    call('RPUSH', to .. 'ready' .. level_of(flag), id)
    return 1
end

-- Lets those line up whose delay is over, at most a thousand of them.
local function promote(to)
    local due = call('ZRANGEBYSCORE', to .. 'due', '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1000)
    for i = 1, #due, 2 do
        call('ZREM', to .. 'due', due[i])
        line_up(to, sub(due[i], 1, 16), byte(due[i], 17), due[i + 1])
    end
end
