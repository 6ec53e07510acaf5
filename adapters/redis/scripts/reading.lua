-- Reading many messages.

-- Looks in this hash for those that were not found yet, from first to last. Returns whether that were all.
local function read_more(found, hash, ids, first, last)
    local names, numbers = {}, {}
    for i = first, last do
        if not found[i] then
            names[#names + 1] = ids[i]
            numbers[#names] = i
        end
    end
    local more = #names > 0 and call('HMGET', hash, unpack(names)) or names
    for n, i in ipairs(numbers) do
        found[i] = more[n]
    end
    return #names == 0
end

-- Reads messages. Most often the window of the first one has all, or none is in a window.
local function read_all(ids)
    local window, at = window_of(ids[1]), 1
    local found = call('HMGET', window_hash(home, window), unpack(ids))
    if read_more(found, messages, ids, 1, #ids) then
        return found
    end
    while at <= #ids do
        local other, last = not found[at] and window_of(ids[at]), at
        while other and last < #ids and window_of(ids[last + 1]) == other do
            last = last + 1
        end
        if other and other ~= '' and other ~= window then
            read_more(found, window_hash(home, other), ids, at, last)
        end
        at = last + 1
    end
    return found
end

-- Puts records in the place of their fronts.
local function fill_in(ids, records)
    local names, numbers = {}, {}
    for i = 1, #ids do
        if records[i] and is_front(records[i]) then
            names[#names + 1] = ids[i]
            numbers[#names] = i
        end
    end
    if #names > 0 then
        for n, record in ipairs(call('HMGET', home .. 'bulky', unpack(names))) do
            records[numbers[n]] = record
        end
    end
end
