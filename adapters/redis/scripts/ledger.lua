-- The ends of tasks. All of it is made when it is needed first: no other call pays for it.
--
-- `ended` has them by id: when each ended and when it lapses (6 bytes each, in milliseconds since 1970; the second is all ones if it is
-- kept until it is deleted), its rank (8 bytes), its state, which is 16 more if it has a result, and what clients read. The results are in
-- `ended:results`. For each state there is a sorted set, `ended:1` to `ended:4`, of moments and ids, one behind the other. All have the same
-- score, so the server keeps them in the order of lists. `ended:lapsing` has what lapses, by when: the ids that one call stored for the
-- same time, one behind the other, which costs much less than each by itself. Those whose ends were replaced or deleted stay in it: who
-- frees asks their records, which know when they lapse.

local made_ledger

local function ledger()
    if made_ledger then
        return made_ledger
    end
    -- What stands before that which clients read.
    local FRONT = 21
    -- When what is kept until it is deleted lapses.
    local NEVER = 281474976710655
    local ended, results, lapsing = base .. 'ended', base .. 'ended:results', base .. 'ended:lapsing'
    local now_ms, is_list_here = math.floor(now / 1000), sub(KEYS[2], -11) == ':partitions'

    local function listed(state)
        return ended .. ':' .. state
    end

    local function is_kept(record)
        return #record < FRONT or struct.unpack('>I6', record, 7) > now_ms
    end

    -- The list of this name, which is made when it is needed first.
    local function named(lists, name)
        local list = lists[name]
        if not list then
            list = {}
            lists[name] = list
        end
        return list
    end

    local function take_off_lists(ids, records)
        local members = {}
        for i, id in ipairs(ids) do
            local record = records[i]
            if record and #record >= FRONT then
                local list = named(members, byte(record, FRONT) % 16)
                list[#list + 1] = sub(record, 1, 6) .. id
            end
        end
        for state, some in pairs(members) do
            call('ZREM', listed(state), unpack(some))
        end
    end

    -- Says in the list of partitions with ends when the next one lapses here, or takes this one off. In a cluster the list may be elsewhere,
    -- and clients keep it.
    local function note_next()
        if not is_list_here then
            return
        end
        local name, first = string.match(base, '{(.*)}'), call('ZRANGE', lapsing, 0, 0, 'WITHSCORES')[2]
        if first then
            call('ZADD', root .. 'ended', first, name)
        else
            call('ZREM', root .. 'ended', name)
        end
    end

    -- Removes these ends, whose records are known.
    local function remove_ends(ids, records)
        take_off_lists(ids, records)
        call('HDEL', ended, unpack(ids))
        call('HDEL', results, unpack(ids))
    end

    -- Removes ends by id. Answers their records.
    local function free(ids)
        local records = call('HMGET', ended, unpack(ids))
        remove_ends(ids, records)
        if call('EXISTS', ended) == 0 then
            call('UNLINK', lapsing) -- what is in it is there for nothing
        end
        note_next()
        return records
    end

    -- Looks at some of what has lapsed, and removes those of them that are still there. Answers how many.
    local function free_lapsed(ids)
        local gone, their_records = {}, {}
        for i, record in ipairs(call('HMGET', ended, unpack(ids))) do
            if record and not is_kept(record) then
                local n = #gone + 1
                gone[n], their_records[n] = ids[i], record
            end
        end
        if #gone > 0 then
            remove_ends(gone, their_records)
        end
        return #gone
    end

    -- Frees some of what has lapsed: looks at so many. Answers how many were freed, and how many were looked at.
    local function purge(most)
        local ids = {}
        while #ids < most do
            local first = call('ZRANGEBYSCORE', lapsing, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 1)
            local some, at = first[1], first[2]
            if not some then
                break
            end
            local last = math.min(#some, 16 * (most - #ids))
            for from = 1, last, 16 do
                ids[#ids + 1] = sub(some, from, from + 15)
            end
            call('ZREM', lapsing, some)
            if last < #some then -- NX: if just these are there already, their ends were stored anew
                call('ZADD', lapsing, 'NX', at, sub(some, last + 1))
            end
        end
        local count = #ids > 0 and free_lapsed(ids) or 0
        if call('EXISTS', ended) == 0 then
            call('UNLINK', lapsing)
        end
        note_next()
        return count, #ids
    end

    -- Reads the ends in ARGV from there: of all of them a number (2 bytes) and an id, then of each how long it is kept (6 bytes, in
    -- milliseconds), and what `ended` has behind that; and its result, if it has one. Also those that they take the place of. Fails before
    -- anything is changed where the keys are somebody else's.
    local function look(at)
        local heads = ARGV[at]
        local ids, owners, sent, brought = {}, {}, {}, {}
        for from = 1, #heads, 18 do
            local i = #ids + 1
            owners[i], ids[i] = byte(heads, from) * 256 + byte(heads, from + 1), sub(heads, from + 2, from + 17)
            at = at + 1
            sent[i] = ARGV[at]
            if byte(sent[i], FRONT - 6) >= 16 then
                at = at + 1
                brought[i] = ARGV[at]
            end
        end
        for state = 1, 4 do
            call('ZCARD', listed(state))
        end
        call('ZCARD', lapsing)
        call('HGET', results, '')
        if is_list_here then
            call('ZCARD', root .. 'ended')
        end
        local formers = #ids > 0 and call('HMGET', ended, unpack(ids)) or {}
        return { ids = ids, owners = owners, sent = sent, results = brought, formers = formers, last = at }
    end

    -- Of what `look` answered that which `is_wanted`, by its number among them.
    local function select_some(all, is_wanted)
        local some = { ids = {}, sent = {}, results = {}, formers = {} }
        for i, id in ipairs(all.ids) do
            if is_wanted(i) then
                local n = #some.ids + 1
                some.ids[n], some.sent[n], some.results[n], some.formers[n] = id, all.sent[i], all.results[i], all.formers[i]
            end
        end
        return some
    end

    -- Writes what is one argument behind the other.
    local function write(command, key, list)
        if #list > 0 then
            call(command, key, unpack(list))
        end
    end

    -- Stores ends in the place of former ones.
    local function store(some)
        if #some.ids == 0 then
            return
        end
        local moment, records, members = struct.pack('>I6', now_ms), {}, {}
        local lapsing_at, brought, without = {}, {}, {}
        local last_keep, lapses, packed
        for i, id in ipairs(some.ids) do
            local sent, former = some.sent[i], some.formers[i]
            local keep, flag = struct.unpack('>I6', sent), byte(sent, FRONT - 6)
            if keep ~= last_keep then
                last_keep, lapses = keep, keep < NEVER and now_ms + keep or NEVER
                packed = moment .. struct.pack('>I6', lapses)
            end
            records[2 * i - 1], records[2 * i] = id, packed .. sub(sent, 7)
            local list = named(members, flag % 16)
            local n = #list
            list[n + 1], list[n + 2] = 0, moment .. id
            if lapses < NEVER then
                list = named(lapsing_at, lapses)
                list[#list + 1] = id
            end
            if flag >= 16 then
                n = #brought
                brought[n + 1], brought[n + 2] = id, some.results[i]
            elseif former then
                without[#without + 1] = id
            end
        end
        take_off_lists(some.ids, some.formers)
        call('HSET', ended, unpack(records))
        for state, list in pairs(members) do
            call('ZADD', listed(state), unpack(list))
        end
        write('HDEL', results, without)
        write('HSET', results, brought)
        for at, list in pairs(lapsing_at) do
            call('ZADD', lapsing, at, concat(list))
        end
        note_next()
    end

    -- Stores those ends that `look` read whose deliveries ended, as these letters say of each.
    local function keep(all, answers, letter)
        if answers == string.rep(letter, #answers) then
            store(all)
            return
        end
        store(select_some(all, function(i)
            return sub(answers, all.owners[i], all.owners[i]) == letter
        end))
    end

    made_ledger = {
        ended = ended, results = results, lapsing = lapsing, listed = listed, now_ms = now_ms, is_kept = is_kept, free = free, purge = purge,
        look = look, select_some = select_some, store = store, keep = keep,
    }
    return made_ledger
end
