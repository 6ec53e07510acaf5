-- Taking messages out of the queue that nobody holds.

-- Takes a message that nobody holds out of whatever line it stands in.
local function withdraw(id, record, claim, buried)
    if claim then -- its lease ran out
        call('HDEL', base .. 'leases', id)
        drop(claim, 1)
        return
    end
    local level = standing().lift_out(id, record).tomb
    if level then -- it is to be skipped when its turn comes
        buried[level] = (buried[level] or 0) + 2
    end
end

-- Deletes those of ARGV from the first to the last that are in this place and that nobody holds; of others it asks for their cancellation, if
-- that is wanted. Returns for each: g gone, h held, - not there.
local function take_out(here, is_asked, first, last)
    local answers, ready, buried = {}, 0, {}
    write_though_full()
    promote(base)
    for i = first, last do
        local id = ARGV[i]
        local record = read(id)
        local answer = '-'
        if record and place_of(record) == here then
            local claim = call('HGET', base .. 'leases', id)
            if claim and is_alive(claim) then
                answer = 'h'
                if is_asked then
                    call('SADD', base .. 'asked', id)
                end
            else
                answer = 'g'
                withdraw(id, record, claim, buried)
                erase(id)
                forget({ id })
                ready = ready + leave(id, record)
            end
        end
        answers[#answers + 1] = answer
    end
    -- Those at the front can go, and as many before them as make up for deletions further behind.
    for level, most in pairs(buried) do
        bury(level, most)
    end
    if ready > 0 then
        tell(base, ready)
    end
    return concat(answers)
end
