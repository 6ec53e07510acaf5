-- Amends messages that nobody holds. ARGV: a name of this call, if it may come twice; the new level, how long until they are due, the group
-- to join behind a +, or a -, and whether they are disabled, each an empty text if it stays as it is; and ids.
-- Returns a letter for each: a amended, l leased, d dead, n not there, u not readable; fewer if those were many bytes.

-- What one call may write before it is cut short.
local MOST_BYTES = 4 * 1024 * 1024
-- So long it is remembered what a call did that may come twice, in seconds.
local REMEMBERED_S = 300

local done = base .. 'done:' .. ARGV[1]
local answers = ARGV[1] ~= '' and call('GET', done)
if answers then
    return answers
end
local level, delay, regroup, disabled = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] ~= '', ARGV[5]
local group = sub(ARGV[4], 1, 1) == '+' and sub(ARGV[4], 2)
local ready, due, buried, bytes = 0, nil, {}, 0
answers = {}

-- A text as a CBOR item.
local function text_item(text)
    if #text < 24 then
        return char(96 + #text) .. text
    end
    return (#text < 256 and char(120, #text) or char(121) .. struct.pack('>I2', #text)) .. text
end

local function with_length(text)
    return struct.pack('>I2', #text) .. text
end

-- A record with the new level and group; nothing, if it cannot be read.
local function with_changes(record)
    if #record < 11 then
        return nil
    end
    local fields = fields_of(record, #front_of(record) + 1)
    if not fields then
        return nil
    end
    local flag, key = flag_of(record), is_keyed(flag_of(record)) and with_length(key_of(record)) or ''
    local name = is_grouped(flag) and group_of(record)
    if level then
        flag, fields[4] = flag - level_of(flag) + level, level > 0 and char(4, level) or nil
    end
    if regroup then
        flag, fields[5] = flag - (name and 16 or 0) + (group and 16 or 0), group and char(5) .. text_item(group) or nil
        name = group
    end
    local all = {}
    for number = 0, 23 do
        all[#all + 1] = fields[number]
    end
    return char(flag) .. sub(record, 2, 10) .. (name and with_length(name) or '') .. key .. MARK .. char(160 + #all) .. concat(all)
end

-- What the change makes of where a message of this group, if any, stood in it.
local function regroup_or_disable(id, stood, old_group)
    local offer, is_regrouped, was_disabled = standing().offer, regroup and old_group ~= group, stood.is_disabled
    if disabled ~= '' then
        stood.is_disabled = disabled == '1'
    end
    if old_group and (is_regrouped or was_disabled and not stood.is_disabled) then
        ready = ready + go_on(id, old_group, offer)
    end
    local new_group = old_group
    if is_regrouped then
        new_group, stood.joins = group, true
        stood.number = group and stood.is_disabled and next_place(base) or nil
    end
    if new_group and stood.is_disabled then
        local place, more = counted().disable(base, new_group, id, stood.number, offer)
        stood.number, ready = place, ready + more
    end
end

-- What the change makes of where a message of this group, if any, stood.
local function restand(id, stood, old_group, number)
    regroup_or_disable(id, stood, old_group)
    if delay == 0 and stood.due then
        stood.due, stood.joins = nil, true
    elseif delay and delay > 0 then
        stood.due = now + delay + number -- in their order
    end
end

-- Changes a message that nobody holds. Returns its letter.
local function change(id, record, number)
    local hash, whole, new
    if level or regroup then
        hash, whole = find(home, id)
        new = whole and with_changes(whole)
        if not new then
            return 'u'
        end
        bytes = bytes + #new
    end
    mark_amended(base)
    if level and tonumber(call('ZSCORE', base .. 'urgent', id) or now + 1) <= now then
        call('ZREM', base .. 'urgent', id) -- it was lifted before, whether or not somebody looked
    end
    local stood = standing().lift_out(id, record)
    if stood.tomb then
        buried[stood.tomb] = (buried[stood.tomb] or 0) + 2
    end
    restand(id, stood, is_grouped(flag_of(record)) and group_of(record), number)
    if new then
        replace(base, home, hash, id, whole, new)
    end
    local more, at = standing().put(id, new or record, stood)
    ready, due = ready + more, at and math.min(due or at, at) or due
    return 'a'
end

local function amend(id, number)
    local record = read(id)
    if not record then
        return 'n'
    end
    if place_of(record) == 'd' then
        return 'd'
    end
    local claim = call('HGET', base .. 'leases', id)
    if claim and is_alive(claim) then
        return 'l'
    end
    if claim then -- its lease ran out
        call('HDEL', base .. 'leases', id)
        drop(claim, 1)
        call('HINCRBY', base .. 'counts', id, 1)
        ready = ready + come_back(id, flag_of(record))
    end
    return change(id, record, number)
end

promote(base)
for i = 6, #ARGV do
    answers[i - 5] = amend(ARGV[i], i)
    if bytes > MOST_BYTES then
        break
    end
end
answers = concat(answers)
if level and level > tonumber(call('HGET', base .. 'state', 'top') or 9) then
    call('HSET', base .. 'state', 'top', level)
end
for at, most in pairs(buried) do
    bury(at, most)
end
if ARGV[1] ~= '' then
    call('SET', done, answers, 'EX', REMEMBERED_S)
end
if ready > 0 or due then
    tell(base, ready, due)
end
return answers
