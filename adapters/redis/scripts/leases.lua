-- Leases. What one pull takes is one claim: `claims` knows when it ends, `taken` its entries and (as 'n' and its name) how many
-- of them it still holds. `leases` knows the claim of each message. A claim is named by the token of its messages; an
-- extension of some of them makes a claim of its own for these, with a longer name.

local ends = {}

local function is_alive(claim)
    local at = ends[claim]
    if not at then
        at = tonumber(call('ZSCORE', base .. 'claims', claim) or 0)
        ends[claim] = at
    end
    return at > now
end

local function is_held(claim, token)
    return claim and (claim == token or sub(claim, 1, 16) == token) and is_alive(claim)
end

-- A claim lost so many of its messages. With the last it is forgotten.
local function drop(claim, count)
    if call('HINCRBY', base .. 'taken', 'n' .. claim, -count) <= 0 then
        call('HDEL', base .. 'taken', claim, 'n' .. claim)
        call('ZREM', base .. 'claims', claim)
    end
end

-- Gives back what a claim that ran out still holds.
local function give_back(claim)
    local entries = call('HGET', base .. 'taken', claim) or ''
    call('HDEL', base .. 'taken', claim, 'n' .. claim)
    call('ZREM', base .. 'claims', claim)
    local ids = {}
    for at = 1, #entries, 17 do
        ids[#ids + 1] = sub(entries, at, at + 15)
    end
    if #ids == 0 then
        return 1
    end
    local held = call('HMGET', base .. 'leases', unpack(ids))
    for i = #ids, 1, -1 do -- so that they stand in their old order
        if held[i] == claim then
            call('HDEL', base .. 'leases', ids[i])
            call('HINCRBY', base .. 'counts', ids[i], 1)
            call('LPUSH', base .. 'ready' .. level_of(byte(entries, i * 17)), ids[i])
        end
    end
    return #ids
end

-- Ends claims that ran out, until about a thousand messages came back.
local function reap()
    local count = 0
    repeat
        local claims = call('ZRANGEBYSCORE', base .. 'claims', '-inf', now, 'LIMIT', 0, 64)
        for _, claim in ipairs(claims) do
            count = count + give_back(claim)
        end
    until #claims == 0 or count >= 1000
end
