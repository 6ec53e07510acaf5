-- As before, and it tells which messages were stored while they stand where it put them: a group that advances may give one whose delay
-- is over by then another place, and then it looked as if something had been in its way.
CREATE OR REPLACE FUNCTION push(
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

    IF v_stored < cardinality(p_ids) THEN
        RETURN QUERY
        SELECT g.n::integer, coalesce(
            (SELECT m.id FROM message m WHERE m.part = v_part AND m.id = g.id),
            (SELECT m.id FROM message m WHERE m.part = v_part AND m.dedup = g.dedup))
        FROM unnest(p_ids, p_dedups) WITH ORDINALITY AS g(id, dedup, n)
        WHERE NOT EXISTS ( -- one by one: joined, it would be planned for a small table
            SELECT FROM message m WHERE m.part = v_part AND m.id = g.id AND m.pos = v_pos + g.n OFFSET 0);
    END IF;
    IF cardinality(p_grps) > 0 AND NOT p_dead AND NOT p_joins_later THEN
        PERFORM advance(array_agg(v_part), array_agg(g)) FROM unnest(p_grps) AS g WHERE g IS NOT NULL;
    END IF;
END $$;
