-- Leases up to p_max messages. They are looked for in stretches of lanes, one after the other: from a place in a first lane to
-- the end of a last one. Nothing is looked for that is due longer ago than p_due_ms. What lies outside may be nothing but
-- index entries of what is long gone. Each row tells how long the looking took, or nothing if more is due than could be made ready
-- at once, or something that became urgent may stand outside: then it looks everywhere. The rows come in no order, and have no more than
-- about c_most_bytes together.
CREATE OR REPLACE FUNCTION pull(
    p_name text, p_dead boolean, p_max integer, p_lease_ms bigint, p_token uuid,
    p_lanes smallint[], p_places bigint[], p_last_lanes smallint[], p_due_ms bigint
) RETURNS TABLE (part integer, id uuid, lane smallint, pos bigint, deliveries integer, age interval, headers bytea, body bytea, place bytea, looked_us integer)
LANGUAGE plpgsql
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
    v_place bigint;
    v_again boolean;
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
        EXIT WHEN v_again IS NOT TRUE;
    END LOOP;
    IF NOT v_is_more_due THEN
        v_looked_us := least(extract(epoch FROM clock_timestamp() - v_began) * 1000000, 2147483647);
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
    RETURNING m.part, m.id, m.lane - v_first, m.pos, m.deliveries, v_now - m.pushed_at, m.headers, m.body, tidsend(m.ctid), v_looked_us;
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
