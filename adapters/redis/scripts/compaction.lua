-- Pushes that do more with a taken key than leave what is there as it is.

-- How many bytes the number of a CBOR item has that is not in its first byte.
local WIDTHS = { [24] = 1, [25] = 2, [26] = 4, [27] = 8 }
-- Deeper items are in no envelope, and a damaged one is not to use up the stack.
local DEEPEST = 8
-- What every envelope begins with.
local MARK = '\246AQ\1'
-- The fields of an envelope that are a message's content: task, session, headers and payload. All others are its own.
local CONTENT = { [1] = true, [2] = true, [3] = true, [12] = true }

-- Where the next CBOR item begins behind the one that begins there; nothing, if that cannot be read.
local function behind_item(text, at, depth)
    local first = byte(text, at)
    local size = first and first % 32
    local width = size and (size < 24 and 0 or WIDTHS[size])
    if not width or depth > DEEPEST then
        return nil
    end
    local kind, number = (first - size) / 32, width == 0 and size or 0
    for i = at + 1, at + width do
        number = number * 256 + (byte(text, i) or 0)
    end
    at = at + 1 + width
    if kind == 2 or kind == 3 then
        return at + number <= #text + 1 and at + number or nil
    end
    local items = kind == 4 and number or kind == 5 and 2 * number or kind == 6 and 1 or 0
    while at and items > 0 do
        at = behind_item(text, at, depth + 1)
        items = items - 1
    end
    return at
end

-- The fields of the envelope that begins there, by their numbers; nothing, if it cannot be read.
local function fields_of(record, at)
    local count = (byte(record, at + #MARK) or 0) - 160
    if sub(record, at, at + #MARK - 1) ~= MARK or count < 0 or count > 23 then
        return nil
    end
    at = at + #MARK + 1
    local fields = {}
    for _ = 1, count do
        local number = byte(record, at)
        local last = number and number < 24 and behind_item(record, at + 1, 0)
        if not last then
            return nil
        end
        fields[number] = sub(record, at, last - 1)
        at = last
    end
    return at == #record + 1 and fields or nil
end

-- A record with the content of another; nothing, if one of them cannot be read.
local function with_content_of(newer, old)
    if #old < 11 then
        return nil
    end
    local last = #front_of(old)
    local own, content = fields_of(old, last + 1), fields_of(newer, #front_of(newer) + 1)
    if not own or not content then
        return nil
    end
    local fields = {}
    for number = 0, 23 do
        fields[#fields + 1] = (CONTENT[number] and content or own)[number]
    end
    return sub(old, 1, last) .. MARK .. char(160 + #fields) .. concat(fields)
end

-- The hash that a message is in, and its whole record.
local function find(of, id)
    local hash = hash_of(of, id)
    local record = call('HGET', hash, id)
    if not record then
        hash = of .. 'messages'
        record = call('HGET', hash, id)
    end
    if record and is_front(record) then
        record = call('HGET', of .. 'bulky', id)
    end
    return hash, record
end

-- The partition gets a record of so many bytes, which are many: as `admit` does, it notes that it ever had one.
local function note_size(to, bytes)
    local size = bytes > LARGE and 2 or 1
    if tonumber(call('HGET', to .. 'state', 'size') or 0) < size then
        call('HSET', to .. 'state', 'size', size)
    end
end

-- Stores another record of a message that is in this hash.
local function replace(to, of, hash, id, old, record)
    if #record > BULKY then
        call('HSET', hash, id, front_of(record))
        call('HSET', of .. 'bulky', id, record)
        note_size(to, #record)
    else
        call('HSET', hash, id, record)
        if #old > BULKY then
            call('HDEL', of .. 'bulky', id)
        end
    end
end

-- Whether a claim that has not ended holds a message, whoever released those that have.
local function is_held_in(to, id)
    local claim = call('HGET', to .. 'leases', id)
    return claim and tonumber(call('ZSCORE', to .. 'claims', claim) or 0) > now
end

-- Does with the message that has the key what the push asked for: R replace, E replace if it is earlier, B go behind what is held. The
-- new one is due at this time, or at once if that is now. Returns whether the new one is to be stored, whether the other was changed
-- instead, how many became ready by that, and when it is due. One that cannot be read is left as it is.
local function compact(to, of, holder, newer, how, due)
    local is_held = is_held_in(to, holder)
    if how == 'B' or is_held then
        return how == 'B' and is_held, false, 0
    end
    local hash, old = find(of, holder)
    local record = old and with_content_of(newer, old)
    local entry = record and holder .. sub(old, 1, 1)
    local is_early = record and how == 'E'
    local note = is_early and call('HGET', to .. 'disabled', holder)
    local due_then = note and string.match(note, '^%d+') or is_early and call('ZSCORE', to .. 'due', entry)
    if not record or is_early and tonumber(due_then or 0) <= due then
        return false, false, 0
    end
    replace(to, of, hash, holder, old, record)
    call('HDEL', to .. 'headers', holder) -- those of a postponement are no longer its
    if not is_early then
        return false, true, 0
    end
    if note then -- it stays disabled
        call('HSET', to .. 'disabled', holder, (string.gsub(note, '^%d+', due > now and string.format('%.0f', due) or '-')))
        return false, true, 0
    end
    if due > now then
        call('ZADD', to .. 'due', due, entry)
        return false, true, 0, due
    end
    call('ZREM', to .. 'due', entry)
    return false, true, line_up(to, holder, flag_of(old), now)
end
