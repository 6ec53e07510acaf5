-- Storing successors of deliveries that ended.

-- Fails before anything is changed where successors cannot be stored: where their partitions' keys are somebody else's, and where the
-- server is full, which this write that changes nothing could make fuller.
local function refuse_if_in_vain()
    for number = 3, #KEYS do
        call('HGET', KEYS[number], 'top')
        call('HGET', home_of(KEYS[number]) .. 'messages', '')
    end
    call('ZADD', base .. 'claims', 'XX', 0, '')
end

-- Which of these, of which it says whose they are (2 bytes each), are of deliveries that did not end.
local function not_ended(owners, answers)
    local left_out = {}
    if string.find(answers, '0', 1, true) then
        for i = 1, #owners / 2 do
            local owner = byte(owners, 2 * i - 1) * 256 + byte(owners, 2 * i)
            left_out[i] = sub(answers, owner, owner) ~= '1' or nil
        end
    end
    return left_out
end

-- Stores what ARGV has from there to its end: the time that the records bear, and the name of the caller; then, for each partition, the
-- number of its state in KEYS, the common level, whose successors these are, runs, and the messages, as `store_all` says.
local function follow(answers, at)
    local pushed, caller = ARGV[at], ARGV[at + 1]
    at = at + 2
    while at < #ARGV do
        local to, common, owners = sub(KEYS[tonumber(ARGV[at])], 1, -6), tonumber(ARGV[at + 1]), ARGV[at + 2]
        local before, count, step = at + 3, #owners / 2, step_of(common)
        local last = before + count * step
        correct(pushed, before + 2, last, step)
        store_all(to, before, count, common, ARGV[before], caller, not_ended(owners, answers), compact)
        at = last + 1
    end
end
