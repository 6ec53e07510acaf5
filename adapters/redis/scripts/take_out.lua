-- Deletes messages that nobody holds. ARGV: 1 to request the cancellation of held ones, else 0; where they must be; ids.
-- Answers of each: g gone, h held, - not there.

local here, answers, ready, buried = ARGV[2], {}, 0, {}

-- Takes a message that nobody holds out of whatever line it stands in.
local function withdraw(id, record, claim)
    local flag = byte(record, 1)
    local entry = id .. char(flag)
    if claim then -- its lease ran out
        call('HDEL', base .. 'leases', id)
        drop(claim, 1)
    elseif call('ZREM', base .. 'due', entry) == 1 then
        return
    elseif is_grouped(flag) and call('ZREM', base .. 'behind:' .. group_of(record), entry) == 1 then
        call('HINCRBY', base .. 'state', 'behind', -1)
    elseif call_off(base, { id }) == 0 then -- to be skipped when its turn comes: finding it now would take time
        call('HINCRBY', base .. 'tombs', id .. char(level_of(flag)), 1)
        call('HINCRBY', base .. 'state', 'tombs', 1)
        buried[level_of(flag)] = (buried[level_of(flag)] or 0) + 2
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
