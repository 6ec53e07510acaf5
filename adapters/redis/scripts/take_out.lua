-- Deletes messages that nobody holds. ARGV: 1 to request the cancellation of held ones, else 0; where they must be; ids.
-- Answers of each: g gone, h held, - not there.

local here, answers, ready, buried = ARGV[2], {}, 0, {}

-- Takes a message that nobody holds out of whatever line it stands in.
local function withdraw(id, record, claim)
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

write_though_full()
promote(base)
for i = 3, #ARGV do
    local id = ARGV[i]
    local record = read(id)
    local answer = '-'
    if record and place_of(record) == here then
        local claim = call('HGET', base .. 'leases', id)
        if claim and is_alive(claim) then
            answer = 'h'
            if ARGV[1] == '1' then
                call('SADD', base .. 'asked', id)
            end
        else
            answer = 'g'
            withdraw(id, record, claim)
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
