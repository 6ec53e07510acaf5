-- Counts: ready, delayed, leased, disabled, all dead letters, and whether to ask again, since more fell due than one call deals with.

local function count(of)
    local state = call('HMGET', of .. 'state', 'top', 'behind', 'tombs', 'astray', 'amended')
    local ready = tonumber(state[2] or 0) - tonumber(state[3] or 0) + tonumber(state[4] or 0)
    for level = 0, tonumber(state[1] or -1) do
        ready = ready + call('LLEN', of .. 'ready' .. level) + (state[5] and call('ZCARD', of .. 'placed' .. level) or 0)
    end
    return ready, call('ZCARD', of .. 'due'), math.max(call('HLEN', of .. 'leases') - 1, 0)
end

promote(base)
reap()
local ready, delayed, leased = count(base)
local a, b, c = count(home .. 'dead:')
local again = call('ZCOUNT', base .. 'due', '-inf', now) + call('ZCOUNT', base .. 'claims', '-inf', now)
return { ready, delayed, leased, call('HLEN', base .. 'disabled'), a + b + c, again > 0 and 1 or 0 }
