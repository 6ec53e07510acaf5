-- Locks what pull leases where groups are claimed whole: up to p_max messages, the firsts of what is on offer and right after each up to
-- p_members - 1 of those in line behind it. Answers where they are, and the last place of what is on offer.
--
-- No group has to be locked. Whoever has locked the message on offer, alone in front of its group, keeps the front as it is, so that the
-- line can only grow, or lose members to who deletes or amends them. Nobody is waited for: that could be who waits for this pull.
CREATE FUNCTION lock_whole(
    p_part integer, p_first smallint, p_max integer, p_members integer, p_lanes smallint[], p_places bigint[], p_last_lanes smallint[]
) RETURNS TABLE (offered tid[], behind tid[], last_place bigint) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    -- A row is locked only when it is taken, here too.
    SELECT array_agg(l.ctid) FILTER (WHERE l.pos IS NOT NULL), array_agg(l.ctid) FILTER (WHERE l.pos IS NULL), max(l.pos)
    INTO offered, behind, last_place FROM (
        SELECT r.ctid, r.pos FROM unnest(p_lanes, p_places, p_last_lanes) AS s(lane, place, last_lane)
        CROSS JOIN LATERAL (
            SELECT m.ctid, m.pos, m.grp FROM message m
            WHERE m.part = p_part AND m.state = 0 AND (m.lane, m.pos) >= (p_first + s.lane, s.place) AND m.lane <= p_first + s.last_lane
            ORDER BY m.lane, m.pos LIMIT p_max FOR UPDATE SKIP LOCKED
        ) f
        CROSS JOIN LATERAL (
            SELECT f.ctid, f.pos
            UNION ALL
            SELECT b.ctid, NULL FROM (
                SELECT m.ctid FROM message m WHERE m.part = p_part AND m.grp = f.grp AND m.state = 3
                ORDER BY coalesce(m.joined, m.pos) LIMIT p_members - 1 FOR UPDATE SKIP LOCKED
            ) b
        ) r LIMIT p_max
    ) l;
    RETURN NEXT;
END $$;

-- Leases what lock_whole has locked, as far as no other member stands in between: somebody else may have locked one, or brought one in.
-- The rows have the lane and place of the one that was on offer, and their number in the order of delivery.
CREATE FUNCTION lease_whole(
    p_part integer, p_members integer, p_offered tid[], p_behind tid[], p_token uuid, p_now timestamptz, p_until timestamptz,
    p_most_bytes bigint
) RETURNS TABLE (
    id uuid, lane smallint, pos bigint, deliveries integer, age interval, headers bytea, body bytea, place bytea, number integer
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH offered AS MATERIALIZED (
        SELECT m.ctid, m.lane, m.pos, m.grp, octet_length(m.body) AS bytes FROM message m WHERE m.ctid = ANY (p_offered)
    ), taken AS (
        SELECT o.ctid AS leader, o.lane, o.pos, 0 AS member, o.ctid, o.bytes FROM offered o
        UNION ALL
        SELECT o.ctid, o.lane, o.pos, b.member, b.ctid, b.bytes FROM offered o
        CROSS JOIN LATERAL (
            SELECT l.ctid, l.bytes, row_number() OVER line AS member, bool_and(l.ctid = ANY (p_behind)) OVER line AS is_locked
            FROM (
                SELECT m.ctid, octet_length(m.body) AS bytes, coalesce(m.joined, m.pos) AS place FROM message m
                WHERE m.part = p_part AND m.grp = o.grp AND m.state = 3 ORDER BY coalesce(m.joined, m.pos) LIMIT p_members - 1
            ) l WINDOW line AS (ORDER BY l.place, l.ctid)
        ) b WHERE b.is_locked
    ), counted AS (
        SELECT t.*, row_number() OVER delivery AS number, sum(t.bytes) OVER delivery - t.bytes AS before
        FROM taken t WINDOW delivery AS (ORDER BY t.lane, t.pos, t.leader, t.member)
    )
    UPDATE message m SET
        state = 1, head = m.head OR c.member > 0, deliveries = m.deliveries + 1, token = p_token, until = p_until, due = p_until
    FROM counted c WHERE m.ctid = c.ctid AND c.before < p_most_bytes
    RETURNING m.id, c.lane, c.pos, m.deliveries, p_now - m.pushed_at, m.headers, m.body, tidsend(m.ctid), c.number::integer;
END $$;

DROP FUNCTION pull;

-- Leases up to p_max messages; with p_members, of each group up to so many. They are looked for in stretches of lanes, one after the other: from a place in a first lane to
-- the end of a last one. Nothing is looked for that is due longer ago than p_due_ms. What lies outside may be nothing but
-- index entries of what is long gone. Each row tells how long the looking took, or nothing if more is due than could be made ready
-- at once, or something that became urgent may stand outside: then it looks everywhere. The rows come in no order, but members of groups have a
-- number, and have no more than about c_most_bytes together. Dead letters know no groups.
CREATE FUNCTION pull(
    p_name text, p_dead boolean, p_max integer, p_lease_ms bigint, p_token uuid,
    p_lanes smallint[], p_places bigint[], p_last_lanes smallint[], p_due_ms bigint, p_members integer DEFAULT 1
) RETURNS TABLE (
    part integer, id uuid, lane smallint, pos bigint, deliveries integer, age interval, headers bytea, body bytea, place bytea,
    looked_us integer, number integer
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c_most_bytes CONSTANT bigint := 33554432; -- known to the client as PULL_BYTES
    v_now   timestamptz := clock_timestamp();
    v_until timestamptz := v_now + milliseconds(p_lease_ms);
    v_since timestamptz := coalesce(v_now - milliseconds(p_due_ms), '-infinity');
    v_first smallint := first_lane(p_dead);
    v_part  integer;
    v_is_due boolean;
    v_is_more_due boolean := false;
    v_began timestamptz := v_now;
    v_bytes bigint;
    v_ctids tid[];
    v_behind tid[];
    v_place bigint;
    v_again boolean;
    v_is_whole CONSTANT boolean := p_members > 1 AND NOT p_dead;
    v_looked_us integer;
BEGIN
    SELECT p.part, EXISTS (SELECT FROM message m WHERE m.part = p.part AND m.due > v_since AND m.due <= v_now)
    INTO v_part, v_is_due
    FROM partition p WHERE p.name = p_name AND NOT CASE WHEN p_dead THEN p.dead_paused ELSE p.paused END;
    IF v_part IS NULL THEN
        RETURN;
    END IF;
    IF v_is_due THEN
        v_is_more_due := bring(v_part, v_now, v_since);
        v_began := clock_timestamp(); -- that was work, not looking
        IF v_is_more_due THEN
            p_lanes := ARRAY[0];
            p_places := ARRAY[0];
            p_last_lanes := ARRAY[99];
        END IF;
    END IF;
    -- What got its place after this began was ready before it, elsewhere, if it is not just being pushed: somebody took it and
    -- put it behind others, and this statement went by where it had been. So it looks again; not for ever, as clocks go back.
    FOR v_try IN 1..3 LOOP
        v_place := place_at(clock_timestamp());
        IF v_is_whole THEN
            SELECT w.offered, w.behind, w.last_place > v_place INTO v_ctids, v_behind, v_again
            FROM lock_whole(v_part, v_first, p_max, p_members, p_lanes, p_places, p_last_lanes) w;
        ELSE
            -- A row is locked only when it is taken, and what is locked keeps its place, so that it need not be looked up again.
            SELECT array_agg(l.ctid), bool_or(l.pos > v_place), sum(l.bytes) INTO v_ctids, v_again, v_bytes FROM (
                SELECT f.ctid, f.pos, f.bytes FROM unnest(p_lanes, p_places, p_last_lanes) AS s(lane, place, last_lane)
                CROSS JOIN LATERAL (
                    SELECT m.ctid, m.pos, octet_length(m.body) AS bytes FROM message m
                    WHERE m.part = v_part AND m.state = 0 AND (m.lane, m.pos) >= (v_first + s.lane, s.place)
                        AND m.lane <= v_first + s.last_lane
                    ORDER BY m.lane, m.pos LIMIT p_max FOR UPDATE SKIP LOCKED
                ) f LIMIT p_max
            ) l;
        END IF;
        EXIT WHEN v_again IS NOT TRUE;
    END LOOP;
    IF NOT v_is_more_due THEN
        v_looked_us := least(extract(epoch FROM clock_timestamp() - v_began) * 1000000, 2147483647);
    END IF;
    IF v_is_whole THEN
        RETURN QUERY
        SELECT v_part, w.id, (w.lane - v_first)::smallint, w.pos, w.deliveries, w.age, w.headers, w.body, w.place, v_looked_us, w.number
        FROM lease_whole(v_part, p_members, v_ctids, v_behind, p_token, v_now, v_until, c_most_bytes) w;
        RETURN;
    END IF;
    IF v_bytes > c_most_bytes THEN
        SELECT array_agg(b.ctid) INTO v_ctids FROM (
            SELECT m.ctid, sum(octet_length(m.body)) OVER (ORDER BY m.lane, m.pos) - octet_length(m.body) AS before
            FROM message m WHERE m.ctid = ANY (v_ctids)
        ) b WHERE b.before < c_most_bytes;
    END IF;
    -- A statement of its own, to see what it has locked: also what somebody gave back after the first one began.
    RETURN QUERY UPDATE message m SET
        state = 1, deliveries = m.deliveries + 1, token = p_token, until = v_until, due = v_until
    WHERE m.ctid = ANY (v_ctids)
    RETURNING m.part, m.id, m.lane - v_first, m.pos, m.deliveries, v_now - m.pushed_at, m.headers, m.body, tidsend(m.ctid), v_looked_us,
        NULL::integer;
END $$;

-- What waits for waiting pulls, by the partition's number from 1: how many messages are ready (at most as many as asked
-- for), and in how many milliseconds the next one is due.
CREATE OR REPLACE FUNCTION look(p_names text[], p_deads boolean[], p_limits integer[])
RETURNS TABLE (number integer, ready integer, due_ms bigint) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT a.number::integer,
        (SELECT count(*)::integer FROM (
            SELECT FROM message m
            WHERE m.part = p.part AND m.state = 0
              AND m.lane >= first_lane(a.dead) AND m.lane < first_lane(a.dead) + 100 LIMIT a.most) r),
        (SELECT ceil(extract(epoch FROM min(m.due) - clock_timestamp()) * 1000)::bigint
         FROM message m WHERE m.part = p.part AND m.due < 'infinity')
    FROM unnest(p_names, p_deads, p_limits) WITH ORDINALITY AS a(name, dead, most, number)
    JOIN partition p ON p.name = a.name AND NOT CASE WHEN a.dead THEN p.dead_paused ELSE p.paused END;
END $$;
