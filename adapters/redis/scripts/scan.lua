-- Looks at some messages of the partition and its dead letters. ARGV: where to go on, how many, where they must be.
-- Answers where to go on, and ids.

local page, here, ids = call('HSCAN', messages, ARGV[1], 'COUNT', ARGV[2]), ARGV[3], {}
local found = page[2]
for i = 1, #found, 2 do
    if sub(found[i + 1], 10, 10) == here then
        ids[#ids + 1] = found[i]
    end
end
return { page[1], ids }
