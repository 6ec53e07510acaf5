-- Shows messages. ARGV: where they must be, and ids. Returns the time, how many ids it came to, and of each that is there its state
-- (0 ready, 1 delayed, 2 leased, 3 disabled), its earlier deliveries, its headers if they were replaced, its record, when it is due, and its id.

-- What one answer may hold before it is cut short.
local MOST_BYTES = 4 * 1024 * 1024

local here, shown, bytes = ARGV[1], { now, #ARGV - 1 }, 0
for i = 2, #ARGV do
    local id = ARGV[i]
    local record = read(id)
    record = record and place_of(record) == here and read_whole(id)
    if record then
        local claim = call('HGET', base .. 'leases', id)
        local due = tonumber(call('ZSCORE', base .. 'due', id .. sub(record, 1, 1)) or 0)
        local note = call('HGET', base .. 'disabled', id)
        local state = due > now and 1 or 0
        if note then
            state, due = 3, tonumber(string.match(note, '^%d+') or 0)
        end
        local count = tonumber(call('HGET', base .. 'counts', id) or 0)
        if claim then
            state = is_alive(claim) and 2 or 0
            count = count + 1
        end
        shown[#shown + 1] = { state, count, call('HGET', base .. 'headers', id), record, due, id }
        bytes = bytes + #record
        if bytes >= MOST_BYTES then
            shown[2] = i - 1
            break
        end
    end
end
return shown
