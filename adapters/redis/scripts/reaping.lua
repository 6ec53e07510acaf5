-- Ending claims that ran out.

-- Releases what a claim that ran out still holds.
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
            come_back(ids[i], byte(entries, i * 17))
        end
    end
    return #ids
end

-- So many messages are released in one call, and the rest of the claim that holds the last of them.
local MOST_GIVEN_BACK = 1000

-- Ends claims that ran out.
local function reap()
    local count = 0
    while count < MOST_GIVEN_BACK do
        local claims = call('ZRANGEBYSCORE', base .. 'claims', '-inf', now, 'LIMIT', 0, 64)
        if #claims == 0 then
            return
        end
        for _, claim in ipairs(claims) do
            count = count + give_back(claim)
            if count >= MOST_GIVEN_BACK then
                return
            end
        end
    end
end
