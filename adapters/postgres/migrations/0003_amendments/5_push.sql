-- The functions that store messages, with when these become urgent.

DROP FUNCTION push;
DROP FUNCTION push_over;
DROP FUNCTION store_over;
DROP FUNCTION try_store_over;
DROP FUNCTION store_successors;

-- Stores messages, in order. Answers only those that were not stored, by their number from 1, with the message that is in
-- their way, where that is still known. Arrays of what no message has are empty. With p_joins_later, in a transaction that may stay
-- open for long or sees an old state of things, it neither locks nor looks at groups: whoever pulls after the commit does.
CREATE FUNCTION push(
    p_name text, p_dead boolean, p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[],
    p_grps bytea[], p_dedups bytea[], p_bodies bytea[], p_joins_later boolean DEFAULT false,
    p_urgents_ms bigint[] DEFAULT '{}'
) RETURNS TABLE (number integer, known uuid) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp(); -- not now(): the caller's transaction may have begun long ago
    v_pos    bigint := place_at(v_now);
    v_part   integer := part_for(p_name, p_dead);
    v_stored integer;
BEGIN
    INSERT INTO message (id, part, lane, pos, state, due, grp, dedup, pushed_at, urgent, body)
    SELECT g.id, v_part, g.lane + first_lane(p_dead), v_pos + g.n,
        CASE WHEN g.delay_ms > 0 THEN 2 WHEN g.grp IS NOT NULL AND NOT p_dead THEN 3 ELSE 0 END,
        CASE WHEN g.delay_ms > 0 THEN v_now + milliseconds(g.delay_ms)
             WHEN g.grp IS NULL OR p_dead THEN v_now + milliseconds(g.urgent_ms)
             WHEN p_joins_later THEN v_now END,
        g.grp, CASE WHEN NOT p_dead THEN g.dedup END, v_now, v_now + milliseconds(g.urgent_ms), g.body
    FROM unnest(p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies, p_urgents_ms) WITH ORDINALITY
        AS g(id, lane, delay_ms, grp, dedup, body, urgent_ms, n)
    ORDER BY g.dedup, g.n -- keys in one order for all, so that no two calls wait for each other
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_stored = ROW_COUNT;

    IF cardinality(p_grps) > 0 AND NOT p_dead AND NOT p_joins_later THEN
        PERFORM advance(array_agg(v_part), array_agg(g)) FROM unnest(p_grps) AS g WHERE g IS NOT NULL;
    END IF;
    IF v_stored < cardinality(p_ids) THEN
        RETURN QUERY
        SELECT g.n::integer, coalesce(
            (SELECT m.id FROM message m WHERE m.part = v_part AND m.id = g.id),
            (SELECT m.id FROM message m WHERE m.part = v_part AND m.dedup = g.dedup))
        FROM unnest(p_ids, p_dedups) WITH ORDINALITY AS g(id, dedup, n)
        WHERE NOT EXISTS (SELECT FROM message m WHERE m.part = v_part AND m.id = g.id AND m.pos = v_pos + g.n);
    END IF;
END $$;

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
    p_bodies bytea[], p_overs smallint[], p_joins_later boolean, p_left_parts integer[], p_left_grps bytea[], p_urgents_ms bigint[]
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
            SELECT a.*, p_now + milliseconds(coalesce(a.delay_ms, 0)) AS due, p_now + milliseconds(a.urgent_ms) AS urgent
            FROM unnest(p_parts, p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies, p_overs, p_urgents_ms) WITH ORDINALITY
                AS a(part, id, lane, delay_ms, grp, dedup, body, over, urgent_ms, n)
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
                    INSERT INTO message (id, part, lane, pos, state, due, grp, dedup, pushed_at, urgent, body)
                    VALUES (g.id, g.part, g.lane, v_pos + g.n, CASE WHEN g.due > p_now THEN 2 WHEN g.grp IS NOT NULL THEN 3 ELSE 0 END,
                        CASE WHEN g.due > p_now OR p_joins_later AND g.grp IS NOT NULL THEN g.due WHEN g.grp IS NULL THEN g.urgent END,
                        g.grp, g.dedup, p_now, g.urgent, g.body)
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
                SELECT m.id, m.grp, m.state, CASE WHEN m.due = 'infinity' THEN m.due_then ELSE m.due END AS due,
                    coalesce(m.until > clock_timestamp(), false) AS is_held
                INTO h
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
                    -- Due at once is due all the same: the next pull makes it ready. What is set aside stays so.
                    UPDATE message m SET
                        body = replaced_body(m.id, m.body, g.body), headers = NULL,
                        due = CASE WHEN g.over = 2 AND m.due < 'infinity' THEN g.due ELSE m.due END,
                        due_then = CASE WHEN g.over = 2 AND m.due = 'infinity' AND g.due > p_now THEN g.due
                            WHEN g.over <> 2 THEN m.due_then END
                    WHERE m.part = g.part AND m.id = h.id AND m.dedup = g.dedup AND coalesce(m.until <= clock_timestamp(), true)
                        AND (m.state <> 3 OR v_may_replace_members) AND (g.over = 1 OR m.state = 2 AND (CASE WHEN m.due = 'infinity' THEN m.due_then ELSE m.due END) > g.due);
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
    p_bodies bytea[], p_overs smallint[], p_joins_later boolean, p_left_parts integer[], p_left_grps bytea[], p_urgents_ms bigint[]
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
                p_left_parts, p_left_grps, p_urgents_ms) o;
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
    p_overs smallint[], p_joins_later boolean, p_urgents_ms bigint[] DEFAULT '{}'
) RETURNS TABLE (number integer, known uuid, is_replaced boolean) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    v_parts CONSTANT integer[] := array_fill(part_for(p_name, false), ARRAY[cardinality(p_ids)]);
    s record;
BEGIN
    SELECT * INTO s FROM store_over(
        clock_timestamp(), v_parts, p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies, p_overs, p_joins_later, NULL, NULL,
        p_urgents_ms);
    IF s.grps IS NOT NULL AND NOT p_joins_later THEN
        PERFORM advance(s.parts, s.grps);
    END IF;
    RETURN QUERY SELECT o.n::integer, o.known, o.replaced
    FROM unnest(s.known, s.replaced) WITH ORDINALITY AS o(known, replaced, n) WHERE o.known IS NOT NULL ORDER BY o.n;
END $$;
