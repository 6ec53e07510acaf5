-- Shows messages. ARGV: where they must be, and ids. Answers the time, and of each that is there its state (0 ready, 1 delayed,
-- 2 leased), its earlier deliveries, its headers if they were replaced, its record, and when it is due.

local here, shown = ARGV[1], { now }
for i = 2, #ARGV do
    local id = ARGV[i]
    local record = read(id)
    if record and sub(record, 10, 10) == here then
        local claim = call('HGET', base .. 'leases', id)
        local due = tonumber(call('ZSCORE', base .. 'due', id .. sub(record, 1, 1)) or 0)
        local state = due > now and 1 or 0
        local count = tonumber(call('HGET', base .. 'counts', id) or 0)
        if claim then
            state = is_alive(claim) and 2 or 0
            count = count + 1
        end
        shown[#shown + 1] = { state, count, call('HGET', base .. 'headers', id), record, due }
    end
end
return shown
