-- Successors: messages that are stored in the statement that ends a delivery. Ends that advance groups come in two halves here, since
-- no message may be stored while a group is locked: somebody who stores the same key may be waiting for that group.

-- As remove, but leaves the groups to whoever calls it: answers whose heads are gone.
CREATE FUNCTION remove_only(p_parts integer[], p_ids uuid[], p_tokens uuid[])
RETURNS TABLE (done integer[], parts integer[], grps bytea[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    WITH gone AS (
        DELETE FROM message m USING unnest(p_parts, p_ids, p_tokens) WITH ORDINALITY AS s(part, id, token, n)
        WHERE m.part = s.part AND m.id = s.id AND m.token = s.token AND m.until > v_now
        RETURNING s.n::integer AS n, m.part, m.grp, m.head
    )
    SELECT array_agg(g.n), array_agg(g.part) FILTER (WHERE g.head), array_agg(g.grp) FILTER (WHERE g.head)
    INTO done, parts, grps FROM gone g;
    RETURN NEXT;
END $$;

-- Moves to the ends of partitions. The group it leaves goes on, and in a live partition it joins the one it finds, as soon as the
-- caller advances the groups that this answers. Where its id lives already there is nothing to move: it is one message, which was on
-- its way twice.
CREATE FUNCTION move_only(
    p_parts integer[], p_ids uuid[], p_tokens uuid[], p_names text[], p_deads boolean[], p_headers bytea[]
) RETURNS TABLE (done integer[], parts integer[], grps bytea[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_to  integer[];
BEGIN
    SELECT array_agg(t.part ORDER BY a.n) INTO v_to
    FROM unnest(p_names, p_deads) WITH ORDINALITY AS a(name, dead, n)
    JOIN (
        SELECT d.name, d.dead, part_for(d.name, d.dead) AS part
        FROM (SELECT DISTINCT name, dead FROM unnest(p_names, p_deads) AS u(name, dead) ORDER BY 1, 2) d
    ) t ON t.name = a.name AND t.dead = a.dead;

    WITH held AS MATERIALIZED (
        SELECT m.part AS old_part, m.id, m.head AS old_head, s.n, s.part, s.dead, s.headers
        FROM unnest(p_parts, p_ids, p_tokens, v_to, p_deads, p_headers) WITH ORDINALITY
            AS s(old_part, id, token, part, dead, headers, n)
        JOIN message m ON m.part = s.old_part AND m.id = s.id AND m.token = s.token AND m.until > v_now
        FOR UPDATE OF m
    ), way AS MATERIALIZED (
        SELECT h.*, h.part <> h.old_part AND (
            EXISTS (SELECT FROM message t WHERE t.part = h.part AND t.id = h.id)
            OR row_number() OVER (PARTITION BY h.part, h.id ORDER BY h.n) > 1) AS met
        FROM held h
    ), gone AS (
        DELETE FROM message m USING way w WHERE w.met AND m.part = w.old_part AND m.id = w.id
        RETURNING w.n, m.part, m.grp, w.old_head
    ), moved AS (
        UPDATE message m SET
            part = w.part, pos = place_at(v_now) + w.n, lane = ((m.lane % 100) | 1) + first_lane(w.dead),
            head = false, dedup = NULL, state = CASE WHEN m.grp IS NOT NULL AND NOT w.dead THEN 3 ELSE 0 END,
            due = NULL, until = NULL, token = NULL, deliveries = 0, cancel = false,
            headers = coalesce(w.headers, m.headers)
        FROM way w WHERE NOT w.met AND m.part = w.old_part AND m.id = w.id
        RETURNING w.n, m.part, m.grp, m.state, w.old_part, w.old_head
    ), touched AS (
        SELECT w.old_part AS part, w.grp FROM moved w WHERE w.old_head
        UNION SELECT w.part, w.grp FROM moved w WHERE w.state = 3
        UNION SELECT g.part, g.grp FROM gone g WHERE g.old_head
    )
    SELECT (SELECT array_agg(e.n::integer) FROM (SELECT n FROM moved UNION ALL SELECT n FROM gone) e),
        array_agg(t.part), array_agg(t.grp)
    INTO done, parts, grps FROM touched t;
    RETURN NEXT;
END $$;

-- The same as before, by its first half.
CREATE OR REPLACE FUNCTION move(
    p_parts integer[], p_ids uuid[], p_tokens uuid[], p_names text[], p_deads boolean[], p_headers bytea[]
) RETURNS TABLE (done integer[], advanced integer) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_parts integer[];
    v_grps  bytea[];
BEGIN
    SELECT m.done, m.parts, m.grps INTO done, v_parts, v_grps
    FROM move_only(p_parts, p_ids, p_tokens, p_names, p_deads, p_headers) m;
    advanced := CASE WHEN v_grps IS NULL THEN 0 ELSE advance(v_parts, v_grps) END;
    RETURN NEXT;
END $$;

-- Stores the successors of those settlements that are done, in order: each is owned by the number of its settlement, of which there
-- are p_settlements, and goes to the partition whose name has this number. A duplicate is left out, or does as it asks. Then their groups
-- advance, and those that the settlements left. Answers how many did. Names come sorted. Arrays of what no successor has are empty.
CREATE FUNCTION store_successors(
    p_done integer[], p_parts integer[], p_grps bytea[], p_settlements integer, p_names text[], p_owners integer[], p_to integer[],
    p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[], p_next_grps bytea[], p_dedups bytea[], p_bodies bytea[], p_overs smallint[]
) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_pos    bigint := place_at(v_now);
    v_all    boolean := cardinality(p_done) = p_settlements; -- the usual case, in which no owner has to be looked for
    v_to     integer[];
    v_stored boolean := false;
    v_parts  integer[] := p_parts;
    v_grps   bytea[] := p_grps;
BEGIN
    IF p_done IS NULL THEN
        RETURN 0;
    END IF;
    SELECT array_agg(CASE
        WHEN p.used THEN p.part
        WHEN v_all OR EXISTS (SELECT FROM unnest(p_owners, p_to) AS s(owner, n) WHERE s.n = a.n AND s.owner = ANY (p_done))
            THEN part_for(a.name, false) END ORDER BY a.n)
    INTO v_to FROM unnest(p_names) WITH ORDINALITY AS a(name, n) LEFT JOIN partition p ON p.name = a.name;

    IF cardinality(p_overs) > 0 THEN
        SELECT o.parts, o.grps INTO v_parts, v_grps
        FROM (
            SELECT array_agg(v_to[g.name] ORDER BY g.n) AS parts, array_agg(g.id ORDER BY g.n) AS ids,
                array_agg(g.lane ORDER BY g.n) AS lanes, array_agg(g.delay_ms ORDER BY g.n) AS delays_ms,
                array_agg(g.grp ORDER BY g.n) AS grps, array_agg(g.dedup ORDER BY g.n) AS dedups,
                array_agg(g.body ORDER BY g.n) AS bodies, array_agg(g.over ORDER BY g.n) AS overs
            FROM unnest(p_owners, p_to, p_ids, p_lanes, p_delays_ms, p_next_grps, p_dedups, p_bodies, p_overs) WITH ORDINALITY
                AS g(owner, name, id, lane, delay_ms, grp, dedup, body, over, n)
            WHERE v_all OR g.owner = ANY (p_done)
            HAVING count(*) > 0
        ) a, store_over(v_now, a.parts, a.ids, a.lanes, a.delays_ms, a.grps, a.dedups, a.bodies, a.overs, false, p_parts, p_grps) o;
        IF NOT FOUND THEN -- none of those that are done brings anything
            v_parts := p_parts;
            v_grps := p_grps;
        END IF;
        v_stored := true;
    ELSIF cardinality(p_delays_ms) = 0 AND cardinality(p_next_grps) = 0 AND cardinality(p_dedups) = 0 THEN
        BEGIN -- takes half the time, and fails where an id is
            INSERT INTO message (id, part, lane, pos, state, pushed_at, body)
            SELECT g.id, v_to[g.name], g.lane, v_pos + g.n, 0, v_now, g.body
            FROM unnest(p_owners, p_to, p_ids, p_lanes, p_bodies) WITH ORDINALITY AS g(owner, name, id, lane, body, n)
            WHERE v_all OR g.owner = ANY (p_done);
            v_stored := true;
        EXCEPTION WHEN unique_violation THEN NULL; -- some may be duplicates: each is to be looked at
        END;
    END IF;
    IF NOT v_stored THEN
        WITH stored AS (
            INSERT INTO message (id, part, lane, pos, state, due, grp, dedup, pushed_at, body)
            SELECT g.id, v_to[g.name], g.lane, v_pos + g.n,
                CASE WHEN g.delay_ms > 0 THEN 2 WHEN g.grp IS NOT NULL THEN 3 ELSE 0 END,
                CASE WHEN g.delay_ms > 0 THEN v_now + milliseconds(g.delay_ms) END, g.grp, g.dedup, v_now, g.body
            FROM unnest(p_owners, p_to, p_ids, p_lanes, p_delays_ms, p_next_grps, p_dedups, p_bodies) WITH ORDINALITY
                AS g(owner, name, id, lane, delay_ms, grp, dedup, body, n)
            WHERE v_all OR g.owner = ANY (p_done)
            ORDER BY g.dedup, g.name, g.n -- keys in one order for all, as in push
            ON CONFLICT DO NOTHING
            RETURNING part, grp, state
        )
        SELECT v_parts || array_agg(s.part), v_grps || array_agg(s.grp) INTO v_parts, v_grps FROM stored s WHERE s.state = 3;
    END IF;
    RETURN CASE WHEN v_grps IS NULL THEN 0 ELSE advance(v_parts, v_grps) END;
END $$;
