-- Ends by id. ARGV: ids. Returns how many it came to, and of each what is stored and its result, or nothing.

-- What one answer may hold before it is cut short.
local MOST_BYTES = 4 * 1024 * 1024

local found, bytes = { #ARGV }, 0
for i, id in ipairs(ARGV) do
    local record = call('HGET', ledger().ended, id)
    record = record and ledger().is_kept(record) and record
    local result = record and call('HGET', ledger().results, id)
    found[2 * i], found[2 * i + 1] = record, result
    bytes = bytes + (record and #record or 0) + (result and #result or 0)
    if bytes >= MOST_BYTES then
        found[1] = i
        break
    end
end
return found
