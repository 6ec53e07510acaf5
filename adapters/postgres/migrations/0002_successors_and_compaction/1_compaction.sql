-- Compaction: pushes that may change the message that has their deduplication key. They have functions of their own, so that others
-- pay nothing for them.

-- The parts of a stored message's envelope (see core): a mark of four bytes, then a CBOR map of up to 23 entries, which come in the order
-- of their keys: 0 the id, 1 to 3 task, session and headers, 4 to 11 the options, and then the payload. Counted are the entries of each
-- part. Bytes that are something else have no entries.
CREATE FUNCTION envelope_parts(
    p_body bytea, OUT content bytea, OUT content_count integer, OUT options bytea, OUT option_count integer, OUT payload bytea,
    OUT payload_count integer
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_end   CONSTANT integer := octet_length(p_body);
    v_raw   CONSTANT bytea := p_body || '\x000000000000000000'; -- not compressed, and no head of an item reaches beyond it
    v_at    integer := 5;
    v_starts integer[] := ARRAY[0, 0, 0]; -- where content, options and payload begin
    v_counts integer[] := ARRAY[0, 0, 0];
    v_part  integer;
    v_items bigint;
    v_kind  integer;
    v_width integer;
    v_size  bigint;
BEGIN
    content := ''; options := ''; payload := '';
    content_count := 0; option_count := 0; payload_count := 0;
    IF substr(p_body, 1, 4) <> '\xf6415101' THEN
        RETURN;
    END IF;
    LOOP
        IF v_at >= v_end THEN
            RETURN; -- damaged
        END IF;
        v_part := CASE WHEN get_byte(v_raw, v_at) < 1 THEN 0 WHEN get_byte(v_raw, v_at) < 4 THEN 1
            WHEN get_byte(v_raw, v_at) < 12 THEN 2 ELSE 3 END;
        FOR v_begun IN 1..v_part LOOP
            IF v_starts[v_begun] = 0 THEN
                v_starts[v_begun] := v_at;
            END IF;
        END LOOP;
        EXIT WHEN v_part = 3;
        IF v_part > 0 THEN
            v_counts[v_part] := v_counts[v_part] + 1;
        END IF;
        v_at := v_at + 1;
        v_items := 1; -- the entry's value, and what is in it
        WHILE v_items > 0 LOOP
            v_kind := get_byte(v_raw, v_at) >> 5;
            v_size := get_byte(v_raw, v_at) & 31;
            v_at := v_at + 1;
            IF v_size BETWEEN 24 AND 27 THEN
                v_width := 1 << (v_size - 24)::integer;
                v_size := ('x' || lpad(encode(substr(v_raw, v_at + 1, v_width), 'hex'), 16, '0'))::bit(64)::bigint;
                v_at := v_at + v_width;
            END IF;
            v_items := v_items - 1;
            IF v_kind > 1 THEN -- not a number
                IF v_size NOT BETWEEN 0 AND v_end THEN
                    RETURN;
                END IF;
                v_at := v_at + CASE WHEN v_kind IN (2, 3) THEN v_size ELSE 0 END;
                v_items := v_items + CASE v_kind WHEN 4 THEN v_size WHEN 5 THEN v_size * 2 ELSE 0 END;
            END IF;
            IF v_at >= v_end THEN
                RETURN;
            END IF;
        END LOOP;
    END LOOP;
    content := substr(p_body, v_starts[1] + 1, v_starts[2] - v_starts[1]);
    options := substr(p_body, v_starts[2] + 1, v_starts[3] - v_starts[2]);
    payload := substr(p_body, v_starts[3] + 1);
    content_count := v_counts[1];
    option_count := v_counts[2];
    payload_count := (get_byte(v_raw, 4) & 31) - 1 - content_count - option_count;
END $$;

-- What is stored of a message that gets the content of another: its own id and options, the other's task, session, headers and payload.
CREATE FUNCTION replaced_body(p_id uuid, p_old bytea, p_new bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT '\xf6415101'::bytea || set_byte('\xa0', 0, 161 + n.content_count + o.option_count + n.payload_count)
        || '\x0050'::bytea || uuid_send(p_id) || n.content || o.options || n.payload
    FROM envelope_parts(p_old) o, envelope_parts(p_new) n
$$;

-- Stores messages where they find their keys free, or does what they ask for where not: 1 replace, 2 replace if that is earlier,
-- 3 follow what is held. Answers by their numbers which messages are in the way of those that were not stored, and whether they have the
-- new content now; and the groups that the caller has to let advance, those that it left among them. With p_joins_later as in push.
--
-- Nobody is locked out, as all lock in one order: keys, and what waits with them, in the order of the keys; what is held, in the order in
-- which settlements do; groups; and then members that wait behind others. So what is about the last three is left for a second round,
-- which fails with AQ002 where they changed meanwhile. So does the first round, and says which message it is about, where somebody has
-- locked what waits: after a wait for a claim it would have locked what is held. One message alone can wait for anything.
CREATE FUNCTION try_store_over(
    p_now timestamptz, p_parts integer[], p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[], p_grps bytea[], p_dedups bytea[],
    p_bodies bytea[], p_overs smallint[], p_joins_later boolean, p_left_parts integer[], p_left_grps bytea[]
) RETURNS TABLE (known uuid[], replaced boolean[], parts integer[], grps bytea[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_pos   CONSTANT bigint := place_at(p_now);
    v_is_alone CONSTANT boolean := cardinality(p_ids) = 1 AND p_left_grps IS NULL;
    -- In a transaction of the application's no group is locked, or all who let it go on would wait.
    v_may_replace_members boolean := v_is_alone OR p_joins_later;
    v_is_taken_over boolean;
    v_held_parts integer[] := '{}';
    v_held  uuid[] := '{}';
    v_left  bigint[];
    v_later bigint[];
    v_later_key bytea;
    g record;
    h record;
BEGIN
    known := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
    replaced := array_fill(false, ARRAY[cardinality(p_ids)]);
    parts := p_left_parts;
    grps := p_left_grps;
    LOOP
        FOR g IN
            SELECT a.*, p_now + milliseconds(coalesce(a.delay_ms, 0)) AS due
            FROM unnest(p_parts, p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies, p_overs) WITH ORDINALITY
                AS a(part, id, lane, delay_ms, grp, dedup, body, over, n)
            WHERE v_left IS NULL OR a.n = ANY (v_left)
            ORDER BY a.dedup, a.part, a.n -- keys in one order for all, as in push
        LOOP
            v_is_taken_over := false;
            LOOP
                IF g.dedup = v_later_key THEN -- not before the one that is left for later
                    v_later := v_later || g.n;
                    EXIT;
                END IF;
                IF v_left IS NULL OR v_is_taken_over THEN
                    INSERT INTO message (id, part, lane, pos, state, due, grp, dedup, pushed_at, body)
                    VALUES (g.id, g.part, g.lane, v_pos + g.n, CASE WHEN g.due > p_now THEN 2 WHEN g.grp IS NOT NULL THEN 3 ELSE 0 END,
                        CASE WHEN g.due > p_now OR p_joins_later AND g.grp IS NOT NULL THEN g.due END, g.grp, g.dedup, p_now, g.body)
                    ON CONFLICT DO NOTHING;
                    IF FOUND THEN
                        IF g.grp IS NOT NULL AND g.due <= p_now THEN
                            parts := parts || g.part;
                            grps := grps || g.grp;
                        END IF;
                        EXIT;
                    END IF;
                END IF;
                IF EXISTS (SELECT FROM message m WHERE m.part = g.part AND m.id = g.id) THEN
                    known[g.n] := g.id;
                    EXIT;
                END IF;
                SELECT m.id, m.grp, m.state, m.due, coalesce(m.until > clock_timestamp(), false) AS is_held INTO h
                FROM message m WHERE m.part = g.part AND m.dedup = g.dedup;
                IF v_left IS NOT NULL AND (h.id = ANY (p_ids) OR h.id = ANY (v_held) OR h.state = 3 AND h.grp = ANY (grps)) IS NOT TRUE THEN
                    RAISE 'locks would be out of order' USING ERRCODE = 'AQ002';
                END IF;
                CONTINUE WHEN h.id IS NULL; -- the key was freed meanwhile
                IF g.over = 3 AND h.is_held THEN
                    IF v_left IS NULL AND NOT v_is_alone THEN
                        v_later := v_later || g.n;
                        v_later_key := g.dedup;
                        v_held_parts := v_held_parts || g.part;
                        v_held := v_held || h.id;
                        EXIT;
                    END IF;
                    UPDATE message m SET dedup = NULL
                    WHERE m.part = g.part AND m.id = h.id AND m.dedup = g.dedup AND m.until > clock_timestamp();
                    v_is_taken_over := FOUND;
                    CONTINUE;
                END IF;
                IF NOT h.is_held AND (g.over = 1 OR g.over = 2 AND h.state = 2 AND h.due > g.due) THEN
                    IF h.state = 3 AND NOT v_may_replace_members THEN
                        v_later := v_later || g.n;
                        v_later_key := g.dedup;
                        parts := parts || g.part;
                        grps := grps || h.grp;
                        EXIT;
                    END IF;
                    IF NOT v_is_alone THEN
                        PERFORM FROM message m
                        WHERE m.part = g.part AND m.id = h.id AND coalesce(m.until <= clock_timestamp(), true)
                            AND (m.state <> 3 OR v_may_replace_members)
                        FOR UPDATE SKIP LOCKED;
                        IF NOT FOUND THEN
                            RAISE 'a message is locked, or in another state by now' USING ERRCODE = 'AQ002', DETAIL = h.id;
                        END IF;
                    END IF;
                    -- Due at once is due all the same: the next pull makes it ready.
                    UPDATE message m SET
                        body = replaced_body(m.id, m.body, g.body), headers = NULL, due = CASE WHEN g.over = 2 THEN g.due ELSE m.due END
                    WHERE m.part = g.part AND m.id = h.id AND m.dedup = g.dedup AND coalesce(m.until <= clock_timestamp(), true)
                        AND (m.state <> 3 OR v_may_replace_members) AND (g.over = 1 OR m.state = 2 AND m.due > g.due);
                    CONTINUE WHEN NOT FOUND; -- somebody was faster
                    replaced[g.n] := true;
                END IF;
                known[g.n] := h.id;
                EXIT;
            END LOOP;
        END LOOP;
        EXIT WHEN v_later IS NULL;
        PERFORM FROM (
            SELECT FROM unnest(v_held_parts, v_held) AS a(part, id) JOIN message m ON m.part = a.part AND m.id = a.id
            ORDER BY m.id FOR UPDATE OF m
        ) l;
        IF NOT p_joins_later THEN
            PERFORM lock_groups(parts, grps);
        END IF;
        v_may_replace_members := true;
        v_left := v_later;
        v_later := NULL;
        v_later_key := NULL;
    END LOOP;
    RETURN NEXT;
END $$;

-- The same, again and again until it succeeds. A failure gives back its locks, and what it was about is waited for without any.
CREATE FUNCTION store_over(
    p_now timestamptz, p_parts integer[], p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[], p_grps bytea[], p_dedups bytea[],
    p_bodies bytea[], p_overs smallint[], p_joins_later boolean, p_left_parts integer[], p_left_grps bytea[]
) RETURNS TABLE (known uuid[], replaced boolean[], parts integer[], grps bytea[]) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    v_locked text := '';
BEGIN
    LOOP
        BEGIN
            IF v_locked <> '' THEN
                PERFORM FROM unnest(p_parts) AS a(part) JOIN message m ON m.part = a.part AND m.id = v_locked::uuid FOR UPDATE OF m;
                RAISE 'waited for' USING ERRCODE = 'AQ002';
            END IF;
            RETURN QUERY SELECT o.* FROM try_store_over(
                p_now, p_parts, p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies, p_overs, p_joins_later,
                p_left_parts, p_left_grps) o;
            RETURN;
        EXCEPTION WHEN SQLSTATE 'AQ002' THEN
            GET STACKED DIAGNOSTICS v_locked = PG_EXCEPTION_DETAIL;
        END;
    END LOOP;
END $$;

-- As push, for messages that may ask for more than to be left out where their key is taken. Answers also which were not stored because
-- another has their content now.
CREATE FUNCTION push_over(
    p_name text, p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[], p_grps bytea[], p_dedups bytea[], p_bodies bytea[],
    p_overs smallint[], p_joins_later boolean
) RETURNS TABLE (number integer, known uuid, is_replaced boolean) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    v_parts CONSTANT integer[] := array_fill(part_for(p_name, false), ARRAY[cardinality(p_ids)]);
    s record;
BEGIN
    SELECT * INTO s FROM store_over(
        clock_timestamp(), v_parts, p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies, p_overs, p_joins_later, NULL, NULL);
    IF s.grps IS NOT NULL AND NOT p_joins_later THEN
        PERFORM advance(s.parts, s.grps);
    END IF;
    RETURN QUERY SELECT o.n::integer, o.known, o.replaced
    FROM unnest(s.known, s.replaced) WITH ORDINALITY AS o(known, replaced, n) WHERE o.known IS NOT NULL ORDER BY o.n;
END $$;
