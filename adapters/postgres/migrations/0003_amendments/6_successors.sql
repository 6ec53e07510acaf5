-- Stores the successors of those settlements that are done, in order: each is owned by the number of its settlement, of which there
-- are p_settlements, and goes to the partition whose name has this number. A duplicate is left out, or does as it asks. Then their groups
-- advance, and those that the settlements left. Answers how many did. Names come sorted. Arrays of what no successor has are empty.
CREATE FUNCTION store_successors(
    p_done integer[], p_parts integer[], p_grps bytea[], p_settlements integer, p_names text[], p_owners integer[], p_to integer[],
    p_ids uuid[], p_lanes smallint[], p_delays_ms bigint[], p_next_grps bytea[], p_dedups bytea[], p_bodies bytea[], p_overs smallint[],
    p_urgents_ms bigint[] DEFAULT '{}'
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
                array_agg(g.body ORDER BY g.n) AS bodies, array_agg(g.over ORDER BY g.n) AS overs,
                array_agg(g.urgent_ms ORDER BY g.n) AS urgents_ms
            FROM unnest(p_owners, p_to, p_ids, p_lanes, p_delays_ms, p_next_grps, p_dedups, p_bodies, p_overs, p_urgents_ms)
                WITH ORDINALITY AS g(owner, name, id, lane, delay_ms, grp, dedup, body, over, urgent_ms, n)
            WHERE v_all OR g.owner = ANY (p_done)
            HAVING count(*) > 0
        ) a, store_over(v_now, a.parts, a.ids, a.lanes, a.delays_ms, a.grps, a.dedups, a.bodies, a.overs, false, p_parts, p_grps,
            a.urgents_ms) o;
        IF NOT FOUND THEN -- none of those that are done brings anything
            v_parts := p_parts;
            v_grps := p_grps;
        END IF;
        v_stored := true;
    ELSIF cardinality(p_delays_ms) = 0 AND cardinality(p_next_grps) = 0 AND cardinality(p_dedups) = 0
        AND cardinality(p_urgents_ms) = 0 THEN
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
            INSERT INTO message (id, part, lane, pos, state, due, grp, dedup, pushed_at, urgent, body)
            SELECT g.id, v_to[g.name], g.lane, v_pos + g.n,
                CASE WHEN g.delay_ms > 0 THEN 2 WHEN g.grp IS NOT NULL THEN 3 ELSE 0 END,
                CASE WHEN g.delay_ms > 0 THEN v_now + milliseconds(g.delay_ms)
                     WHEN g.grp IS NULL THEN v_now + milliseconds(g.urgent_ms) END,
                g.grp, g.dedup, v_now, v_now + milliseconds(g.urgent_ms), g.body
            FROM unnest(p_owners, p_to, p_ids, p_lanes, p_delays_ms, p_next_grps, p_dedups, p_bodies, p_urgents_ms) WITH ORDINALITY
                AS g(owner, name, id, lane, delay_ms, grp, dedup, body, urgent_ms, n)
            WHERE v_all OR g.owner = ANY (p_done)
            ORDER BY g.dedup, g.name, g.n -- keys in one order for all, as in push
            ON CONFLICT DO NOTHING
            RETURNING part, grp, state
        )
        SELECT v_parts || array_agg(s.part), v_grps || array_agg(s.grp) INTO v_parts, v_grps FROM stored s WHERE s.state = 3;
    END IF;
    RETURN CASE WHEN v_grps IS NULL THEN 0 ELSE advance(v_parts, v_grps) END;
END $$;
