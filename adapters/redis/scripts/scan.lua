-- Looks at some messages of the partition and its dead letters, those without a window first. ARGV: the window (an empty text at
-- first), and where to go on in it; how many; where they must be; the first window that matters.
-- Returns the window and where to go on in it, no window if none is left, and ids.

local window, cursor, left, here, ids = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], {}
while window and left > 0 do
    local page = call('HSCAN', window_hash(home, window), cursor, 'COUNT', left)
    local found = page[2]
    for i = 1, #found, 2 do
        if place_of(found[i + 1]) == here then
            ids[#ids + 1] = found[i]
        end
    end
    left = left - 1 - #found / 2
    cursor = page[1]
    if cursor == '0' then
        local from = window == '' and '[' .. ARGV[5] or '(' .. window
        window = call('ZRANGEBYLEX', home .. 'windows', from, '+', 'LIMIT', 0, 1)[1]
    end
end
return { window or false, cursor, ids }
