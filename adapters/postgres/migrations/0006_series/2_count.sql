-- Counts the ends, at this moment in milliseconds since 1970, of those that are done: each is owned by the number of its settlement. Only for
-- functions that set the path.
--
-- A transaction locks what it counts in until it is committed. So that none ever waits for another, each writes to a shard that nobody else writes to
-- at the moment, and where all are taken to one of its own, which has the number of its process. It neither waits nor makes others wait, so it
-- can be in no deadlock, whatever was locked before, or will be.
CREATE FUNCTION count_at(
    p_ms bigint, p_done integer[], p_all boolean, p_parts integer[], p_owners integer[], p_states smallint[], p_kinds bytea[],
    p_ran_us bigint[], p_waited_us bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c_shards CONSTANT integer := 16;
    v_lock  integer := hashtext(current_schema() || ' series');
    v_shard integer := pg_backend_pid() % c_shards;
BEGIN
    FOR v_try IN 1..c_shards LOOP
        EXIT WHEN pg_try_advisory_xact_lock(v_lock, v_shard);
        v_shard := CASE WHEN v_try < c_shards THEN (v_shard + 1) % c_shards ELSE c_shards + pg_backend_pid() END;
    END LOOP;
    INSERT INTO series AS t (part, minute, kind, state, ran_bucket, waited_bucket, shard, tasks, ran_us, waited_us)
    SELECT p_parts[s.owner], p_ms / 60000, s.kind, s.state, series_bucket(s.ran_us), series_bucket(s.waited_us), v_shard,
        count(*), sum(s.ran_us), sum(s.waited_us)
    FROM unnest(p_owners, p_states, p_kinds, p_ran_us, p_waited_us) AS s(owner, state, kind, ran_us, waited_us)
    WHERE p_all OR s.owner = ANY (p_done)
    GROUP BY 1, 3, 4, 5, 6
    ON CONFLICT (part, minute, kind, state, ran_bucket, waited_bucket, shard) DO UPDATE SET
        tasks = t.tasks + excluded.tasks, ran_us = t.ran_us + excluded.ran_us, waited_us = t.waited_us + excluded.waited_us;
END $$;

-- Stores and counts the ends of those settlements that are done, as store_ended does: at one moment. An end without a body is only counted.
CREATE FUNCTION end_tasks(
    p_done integer[], p_parts integer[], p_ids uuid[], p_owners integer[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[],
    p_bodies bytea[], p_results bytea[], p_kinds bytea[], p_ran_us bigint[], p_waited_us bigint[]
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_us  bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint; -- not before the removal has waited for its locks
    v_now bigint := v_us / 1000;
    v_all boolean := cardinality(p_done) = cardinality(p_ids); -- the usual case, in which no owner has to be looked for
BEGIN
    IF p_done IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO ended (id, ended_at, rank, part, bucket, state, ended_us, expires_at, body, result)
    SELECT p_ids[s.owner], v_now, s.rank, p_parts[s.owner], ended_bucket(s.keep_ms, v_now + s.keep_ms), s.state, v_us % 1000,
        v_now + s.keep_ms, s.body, s.result
    FROM unnest(p_owners, p_states, p_keeps_ms, p_ranks, p_bodies, p_results) AS s(owner, state, keep_ms, rank, body, result)
    WHERE s.body IS NOT NULL AND (v_all OR s.owner = ANY (p_done));
    PERFORM count_at(v_now, p_done, v_all, p_parts, p_owners, p_states, p_kinds, p_ran_us, p_waited_us);
END $$;

-- Until the transaction has ended nobody else records ends of these tasks. The locks are those of a partition, so that many recorded at once in one
-- hold up no other; at most 64, for which a server's table of locks has room for each connection unless it was set to less; and taken in one order
-- by transactions of which each is about one partition, so that nobody is locked out. No other lock has a negative number, whatever else has
-- the first one by chance.
CREATE FUNCTION lock_ended(p_part integer, p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' ended ' || p_part), l.stripe)
    FROM (SELECT DISTINCT -1 - (uuid_hash(i.id) & 63) AS stripe FROM unnest(p_ids) AS i(id) ORDER BY 1) l;
END $$;

-- That of before, for processes of the release before, with the locks of now.
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
    PERFORM FROM unnest(p_ids) AS a(id) JOIN message m ON m.part = v_part AND m.id = a.id
    WHERE m.state <> 3 ORDER BY a.id FOR UPDATE OF m;

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
    DELETE FROM ended e USING unnest(v_greater) AS g(n) WHERE e.part = v_part AND e.id = p_ids[g.n];
    PERFORM store_ended(
        v_greater, array_fill(v_part, ARRAY[cardinality(p_ids)]), p_ids, array_agg(n), p_states, p_keeps_ms, p_ranks, p_bodies, p_results
    ) FROM generate_series(1, cardinality(p_ids)) AS n;
END $$;

-- As record_ended, and counts those of which no end is there, or only one of an earlier generation.
CREATE FUNCTION record_counted(
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
    PERFORM FROM unnest(p_ids) AS a(id) JOIN message m ON m.part = v_part AND m.id = a.id
    WHERE m.state <> 3 ORDER BY a.id FOR UPDATE OF m;

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
        DELETE FROM ended e USING unnest(v_greater) AS g(n) WHERE e.part = v_part AND e.id = p_ids[g.n];
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

-- As cancel, and counts the ends of what that removes.
CREATE FUNCTION cancel_counted(
    p_name text, p_ids uuid[], p_owners integer[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[], p_bodies bytea[],
    p_results bytea[], p_kinds bytea[], p_ran_us bigint[], p_waited_us bigint[]
) RETURNS TABLE (gone uuid[], held uuid[], busy uuid[], advanced integer) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_part integer;
BEGIN
    SELECT t.gone, t.held, t.busy, t.advanced INTO gone, held, busy, advanced FROM take_out(p_name, false, p_ids, true) t;
    IF gone IS NOT NULL THEN
        SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
        PERFORM end_tasks(
            (SELECT array_agg(a.n::integer) FROM unnest(p_ids) WITH ORDINALITY AS a(id, n) WHERE a.id = ANY (gone)),
            array_fill(v_part, ARRAY[cardinality(p_ids)]), p_ids, p_owners, p_states, p_keeps_ms, p_ranks, p_bodies, p_results,
            p_kinds, p_ran_us, p_waited_us
        );
    END IF;
    RETURN NEXT;
END $$;
