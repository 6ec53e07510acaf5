-- Shows a held message to whoever holds it. ARGV: the id, the token. Returns its record and headers, or nothing.

if not is_held(call('HGET', base .. 'leases', ARGV[1]), ARGV[2]) then
    return false
end
local record = read_whole(ARGV[1])
return record and { record, call('HGET', base .. 'headers', ARGV[1]) or '' }
