-- What is read of ends. What has lapsed is in no answer, whether its place was freed or not.

-- A page of ends in these states, the newest first: not before p_since, and before the end with this moment and id. Each state is read from its
-- place in the index of each table, no further than the page goes.
CREATE FUNCTION ended_page(p_name text, p_states smallint[], p_since bigint, p_before bigint, p_before_id uuid, p_limit integer)
RETURNS TABLE (id uuid, ended_at bigint, expires_at bigint, body bytea) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now  bigint := ended_now();
    v_part integer;
BEGIN
    SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
    RETURN QUERY
    SELECT f.id, f.ended_at, f.expires_at, f.body FROM unnest(p_states) AS s(state) CROSS JOIN LATERAL (
        SELECT e.id, e.ended_at, e.expires_at, e.body FROM ended e
        WHERE e.part = v_part AND e.state = s.state AND e.ended_at >= p_since AND (e.ended_at, e.id) < (p_before, p_before_id)
          AND (e.expires_at IS NULL OR e.expires_at > v_now)
        ORDER BY e.ended_at DESC, e.id DESC LIMIT p_limit
    ) f ORDER BY f.ended_at DESC, f.id DESC LIMIT p_limit;
END $$;

-- How many ends there are in these states since p_since and before p_before, counted up to p_cap.
CREATE FUNCTION count_ended(p_name text, p_states smallint[], p_since bigint, p_before bigint, p_cap bigint) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now  bigint := ended_now();
    v_part integer;
BEGIN
    SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
    RETURN (SELECT count(*) FROM (
        SELECT FROM unnest(p_states) AS s(state) CROSS JOIN LATERAL (
            SELECT FROM ended e
            WHERE e.part = v_part AND e.state = s.state AND e.ended_at >= p_since AND e.ended_at < p_before
              AND (e.expires_at IS NULL OR e.expires_at > v_now)
            LIMIT p_cap
        ) f LIMIT p_cap
    ) counted);
END $$;

-- The last end of each of these tasks, with its result.
CREATE FUNCTION find_ended(p_name text, p_ids uuid[])
RETURNS TABLE (id uuid, ended_at bigint, expires_at bigint, body bytea, result bytea) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now  bigint := ended_now();
    v_part integer;
BEGIN
    SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
    RETURN QUERY
    SELECT f.* FROM unnest(p_ids) AS a(id) CROSS JOIN LATERAL (
        SELECT e.id, e.ended_at, e.expires_at, e.body, e.result FROM ended e
        WHERE e.part = v_part AND e.id = a.id AND (e.expires_at IS NULL OR e.expires_at > v_now)
        ORDER BY e.ended_at DESC, e.ended_us DESC LIMIT 1
    ) f;
END $$;
