-- Stores the ends of those settlements that are done, whose partitions and ids these are: each is owned by the number of its settlement. It is
-- stored beside former ends of its id, of which there is hardly ever one: looking for it in each table would cost more than all the rest.
CREATE FUNCTION store_ended(
    p_done integer[], p_parts integer[], p_ids uuid[], p_owners integer[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[],
    p_bodies bytea[], p_results bytea[]
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
    WHERE v_all OR s.owner = ANY (p_done);
END $$;

-- Stores ends, given each task once and sorted by id, that are greater than those that are there, in their place. Two calls about the same task
-- come one after the other, and a settlement that is just removing it is waited for.
CREATE FUNCTION record_ended(
    p_name text, p_ids uuid[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[], p_bodies bytea[], p_results bytea[]
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_part    integer := part_for(p_name, true); -- it is not used by that
    v_now     bigint;
    v_greater integer[];
BEGIN
    -- A few locks for all tasks, so that they never fill the server's table of locks; taken in one order.
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' ended'), l.stripe)
    FROM (SELECT DISTINCT (uuid_hash(i.id) # v_part) & 63 AS stripe FROM unnest(p_ids) AS i(id) ORDER BY 1) l;
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

-- Requests cancellation as take_out does, and stores the ends of what that removes: each is owned by the number of its id. Only in live partitions.
CREATE FUNCTION cancel(
    p_name text, p_ids uuid[], p_owners integer[], p_states smallint[], p_keeps_ms bigint[], p_ranks bigint[], p_bodies bytea[],
    p_results bytea[]
) RETURNS TABLE (gone uuid[], held uuid[], busy uuid[], advanced integer) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_part integer;
BEGIN
    SELECT t.gone, t.held, t.busy, t.advanced INTO gone, held, busy, advanced FROM take_out(p_name, false, p_ids, true) t;
    IF gone IS NOT NULL THEN
        SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
        PERFORM store_ended(
            (SELECT array_agg(a.n::integer) FROM unnest(p_ids) WITH ORDINALITY AS a(id, n) WHERE a.id = ANY (gone)),
            array_fill(v_part, ARRAY[cardinality(p_ids)]), p_ids, p_owners, p_states, p_keeps_ms, p_ranks, p_bodies, p_results
        );
    END IF;
    RETURN NEXT;
END $$;
