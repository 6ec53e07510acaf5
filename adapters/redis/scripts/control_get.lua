-- Reads entries. ARGV: their names. Returns the time, then of each the entry or nothing.

local found = { now_text }
for place, name in ipairs(ARGV) do
    found[place + 1] = find(name) or false
end
return found
