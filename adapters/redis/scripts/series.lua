-- Counts of ends. ARGV: the first minute, the one before which to stop, and after how many fields. Returns the last minute of these, if there are more behind it, and of
-- each minute its name and its fields.

-- How many minutes one call reads.
local MOST_MINUTES = 60

local minutes = call('ZRANGEBYSCORE', base .. 'series', ARGV[1], '(' .. ARGV[2], 'LIMIT', 0, MOST_MINUTES)
local answer, fields = { '' }, 0
for i, minute in ipairs(minutes) do
    local counters = call('HGETALL', base .. 'series:' .. minute)
    answer[2 * i], answer[2 * i + 1] = minute, counters
    fields = fields + #counters / 2
    if fields >= tonumber(ARGV[3]) or i == MOST_MINUTES then
        answer[1] = minute
        break
    end
end
return answer
