-- Changes entries, each if it is as expected. ARGV: of each change its name, what has to be there (`*` anything, `-` nothing, or a version), and the new
-- version, for how many milliseconds it is kept (0: for good) and its value; all three are empty texts if it is to be deleted. Returns the time, then of
-- each 1 if it was made, else what is there, or nothing.

-- More than a call brings, so that none pile up.
local FREED = 200

for _, name in ipairs(call('ZRANGEBYSCORE', lapses, '-inf', now_text, 'LIMIT', 0, FREED)) do
    delete(name)
end

local function put(name, version, keep, value)
    local ends = '0'
    if keep ~= '0' then
        ends = string.format('%.0f', now + tonumber(keep))
        call('ZADD', lapses, ends, name)
    else
        call('ZREM', lapses, name)
    end
    call('HSET', entries, name, version .. ' ' .. ends .. ' ' .. value)
    call('ZADD', names, 0, name)
end

local outcomes = { now_text }
for at = 1, #ARGV, 5 do
    local name, expected = ARGV[at], ARGV[at + 1]
    local entry, version = find(name)
    if expected == '*' or (expected == '-' and not entry) or (entry and expected == version) then
        if ARGV[at + 2] == '' then
            delete(name)
        else
            put(name, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
        end
        outcomes[#outcomes + 1] = 1
    else
        outcomes[#outcomes + 1] = entry or false
    end
end
return outcomes
