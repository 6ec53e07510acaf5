-- Stores messages, in order. Answers only those that were not stored, by their number from 1, with the message that is in
-- their way, where that is still known. Arrays of what no message has are empty. With p_joins_later, in a transaction that may stay
-- open for long or sees an old state of things, it neither locks nor looks at groups: whoever pulls after the commit does.
CREATE FUNCTION push(
    p_name text, p_dead boolean, p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[],
    p_grps bytea[], p_dedups bytea[], p_bodies bytea[], p_joins_later boolean DEFAULT false
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
    INSERT INTO message (id, part, lane, pos, state, due, grp, dedup, pushed_at, body)
    SELECT g.id, v_part, g.lane + first_lane(p_dead), v_pos + g.n,
        CASE WHEN g.delay_ms > 0 THEN 2 WHEN g.grp IS NOT NULL AND NOT p_dead THEN 3 ELSE 0 END,
        CASE WHEN g.delay_ms > 0 THEN v_now + milliseconds(g.delay_ms)
             WHEN p_joins_later AND g.grp IS NOT NULL AND NOT p_dead THEN v_now END,
        g.grp, CASE WHEN NOT p_dead THEN g.dedup END, v_now, g.body
    FROM unnest(p_ids, p_lanes, p_delays_ms, p_grps, p_dedups, p_bodies) WITH ORDINALITY
        AS g(id, lane, delay_ms, grp, dedup, body, n)
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
