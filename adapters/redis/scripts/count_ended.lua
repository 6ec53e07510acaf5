-- Counts ends. ARGV: how many are enough, the bounds of moment and id, the upper one first, the states, and where to go on in the first of
-- them, if it was begun. Returns how many, the states that are left, and where to go on in the first of them. Those that have lapsed and
-- are not freed yet have to be looked for; while there are none the server knows the number.

-- Of one state so many are looked at in one call.
local LOOKED_AT = 250

local enough, high, low, states, at = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local are_all_kept = call('ZCOUNT', ledger().lapsing, '-inf', ledger().now_ms) == 0
local count = 0

-- Counts those of one state that have not lapsed. Returns where to go on, if not all were looked at.
local function look_at_some(key, upper)
    local members, ids = call('ZREVRANGEBYLEX', key, upper, low, 'LIMIT', 0, LOOKED_AT), {}
    for i, member in ipairs(members) do
        ids[i] = sub(member, 7)
    end
    for _, record in ipairs(#ids > 0 and call('HMGET', ledger().ended, unpack(ids)) or {}) do
        if record and ledger().is_kept(record) then
            count = count + 1
        end
    end
    return #members == LOOKED_AT and '(' .. members[LOOKED_AT]
end

while states ~= '' and count < enough do
    local key, upper = ledger().listed(sub(states, 1, 1)), at ~= '' and at or high
    at = ''
    if are_all_kept then
        count = count + call('ZLEXCOUNT', key, low, upper)
    else
        local left = look_at_some(key, upper)
        if left then
            return { count, states, left }
        end
    end
    states = sub(states, 2)
end
return { count, '', '' }
