-- Lists entries. ARGV: what their names begin with, the name that the last page ended with (or an empty text), and how many. Returns the time, then name
-- and entry of each.

local prefix, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local from = '[' .. prefix
if after ~= '' and after >= prefix then
    from = '(' .. after
end
local found = { now_text }
while true do
    local some = call('ZRANGEBYLEX', names, from, '+', 'LIMIT', 0, limit)
    for _, name in ipairs(some) do
        if #found > 2 * limit or string.sub(name, 1, #prefix) ~= prefix then
            return found
        end
        local entry = find(name)
        if entry then
            found[#found + 1] = name
            found[#found + 1] = entry
        end
    end
    if #some < limit then
        return found
    end
    from = '(' .. some[#some]
end
