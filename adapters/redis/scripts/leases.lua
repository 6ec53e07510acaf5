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
