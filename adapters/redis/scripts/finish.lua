-- Ending leases.

-- Deletes messages. Those of one window follow one another, and `runs` are the numbers of the last ones.
local function erase_all(ids, runs)
    if call('EXISTS', messages) == 1 and call('HDEL', messages, unpack(ids)) == #ids then
        return
    end
    local first = 1
    for _, last in ipairs(runs) do
        if last >= first then
            erase_in_window(ids, first, last)
        end
        first = last + 1
    end
end

-- What `remove` is told: ids, and of each run of one token and window the token and the number of its last id.
local function parse(proofs)
    local ids, count, tokens, runs, at = {}, 0, {}, {}, 1
    while at < #proofs do
        local last = at + 17 + 16 * (byte(proofs, at + 16) * 256 + byte(proofs, at + 17))
        for from = at + 18, last, 16 do
            count = count + 1
            ids[count] = sub(proofs, from, from + 15)
        end
        tokens[#tokens + 1], runs[#runs + 1] = sub(proofs, at, at + 15), count
        at = last + 1
    end
    return ids, tokens, runs
end

-- Whether each of these is held by the very claim that its token names, as it is unless it was extended or lost. Returns how many of
-- each claim they are too.
local function all_held(held, tokens, runs)
    local ended, i = {}, 1
    for n, last in ipairs(runs) do
        local token = tokens[n]
        if not is_alive(token) then
            return false
        end
        ended[token] = (ended[token] or 0) + last - i + 1
        for at = i, last do
            if held[at] ~= token then
                return false
            end
        end
        i = last + 1
    end
    return true, ended
end

-- Those that are held, the last of them in each run, how many of each claim they are, and a digit for each message.
local function some_held(ids, held, tokens, runs)
    local gone, last_gone, ended, answers, i = {}, {}, {}, {}, 1
    for n, last in ipairs(runs) do
        while i <= last do
            local claim = held[i]
            if is_held(claim, tokens[n]) then
                gone[#gone + 1] = ids[i]
                ended[claim] = (ended[claim] or 0) + 1
                answers[i] = '1'
            else
                answers[i] = '0'
            end
            i = i + 1
        end
        last_gone[n] = #gone
    end
    return gone, last_gone, ended, concat(answers)
end

-- Removes messages that have neither group nor key: for each token of 16 bytes and window, how many (2 bytes), and their ids.
local function remove(proofs)
    local ids, tokens, runs = parse(proofs)
    if #ids == 0 then
        return ''
    end
    local held = call('HMGET', base .. 'leases', unpack(ids))
    local are_all, ended = all_held(held, tokens, runs)
    local gone, answers = ids, nil
    if not are_all then
        gone, runs, ended, answers = some_held(ids, held, tokens, runs)
    end
    if #gone > 0 then
        call('HDEL', base .. 'leases', unpack(gone))
        erase_all(gone, runs)
        forget(gone)
        for claim, count in pairs(ended) do
            drop(claim, count)
        end
    end
    return answers or string.rep('1', #ids)
end

-- Puts a message whose lease was ended into another partition, or anew into this one. Returns how many became ready here.
local function move(id, record, to, headers)
    local advanced = leave(id, record)
    if headers == '' then
        headers = call('HGET', base .. 'headers', id) or ''
    end
    forget({ id })
    erase(id)
    land(root .. '{' .. sub(to, 3) .. '}:' .. (sub(to, 1, 1) == 'd' and 'dead:' or ''), id, record, headers)
    return advanced
end

-- Does one thing with a message whose lease was ended. Returns how many became ready here, and when this one does; or nothing, if
-- there is no record to do it with.
local function act(action, id, flag, value, headers)
    if action == 'R' or action == 'F' then
        if action == 'F' then
            call('HINCRBY', base .. 'counts', id, 1)
        end
        return come_back(id, flag)
    end
    if action == 'P' then
        note_return(id)
        if headers ~= '' then
            call('HSET', base .. 'headers', id, headers)
        end
        local delay = tonumber(value)
        if delay == 0 then
            return line_up(base, id, flag, now)
        end
        call('ZADD', base .. 'due', now + delay, id .. char(flag))
        return 0, now + delay
    end
    local record
    if action == 'M' then
        record = read_whole(id)
    else
        record = read(id)
    end
    if not record then
        put_aside(base, id, level_of(flag))
        return nil
    end
    if action == 'M' then
        return move(id, record, value, headers)
    end
    erase(id)
    forget({ id })
    return leave(id, record)
end

-- Settles: ARGV[1] is for `remove`, ARGV[2] says how many others follow, each an action, a proof (id, token, flag), a value and
-- headers. If it is less than 0 it is 1 more of them, and behind these are ends to keep, as `look` says, with the numbers of their
-- deliveries. Returns a digit for each, 1 where the lease held, and which argument comes next.
local function finish()
    local others, ended = tonumber(ARGV[2]), nil
    if others < 0 then
        others = -1 - others
        ended = ledger().look(3 + 4 * others)
    end
    local answers, ready, due = { remove(ARGV[1]) }, 0, nil
    local last = 2 + 4 * others
    if last > 2 then
        promote(base) -- what is due by now stands before what is postponed
    end
    for at = 3, last, 4 do
        local proof = ARGV[at + 1]
        local id, flag = sub(proof, 1, 16), byte(proof, 33)
        local claim = call('HGET', base .. 'leases', id)
        if is_held(claim, sub(proof, 17, 32)) then
            call('HDEL', base .. 'leases', id)
            drop(claim, 1)
            local more, at_time = act(ARGV[at], id, flag, ARGV[at + 2], ARGV[at + 3])
            ready = ready + (more or 0)
            due = at_time and math.min(due or at_time, at_time) or due
            answers[#answers + 1] = more and '1' or '0'
        else
            answers[#answers + 1] = '0'
        end
    end
    if ready > 0 or due then
        tell(base, ready, due)
    end
    answers = concat(answers)
    if ended then
        ledger().keep(ended, answers, '1')
        last = ended.last
    end
    return answers, last + 1
end
