-- Moves ends of leases. ARGV, four for each token and duration: the token, the duration, what makes the name of a new claim, and
-- entries. Returns a digit for each message: 0 lost, 1 extended, 2 cancellation requested.

local answers, sooner = {}, nil

-- Which claims hold how much of this.
local function by_claim(ids, token)
    local held, claims = call('HMGET', base .. 'leases', unpack(ids)), {}
    for i = 1, #ids do
        if is_held(held[i], token) then
            local members = claims[held[i]] or {}
            members[#members + 1] = i
            claims[held[i]] = members
        end
    end
    return claims
end

-- Takes messages out of their claim, into one of their own.
local function part(claim, new, members, ids, entries)
    drop(claim, #members)
    local taken, pairs_of = { call('HGET', base .. 'taken', new) or '' }, {}
    for _, i in ipairs(members) do
        taken[#taken + 1] = sub(entries, i * 17 - 16, i * 17)
        pairs_of[#pairs_of + 1] = ids[i]
        pairs_of[#pairs_of + 1] = new
    end
    call('HSET', base .. 'leases', unpack(pairs_of))
    call('HSET', base .. 'taken', new, concat(taken))
    call('HINCRBY', base .. 'taken', 'n' .. new, #members)
end

write_though_full()
for at = 1, #ARGV, 4 do
    local token, until_us, entries = ARGV[at], now + tonumber(ARGV[at + 1]), ARGV[at + 3]
    local ids, first = {}, #answers
    for from = 1, #entries, 17 do
        ids[#ids + 1] = sub(entries, from, from + 15)
        answers[#answers + 1] = '0'
    end
    local asked = call('EXISTS', base .. 'asked') == 1 and call('SMISMEMBER', base .. 'asked', unpack(ids)) or {}
    for claim, members in pairs(by_claim(ids, token)) do
        if until_us < ends[claim] then
            sooner = math.min(sooner or until_us, until_us)
        end
        local extended = claim
        if tonumber(call('HGET', base .. 'taken', 'n' .. claim)) > #members then
            extended = token .. ARGV[at + 2]
            part(claim, extended, members, ids, entries)
        end
        call('ZADD', base .. 'claims', until_us, extended)
        ends[extended] = until_us
        for _, i in ipairs(members) do
            answers[first + i] = asked[i] == 1 and '2' or '1'
        end
    end
end
if sooner then
    tell(base, 0, sooner)
end
return concat(answers)
