-- Deleting messages.

-- Deletes some of these messages, which are of one window, if they are in its hash.
local function erase_in_window(ids, first, last)
    local window = window_of(ids[first])
    local hash = window_hash(home, window)
    if call('HDEL', hash, unpack(ids, first, last)) > 0 and window ~= '' and call('EXISTS', hash) == 0 then
        call('ZREM', home .. 'windows', window)
    end
end

local function erase(id)
    if call('HDEL', messages, id) == 0 then
        erase_in_window({ id }, 1, 1)
    end
end

local function read_whole(id)
    local record = read(id)
    if record and is_front(record) then
        record = call('HGET', home .. 'bulky', id)
    end
    return record
end

-- A group goes on without this message, which is in front, disabled, or not in it any more. Its next member is offered, as `move_up` says.
-- Returns how many became ready by that.
local function go_on(id, group, offer)
    local head = call('HGET', base .. 'heads', group)
    if is_counted(head) then
        return counted().leave(base, group, id, offer)
    end
    if head ~= id then
        return 0
    end
    local following = move_up(base, group, offer)
    set_head(base, group, following)
    return following and 1 or 0
end

-- A message leaves the partition: its key is free, and its group goes on. Returns how many became ready by it.
local function leave(id, record)
    local flag = flag_of(record)
    if is_keyed(flag) then
        local key = key_of(record)
        if call('HGET', base .. 'keys', key) == id then
            call('HDEL', base .. 'keys', key)
        end
    end
    if not is_grouped(flag) then
        return 0
    end
    return go_on(id, group_of(record))
end

-- Forgets what some messages have: a count, headers, a request for cancellation, since when they stand in line, when they become urgent, a
-- bulky record.
local function forget(ids)
    if call('EXISTS', base .. 'counts', base .. 'headers', base .. 'asked', base .. 'since', base .. 'urgent', home .. 'bulky') > 0 then
        call('HDEL', base .. 'since', unpack(ids))
        call('ZREM', base .. 'urgent', unpack(ids))
        call('HDEL', base .. 'counts', unpack(ids))
        call('HDEL', base .. 'headers', unpack(ids))
        call('SREM', base .. 'asked', unpack(ids))
        call('HDEL', home .. 'bulky', unpack(ids))
    end
end
