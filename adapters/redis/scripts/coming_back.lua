-- Messages that somebody held, and that wait again.

local can_differ

-- Notes that a message waits again.
local function note_return(id)
    if can_differ == nil then
        can_differ = call('EXISTS', base .. 'urgent', base .. 'tombs') > 0
    end
    if can_differ and call('ZSCORE', base .. 'urgent', id) == 'inf' then
        call('ZADD', base .. 'urgent', now, id) -- it was held at its moment, and can be lifted now
    end
end

-- The counted group of a message, if it has one, and its flag.
local function counted_group_of(id)
    if has_counted == nil then
        has_counted = call('HEXISTS', base .. 'state', 'counted') == 1
    end
    local record = has_counted and read(id)
    local flag = record and flag_of(record) or 0
    local group = is_grouped(flag) and group_of(record)
    return group and is_counted_in(base, group, id) and group, flag
end

-- Gives a message back, ahead of those of its level that were never delivered; or, while others of its group are in front, to where it
-- stands in its group. Returns how many became ready.
local function come_back(id, flag)
    if sub(base, -5) == 'dead:' then
        call('LPUSH', base .. 'ready' .. level_of(flag), id)
        return 1
    end
    note_return(id)
    call('HSET', base .. 'since', id, 'r')
    if is_grouped(flag) then
        local group, whole_flag = counted_group_of(id)
        if group then
            return counted().stand_back(base, group, id, whole_flag + GIVEN_BACK)
        end
    end
    if can_differ then
        put_ahead(base, id, level_of(flag))
    else
        call('LPUSH', base .. 'ready' .. level_of(flag), id)
    end
    return 1
end
