-- Messages that were deleted while they stood in line. Finding them there would take time: their ids stay, and each has a tomb, which
-- says how often this id stands at this level for nothing. Its present message, if it has one, stands behind.

-- Which of these, the first ones of a level's line, stand for nothing; or, of a run, how many of them before one that does not. Their
-- tombs are spent.
local function spend(level, ids, is_run)
    local names, flag = {}, char(level)
    for i, id in ipairs(ids) do
        names[i] = id .. flag
    end
    local found, left, spent, count = call('HMGET', base .. 'tombs', unpack(names)), {}, {}, 0
    for i, name in ipairs(names) do
        local tombs = left[name] or tonumber(found[i] or 0)
        if tombs > 0 then
            left[name], spent[i], count = tombs - 1, true, count + 1
        elseif is_run then
            break
        end
    end
    local gone = {}
    for name, tombs in pairs(left) do
        if tombs > 0 then
            call('HSET', base .. 'tombs', name, tombs)
        else
            gone[#gone + 1] = name
        end
    end
    if #gone > 0 then
        call('HDEL', base .. 'tombs', unpack(gone))
    end
    if count > 0 then
        call('HINCRBY', base .. 'state', 'tombs', -count)
    end
    return spent, count
end

-- Takes those away that stand for nothing at the front of a level's line, at most so many. Returns how many.
local function bury(level, most)
    local line, buried, step = base .. 'ready' .. level, 0, 4
    while buried < most do
        local some = call('LRANGE', line, 0, math.min(most - buried, step) - 1)
        local count = #some > 0 and select(2, spend(level, some, true)) or 0
        if count > 0 then
            call('LPOP', line, count)
        end
        buried = buried + count
        if #some == 0 or count < #some then
            break
        end
        step = math.min(step * 4, 256) -- most often the first one stands for something
    end
    return buried
end
