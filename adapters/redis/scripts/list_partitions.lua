-- The names of partitions, in the order of their bytes. KEYS[1]: the list, in which each has its layout. ARGV: the name to go on after, or
-- nothing, and how many.
--
-- Those of one layout stand in order in the list, those of different ones do not: so each layout is searched by itself.

local list, after, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])

-- Not "<", which goes by the server's locale.
local function is_before(a, b)
    for at = 1, math.min(#a, #b) do
        local x, y = string.byte(a, at), string.byte(b, at)
        if x ~= y then
            return x < y
        end
    end
    return #a < #b
end

local names, start, size = {}, 0, redis.call('ZCARD', list)
while start < size do
    local layout = redis.call('ZRANGE', list, start, start, 'WITHSCORES')[2]
    local stop = start + redis.call('ZCOUNT', list, layout, layout)
    local first, last = start, stop
    while first < last do
        local middle = math.floor((first + last) / 2)
        if is_before(after, redis.call('ZRANGE', list, middle, middle)[1]) then
            last = middle
        else
            first = middle + 1
        end
    end
    for _, name in ipairs(first < stop and redis.call('ZRANGE', list, first, math.min(stop, first + limit) - 1) or {}) do
        names[#names + 1] = name
    end
    start = stop
end
table.sort(names, is_before)
for at = #names, limit + 1, -1 do
    names[at] = nil
end
return names
