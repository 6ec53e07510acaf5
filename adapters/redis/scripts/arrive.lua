-- Arriving from elsewhere.

-- Puts a message at the end of its level in this partition, unless it is there already.
local function land(target, id, record, headers)
    local of = home_of(target)
    if read_of(of, id) then
        return
    end
    if #record < 10 then -- it is damaged, and goes as it is
        record = string.rep('\0', 10) .. record
    end
    local flag, rest = byte(record, 1), sub(record, 11)
    if is_keyed(flag) then -- the key is not taken along
        local start = is_grouped(flag) and select(2, text_at(rest, 1)) + 1 or 1
        local _, last = text_at(rest, start)
        if last <= #rest then
            flag, rest = flag - 32, sub(rest, 1, start - 1) .. sub(rest, last + 1)
        end
    end
    local place = sub(target, -5) == 'dead:' and 'd' or 'l'
    keep(of, id, char(flag) .. sub(record, 2, 9) .. place .. rest)
    admit(target, level_of(flag), { id }, #record)
    if headers ~= '' then
        call('HSET', target .. 'headers', id, headers)
    end
    promote(target)
    tell(target, line_up(target, id, flag, now))
end
