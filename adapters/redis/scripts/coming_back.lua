-- Messages that somebody held, and that wait again.

local can_differ

-- Gives a message back, ahead of those of its level that were never delivered; or, without a level, says that it waits otherwise.
local function come_back(id, level)
    if sub(base, -5) ~= 'dead:' then
        if can_differ == nil then
            can_differ = call('EXISTS', base .. 'urgent', base .. 'tombs') > 0
        end
        if can_differ and call('ZSCORE', base .. 'urgent', id) == 'inf' then
            call('ZADD', base .. 'urgent', now, id) -- it was held at its moment, and can be lifted now
        end
        if not level then
            return
        end
        call('HSET', base .. 'since', id, 'r')
        -- One that was amended may also stand in this line for nothing, and of those the first ones are passed.
        if can_differ and call('HEXISTS', base .. 'tombs', id .. char(level)) == 1 then
            call('ZADD', base .. 'placed' .. level, '-inf', id)
            return
        end
    end
    if level then
        call('LPUSH', base .. 'ready' .. level, id)
    end
end
