-- Lists entries, a bounded step. ARGV: what their names begin with, the name that the last step or page ended with (or an empty text), and how many.
-- Returns the time, the name that the next step begins after, or nothing if there are no more entries, then name and entry of each. Those that have
-- lapsed are freed on the way, so that none is walked over twice.

-- Names that one step looks at.
local LOOKED = 300

local prefix, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local from = '[' .. prefix
if after ~= '' and after >= prefix then
    from = '(' .. after
end
local found = { now_text, false }
local some = call('ZRANGEBYLEX', names, from, '+', 'LIMIT', 0, LOOKED)
for _, name in ipairs(some) do
    if string.sub(name, 1, #prefix) ~= prefix then
        return found
    end
    local entry = find(name)
    if entry then
        found[#found + 1] = name
        found[#found + 1] = entry
        if #found >= 2 + 2 * limit then
            found[2] = name
            return found
        end
    else
        delete(name)
    end
end
if #some == LOOKED then
    found[2] = some[#some]
end
return found
