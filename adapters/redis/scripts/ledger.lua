-- The ends of tasks. All of it is made when it is needed first: no other call pays for it.
--
-- `ended` has them by id: when each ended and when it lapses (6 bytes each, in milliseconds since 1970; the second is all ones if it is
-- kept until it is deleted), its rank (8 bytes), its state, which is 16 more if it has a result, and what clients read. The results are in
-- `ended:results`. For each state there is a sorted set, `ended:1` to `ended:4`, of moments and ids, one behind the other. All have the same
-- score, so the server keeps them in the order of lists. `ended:lapsing` has what lapses, by when: the ids that one call stored for the
-- same time, one behind the other, which costs much less than each by itself. Those whose ends were replaced or deleted stay in it: who
-- frees asks their records, which know when they lapse.
--
-- `series:` and a minute since 1970 has the counts of ends of that minute, which the server lets go when their time is over. Each counter is three
-- fields, each of a letter, the counter's name, and the kind of task: `n` how many, `r` and `w` how long they ran and waited in all, in
-- microseconds. The name is the state and the buckets of both times, a byte each. Once there are too many in a minute, ends of all kinds are counted as if they
-- had none. `series` has the minutes, each with itself as its score.

local made_ledger

local function ledger()
    if made_ledger then
        return made_ledger
    end
    -- What stands before that which clients read.
    local FRONT = 21
    -- For how many minutes counts are kept. Clients know it too.
    local SERIES_KEPT = 8 * 24 * 60
    -- From so many fields on the ends of a minute are counted without their kinds, which may be as many as tasks.
    local MOST_FIELDS = 6000
    -- Sums up to this are exact here.
    local MOST_EXACT = 4000000000000000
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

    -- Removes ends by id. Returns their records.
    local function free(ids)
        local records = call('HMGET', ended, unpack(ids))
        remove_ends(ids, records)
        if call('EXISTS', ended) == 0 then
            call('UNLINK', lapsing) -- what is in it is there for nothing
        end
        note_next()
        return records
    end

    -- Looks at some of what has lapsed, and removes those of them that are still there. Returns how many.
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

    -- Frees some of what has lapsed: looks at so many. Returns how many were freed, and how many were looked at.
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

    local minute = math.floor(now_ms / 60000)
    local series, this_series = base .. 'series', base .. 'series:' .. minute
    local has_room -- for further kinds in this minute

    -- What is to be counted of as many ends: of each the name of its counter (3 bytes), its generation (2 bytes), how long it ran and waited (6 bytes each),
    -- and its kind behind a length of 2 bytes.
    local function read_counts(text, many)
        local counts, at = {}, 1
        for i = 1, many do
            local generation, ran, waited, length = struct.unpack('>I2I6I6I2', text, at + 3)
            counts[i] = {
                cell = sub(text, at, at + 2) .. sub(text, at + 19, at + 18 + length), generation = generation, ran = ran, waited = waited,
            }
            at = at + 19 + length
        end
        return counts
    end

    -- Counts these.
    local function count(counts)
        if #counts == 0 then
            return
        end
        local sums = {}
        local function add(field, number)
            local sum = (sums[field] or 0) + number
            if sum > MOST_EXACT then
                call('HINCRBY', this_series, field, string.format('%.0f', sum))
                sum = 0
            end
            sums[field] = sum
        end
        for _, one in ipairs(counts) do
            local cell = has_room and one.cell or sub(one.cell, 1, 3)
            add('n' .. cell, 1)
            add('r' .. cell, one.ran)
            add('w' .. cell, one.waited)
        end
        for field, sum in pairs(sums) do
            call('HINCRBY', this_series, field, string.format('%.0f', sum))
        end
        if call('ZADD', series, minute, minute) == 1 then
            call('ZREMRANGEBYSCORE', series, '-inf', minute - SERIES_KEPT - 2)
            -- Two more, so that who asks for all of the time gets all of it.
            call('EXPIREAT', this_series, (minute + SERIES_KEPT + 2) * 60)
            call('EXPIREAT', series, (minute + SERIES_KEPT + 2) * 60)
        end
    end

    -- Reads the ends in ARGV from there: of all of them a number (2 bytes) and an id, then what is to be counted of them, then of each how long it is kept (6
    -- bytes, in milliseconds), and what `ended` has behind that; and its result, if it has one. One that is empty is only counted. Also
    -- those that they take the place of. Fails before anything is changed where the keys are somebody else's.
    local function look(at)
        local heads, counts = ARGV[at], read_counts(ARGV[at + 1], #ARGV[at] / 18)
        local ids, owners, sent, brought, are_stored = {}, {}, {}, {}, true
        at = at + 1
        for from = 1, #heads, 18 do
            local i = #ids + 1
            owners[i], ids[i] = byte(heads, from) * 256 + byte(heads, from + 1), sub(heads, from + 2, from + 17)
            at = at + 1
            sent[i] = ARGV[at]
            if sent[i] == '' then
                are_stored = false
            elseif byte(sent[i], FRONT - 6) >= 16 then
                at = at + 1
                brought[i] = ARGV[at]
            end
        end
        has_room = call('HLEN', this_series) < MOST_FIELDS
        call('ZCARD', series)
        for state = 1, 4 do
            call('ZCARD', listed(state))
        end
        call('ZCARD', lapsing)
        call('HGET', results, '')
        if is_list_here then
            call('ZCARD', root .. 'ended')
        end
        local formers = #ids > 0 and call('HMGET', ended, unpack(ids)) or {}
        return {
            ids = ids, owners = owners, sent = sent, results = brought, formers = formers, counts = counts, are_stored = are_stored, last = at,
        }
    end

    -- Counts those that `look` read which `is_wanted`, by their numbers among them.
    local function count_some(all, is_wanted)
        local some = {}
        for i, one in ipairs(all.counts) do
            if is_wanted(i) then
                some[#some + 1] = one
            end
        end
        count(some)
    end

    -- Of what `look` returned that which is to be stored and `is_wanted`, by its number among them.
    local function select_some(all, is_wanted)
        local some = { ids = {}, sent = {}, results = {}, formers = {} }
        for i, id in ipairs(all.ids) do
            if all.sent[i] ~= '' and is_wanted(i) then
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

    -- Stores and counts those ends that `look` read whose deliveries ended, as these letters say of each.
    local function keep(all, answers, letter)
        if all.are_stored and answers == string.rep(letter, #answers) then
            store(all)
            count(all.counts)
            return
        end
        local function has_ended(i)
            return sub(answers, all.owners[i], all.owners[i]) == letter
        end
        store(select_some(all, has_ended))
        count_some(all, has_ended)
    end

    made_ledger = {
        ended = ended, results = results, lapsing = lapsing, listed = listed, now_ms = now_ms, is_kept = is_kept, free = free, purge = purge,
        look = look, select_some = select_some, store = store, keep = keep, count_some = count_some, series = series,
    }
    return made_ledger
end
