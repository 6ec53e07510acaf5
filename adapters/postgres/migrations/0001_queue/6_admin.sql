-- Takes messages out by id, unless they are leased. Answers which are gone, which are held, and how many groups went on.
-- With p_cancel, holders learn by their next extension.
CREATE FUNCTION take_out(p_name text, p_dead boolean, p_ids uuid[], p_cancel boolean)
RETURNS TABLE (gone uuid[], held uuid[], advanced integer) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_part  integer;
    v_parts integer[];
    v_grps  bytea[];
BEGIN
    advanced := 0;
    SELECT part INTO v_part FROM partition WHERE name = p_name;
    SELECT array_agg(m.part), array_agg(m.grp) INTO v_parts, v_grps
    FROM unnest(p_ids) AS a(id) JOIN message m ON m.part = v_part AND m.id = a.id AND m.grp IS NOT NULL
    WHERE m.lane < 100 AND NOT p_dead;
    IF v_grps IS NOT NULL THEN
        PERFORM lock_groups(v_parts, v_grps);
    END IF;

    -- What is locked is being pulled or settled: it counts as leased.
    WITH free AS MATERIALIZED (
        SELECT m.id FROM unnest(p_ids) AS a(id) JOIN message m ON m.part = v_part AND m.id = a.id
        WHERE (m.lane >= 100) = p_dead AND (m.until IS NULL OR m.until <= v_now) FOR UPDATE OF m SKIP LOCKED
    ), out AS (
        DELETE FROM message m USING free WHERE m.part = v_part AND m.id = free.id RETURNING m.id
    )
    SELECT array_agg(o.id) INTO gone FROM out o;
    IF v_grps IS NOT NULL THEN
        advanced := advance(v_parts, v_grps);
    END IF;
    IF p_cancel THEN
        WITH asked AS (
            UPDATE message m SET cancel = true FROM unnest(p_ids) AS a(id)
            WHERE m.part = v_part AND m.id = a.id AND (m.lane >= 100) = p_dead RETURNING m.id
        )
        SELECT array_agg(a.id) INTO held FROM asked a;
    ELSE
        SELECT array_agg(m.id) INTO held FROM unnest(p_ids) AS a(id)
        JOIN message m ON m.part = v_part AND m.id = a.id AND (m.lane >= 100) = p_dead;
    END IF;
    RETURN NEXT;
END $$;

-- Deletes up to p_limit messages that are not leased; fewer means that none is left.
CREATE FUNCTION purge(p_name text, p_dead boolean, p_limit integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_part  integer;
    v_ids   uuid[];
    v_gone  integer;
    v_total integer := 0;
BEGIN
    SELECT part INTO v_part FROM partition WHERE name = p_name;
    LOOP -- what somebody leased meanwhile is made up for by others
        SELECT array_agg(f.id) INTO v_ids FROM ( -- by indexes that hold nothing of the other kind, or little
            (SELECT m.id FROM message m WHERE p_dead AND m.part = v_part AND m.lane >= 100
             AND (m.until IS NULL OR m.until <= clock_timestamp()) LIMIT p_limit - v_total)
            UNION ALL
            (SELECT m.id FROM message m WHERE NOT p_dead AND m.part = v_part AND m.state = 0 AND m.lane < 100
             LIMIT p_limit - v_total)
            UNION ALL
            (SELECT m.id FROM message m WHERE NOT p_dead AND m.part = v_part AND m.due IS NOT NULL AND m.lane < 100
             AND (m.until IS NULL OR m.until <= clock_timestamp()) LIMIT p_limit - v_total)
            UNION ALL
            (SELECT m.id FROM message m WHERE NOT p_dead AND m.part = v_part AND m.state = 3 LIMIT p_limit - v_total)
            LIMIT p_limit - v_total
        ) f;
        SELECT coalesce(cardinality(t.gone), 0) INTO v_gone FROM take_out(p_name, p_dead, v_ids, false) t;
        v_total := v_total + v_gone;
        EXIT WHEN v_gone = 0 OR v_total >= p_limit;
    END LOOP;
    RETURN v_total;
END $$;

-- Pauses a partition, or lets it go on.
CREATE FUNCTION set_paused(p_name text, p_dead boolean, p_paused boolean) RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
    INSERT INTO partition AS p (name, paused, dead_paused)
    VALUES (p_name, p_paused AND NOT p_dead, p_paused AND p_dead)
    ON CONFLICT (name) DO UPDATE SET
        paused = CASE WHEN p_dead THEN p.paused ELSE p_paused END,
        dead_paused = CASE WHEN p_dead THEN p_paused ELSE p.dead_paused END
$$;
