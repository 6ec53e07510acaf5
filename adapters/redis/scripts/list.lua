-- The ids of a partition that has few messages, at once; nothing if it has many. ARGV: how many are few.

local few, found = tonumber(ARGV[1]), {}

local function add(some, from, step)
    for i = from, #some, step do
        found[#found + 1] = sub(some[i], 1, 16)
    end
end

local state = call('HMGET', base .. 'state', 'top', 'behind', 'astray', 'amended')
local top, total = tonumber(state[1] or -1), tonumber(state[2] or 0) + tonumber(state[3] or 0)
total = total + call('ZCARD', base .. 'due') + call('HLEN', base .. 'leases') + call('HLEN', base .. 'disabled')
for level = 0, top do
    total = total + call('LLEN', base .. 'ready' .. level) + (state[4] and call('ZCARD', base .. 'placed' .. level) or 0)
end
if total > few then
    return false
end
for level = 0, top do
    add(call('LRANGE', base .. 'ready' .. level, 0, -1), 1, 1)
    add(state[4] and call('ZRANGE', base .. 'placed' .. level, 0, -1) or {}, 1, 1)
end
add(call('HKEYS', base .. 'disabled'), 1, 1)
add(call('ZRANGE', base .. 'due', 0, -1), 1, 1)
add(call('HKEYS', base .. 'leases'), 1, 1)
add(call('HKEYS', base .. 'astray'), 1, 1)
if tonumber(state[2] or 0) > 0 then
    for _, group in ipairs(call('HKEYS', base .. 'heads')) do
        add(call('ZRANGE', base .. 'behind:' .. group, 0, -1), 1, 1)
    end
end
return found
