-- Messages that somebody held, and that wait again.

local can_differ

-- Whether any message here may become urgent, or stand in a line for nothing.
local function may_differ()
    if can_differ == nil then
        can_differ = call('EXISTS', base .. 'urgent', base .. 'tombs') > 0
    end
    return can_differ
end

-- A message that was held at the moment from which it is urgent: now it can be lifted.
local function revive_urgency(id)
    if may_differ() and call('ZSCORE', base .. 'urgent', id) == 'inf' then
        call('ZADD', base .. 'urgent', now, id)
    end
end

-- Gives a message back, ahead of those of its level that were never delivered.
local function come_back(id, level)
    if sub(base, -5) ~= 'dead:' then
        call('HSET', base .. 'since', id, 'r')
        revive_urgency(id)
        -- One that was amended may also stand in this line for nothing, and of those the first ones are passed.
        if may_differ() and call('HEXISTS', base .. 'tombs', id .. char(level)) == 1 then
            call('ZADD', base .. 'placed' .. level, '-inf', id)
            return
        end
    end
    call('LPUSH', base .. 'ready' .. level, id)
end
