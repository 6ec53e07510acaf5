-- As before, but nothing stays locked that is in line, and no more is read where more waits.

CREATE OR REPLACE FUNCTION record_ended(
    p_name text, p_ids uuid[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[], p_bodies bytea[], p_results bytea[]
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_part    integer := part_for(p_name, true); -- it is not used by that
    v_now     bigint;
    v_greater integer[];
BEGIN
    PERFORM lock_ended(v_part, p_ids);
    PERFORM FROM lock_not_in_line(v_part, NULL, p_ids, true, true);

    v_now := ended_now();
    SELECT array_agg(a.n::integer) INTO v_greater
    FROM unnest(p_ids, p_ranks) WITH ORDINALITY AS a(id, rank, n)
    LEFT JOIN LATERAL (
        SELECT e.rank FROM ended e
        WHERE e.part = v_part AND e.id = a.id AND (e.expires_at IS NULL OR e.expires_at > v_now)
        ORDER BY e.ended_at DESC, e.ended_us DESC LIMIT 1
    ) there ON true
    WHERE there.rank IS NULL OR there.rank < a.rank;
    IF v_greater IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM ended e USING (SELECT v_part AS part, p_ids[u.n] AS id FROM unnest(v_greater) AS u(n) OFFSET 0) g
        WHERE e.part = g.part AND e.id = g.id;
    PERFORM store_ended(
        v_greater, array_fill(v_part, ARRAY[cardinality(p_ids)]), p_ids, array_agg(n), p_states, p_keeps_ms, p_ranks, p_bodies, p_results
    ) FROM generate_series(1, cardinality(p_ids)) AS n;
END $$;

CREATE OR REPLACE FUNCTION record_counted(
    p_name text, p_ids uuid[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[], p_bodies bytea[], p_results bytea[],
    p_kinds bytea[], p_ran_us bigint[], p_waited_us bigint[]
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_part    integer := part_for(p_name, true); -- it is not used by that
    v_parts   integer[] := array_fill(v_part, ARRAY[cardinality(p_ids)]);
    v_owners  integer[] := ARRAY(SELECT generate_series(1, cardinality(p_ids)));
    v_us      bigint;
    v_now     bigint;
    v_greater integer[];
    v_new     integer[];
BEGIN
    PERFORM lock_ended(v_part, p_ids);
    PERFORM FROM lock_not_in_line(v_part, NULL, p_ids, true, true);

    v_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    v_now := v_us / 1000;
    SELECT array_agg(a.n::integer) FILTER (WHERE a.body IS NOT NULL AND (there.rank IS NULL OR there.rank < a.rank)),
        array_agg(a.n::integer) FILTER (WHERE there.rank IS NULL OR there.rank >> 48 < a.rank >> 48)
    INTO v_greater, v_new
    FROM unnest(p_ids, p_ranks, p_bodies) WITH ORDINALITY AS a(id, rank, body, n)
    LEFT JOIN LATERAL (
        SELECT e.rank FROM ended e
        WHERE e.part = v_part AND e.id = a.id AND (e.expires_at IS NULL OR e.expires_at > v_now)
        ORDER BY e.ended_at DESC, e.ended_us DESC LIMIT 1
    ) there ON true;
    IF v_greater IS NOT NULL THEN
        DELETE FROM ended e USING (SELECT v_part AS part, p_ids[u.n] AS id FROM unnest(v_greater) AS u(n) OFFSET 0) g
        WHERE e.part = g.part AND e.id = g.id;
        INSERT INTO ended (id, ended_at, rank, part, bucket, state, ended_us, expires_at, body, result)
        SELECT p_ids[s.owner], v_now, s.rank, v_part, ended_bucket(s.keep_ms, v_now + s.keep_ms), s.state, v_us % 1000,
            v_now + s.keep_ms, s.body, s.result
        FROM unnest(v_owners, p_states, p_keeps_ms, p_ranks, p_bodies, p_results) AS s(owner, state, keep_ms, rank, body, result)
        WHERE s.owner = ANY (v_greater);
    END IF;
    IF v_new IS NOT NULL THEN
        PERFORM count_at(v_now, v_new, false, v_parts, v_owners, p_states, p_kinds, p_ran_us, p_waited_us);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION delete_ended(p_name text, p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now  bigint := ended_now();
    v_part integer;
    v_gone uuid[];
BEGIN
    SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
    WITH gone AS (
        DELETE FROM ended e USING (SELECT v_part AS part, u.* FROM unnest(p_ids) AS u(id) OFFSET 0) a
        WHERE e.part = a.part AND e.id = a.id RETURNING e.id, e.expires_at
    )
    SELECT array_agg(g.id) INTO v_gone FROM gone g WHERE g.expires_at IS NULL OR g.expires_at > v_now;
    RETURN v_gone;
END $$;
