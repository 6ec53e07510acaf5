-- Deletes messages that nobody holds. ARGV: how many at most, where to go on among groups.
-- Returns how many were deleted, and where to go on; an empty text if none is left.

local limit, cursor, count = tonumber(ARGV[1]), ARGV[2], 0

local function delete(ids)
    local records = read_all(ids)
    for i, id in ipairs(ids) do
        if records[i] then
            erase(id)
            forget({ id })
            leave(id, records[i])
            count = count + 1
        end
    end
end

local function delete_entries(entries, step)
    local ids = {}
    for i = 1, #entries, step do
        ids[#ids + 1] = sub(entries[i], 1, 16)
    end
    if #ids > 0 then
        delete(ids)
    end
    return #ids
end

promote(base)
reap()
local state = call('HMGET', base .. 'state', 'top', 'size', 'tombs', 'amended')
local top = tonumber(state[1] or -1)
local ids, records, entries, is_cut
repeat -- those that follow in their groups come to the lines
    ids, records, entries, is_cut = take(top, math.min(limit - count, 100), state[2], state[3], state[4])
    if #ids > 0 then
        delete(ids)
    end
until #ids == 0 or count >= limit
if is_cut then
    return { count, cursor }
end
while count < limit do
    if delete_entries(call('ZPOPMIN', base .. 'due', math.min(limit - count, 100)), 2) == 0 then
        break
    end
end
while count < limit do
    local some = call('HRANDFIELD', base .. 'disabled', math.min(limit - count, 100))
    if #some == 0 then
        break
    end
    call('HDEL', base .. 'disabled', unpack(some))
    delete(some)
end
-- Ids that have no record.
while count < limit do
    local some = call('HRANDFIELD', base .. 'astray', math.min(limit - count, 100))
    if #some == 0 then
        break
    end
    local before = count
    delete(some)
    count = before + call_off(base, some)
end
-- Whoever stands behind one that is held.
for _ = 1, 16 do
    if count >= limit or cursor == '' then
        break
    end
    local page = call('HSCAN', base .. 'heads', cursor, 'COUNT', 64)
    for i = 1, #page[2], 2 do
        local line = base .. 'behind:' .. page[2][i]
        while count < limit do
            local gone = delete_entries(call('ZPOPMIN', line, math.min(limit - count, 100)), 2)
            if gone == 0 then
                break
            end
            call('HINCRBY', base .. 'state', 'behind', -gone)
        end
    end
    if count < limit then
        cursor = page[1] == '0' and '' or page[1]
    end
end
return { count, cursor }
