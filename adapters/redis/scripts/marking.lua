-- Partitions in which a message was amended or can become urgent.

-- The layout of a partition in which a message was amended or can become urgent. Clients know it too.
local AMENDED_LAYOUT = 3

-- From now on the partition has keys that releases before amendments do not know, which then refuse it.
local function mark_amended(to)
    if call('HSETNX', to .. 'state', 'amended', 1) == 1 and sub(KEYS[2], -11) == ':partitions' then
        call('ZADD', KEYS[2], 'GT', AMENDED_LAYOUT, string.match(to, '{(.*)}'))
    end
end
