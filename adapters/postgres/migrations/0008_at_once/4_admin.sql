-- As before, but nothing stays locked that is in line, and no more is read where more waits.

CREATE OR REPLACE FUNCTION take_out(p_name text, p_dead boolean, p_ids uuid[], p_cancel boolean)
RETURNS TABLE (gone uuid[], held uuid[], busy uuid[], advanced integer) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_part  integer;
    v_locked uuid[];
    v_free  uuid[];
    v_grps  bytea[];
    v_behind uuid[];
    v_behind_grps bytea[];
BEGIN
    advanced := 0;
    SELECT part INTO v_part FROM partition WHERE name = p_name;
    -- To cancel waits for what is being pulled or settled, in the order in which settlements lock. The next statement sees what that left.
    SELECT array_agg(l.id) INTO v_locked FROM lock_not_in_line(v_part, p_dead, p_ids, p_cancel, p_cancel) l;
    SELECT array_agg(m.id) FILTER (WHERE m.until IS NULL OR m.until <= clock_timestamp()),
        array_agg(m.id) FILTER (WHERE m.until > clock_timestamp())
    INTO v_free, held
    FROM (SELECT v_part AS part, u.* FROM unnest(v_locked) AS u(id) OFFSET 0) a JOIN message m ON m.part = a.part AND m.id = a.id;
    IF p_cancel THEN
        UPDATE message m SET cancel = true FROM (SELECT v_part AS part, u.* FROM unnest(held) AS u(id) OFFSET 0) a
        WHERE m.part = a.part AND m.id = a.id;
    END IF;
    WITH out AS (
        DELETE FROM message m USING (SELECT v_part AS part, u.* FROM unnest(v_free) AS u(id) OFFSET 0) a
        WHERE m.part = a.part AND m.id = a.id
        RETURNING m.id, m.grp, m.head
    )
    SELECT array_agg(o.id), array_agg(o.grp) FILTER (WHERE o.head) INTO gone, v_grps FROM out o;

    -- Not "= 3": that would make the index of such rows look good, which knows no ids.
    SELECT array_agg(m.id), array_agg(m.grp) INTO v_behind, v_behind_grps
    FROM (SELECT v_part AS part, u.* FROM unnest(p_ids) AS u(id) OFFSET 0) a JOIN message m ON m.part = a.part AND m.id = a.id
    WHERE m.state > 2 AND NOT p_dead;
    v_grps := v_grps || v_behind_grps;
    IF v_grps IS NOT NULL THEN
        PERFORM lock_groups(array_fill(v_part, ARRAY[cardinality(v_grps)]), v_grps);
        WITH out AS (
            DELETE FROM message m USING (SELECT v_part AS part, u.* FROM unnest(v_behind, v_behind_grps) AS u(id, grp) OFFSET 0) a
            WHERE m.part = a.part AND m.id = a.id AND m.grp = a.grp AND m.state > 2 RETURNING m.id
        )
        SELECT gone || array_agg(o.id) INTO gone FROM out o;
        advanced := advance(array_fill(v_part, ARRAY[cardinality(v_grps)]), v_grps);
    END IF;

    IF p_cancel THEN -- a member that went on to be its group's head meanwhile
        SELECT array_agg(m.id) INTO busy FROM (SELECT v_part AS part, u.* FROM unnest(p_ids) AS u(id) OFFSET 0) a
        JOIN message m ON m.part = a.part AND m.id = a.id AND (m.lane >= 100) = p_dead AND NOT m.id = ANY (coalesce(held, '{}'));
    ELSE -- that, or it was locked
        SELECT array_agg(m.id) FILTER (WHERE m.until > clock_timestamp()),
            array_agg(m.id) FILTER (WHERE m.until IS NULL OR m.until <= clock_timestamp())
        INTO held, busy FROM (SELECT v_part AS part, u.* FROM unnest(p_ids) AS u(id) OFFSET 0) a
        JOIN message m ON m.part = a.part AND m.id = a.id AND (m.lane >= 100) = p_dead;
    END IF;
    RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION purge(p_name text, p_dead boolean, p_limit integer)
RETURNS TABLE (purged integer, is_left boolean, advanced integer) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_part  integer;
    v_ctids tid[];
    v_more  tid[];
    v_grps  bytea[];
    v_behind uuid[];
    v_behind_grps bytea[];
    v_gone  integer;
BEGIN
    purged := 0;
    advanced := 0;
    SELECT part INTO v_part FROM partition WHERE name = p_name;
    LOOP
    BEGIN
        -- By indexes that hold nothing of the other kind, or little.
        IF p_dead THEN
            SELECT array_agg(f.ctid) INTO v_ctids FROM (
                SELECT m.ctid FROM message m WHERE m.part = v_part AND m.lane >= 100 AND (m.until IS NULL OR m.until <= v_now)
                LIMIT p_limit FOR UPDATE SKIP LOCKED
            ) f;
        ELSE
            SELECT array_agg(f.ctid) FILTER (WHERE f.state = 0 AND f.lane < 100) INTO v_ctids FROM (
                SELECT f.* FROM (
                    SELECT m.id FROM message m WHERE m.part = v_part AND m.state = 0 AND m.lane < 100 OFFSET 0
                ) seen CROSS JOIN LATERAL (
                    SELECT m.ctid, m.state, m.lane FROM message m WHERE m.part = v_part AND m.id = seen.id FOR UPDATE SKIP LOCKED
                ) f WHERE fail_in_line(f.state) LIMIT p_limit
            ) f;
            SELECT array_agg(f.ctid) FILTER (WHERE f.is_free) INTO v_more FROM (
                SELECT f.* FROM (
                    SELECT m.id FROM message m
                    WHERE m.part = v_part AND m.due IS NOT NULL AND m.lane < 100 AND m.state IN (1, 2) AND (m.until IS NULL OR m.until <= v_now)
                    OFFSET 0
                ) seen CROSS JOIN LATERAL (
                    SELECT m.ctid, m.state, m.state IN (1, 2) AND m.lane < 100 AND (m.until IS NULL OR m.until <= v_now) AS is_free
                    FROM message m WHERE m.part = v_part AND m.id = seen.id FOR UPDATE SKIP LOCKED
                ) f WHERE fail_in_line(f.state) LIMIT p_limit - coalesce(cardinality(v_ctids), 0)
            ) f;
        END IF;
        EXIT;
    EXCEPTION WHEN SQLSTATE 'AQ003' THEN NULL;
    END;
    END LOOP;
    WITH out AS (
        DELETE FROM message m WHERE m.ctid = ANY (v_ctids || v_more) RETURNING m.grp, m.head
    )
    SELECT count(*), array_agg(o.grp) FILTER (WHERE o.head) INTO purged, v_grps FROM out o;

    IF NOT p_dead THEN
        SELECT array_agg(w.id), array_agg(w.grp) INTO v_behind, v_behind_grps FROM (
            SELECT m.id, m.grp FROM message m WHERE m.part = v_part AND m.state = 3 LIMIT p_limit - purged
        ) w;
        v_grps := v_grps || v_behind_grps;
    END IF;
    IF v_grps IS NOT NULL THEN
        PERFORM lock_groups(array_fill(v_part, ARRAY[cardinality(v_grps)]), v_grps);
        DELETE FROM message m USING (SELECT v_part AS part, u.* FROM unnest(v_behind, v_behind_grps) AS u(id, grp) OFFSET 0) a
        WHERE m.part = a.part AND m.id = a.id AND m.grp = a.grp AND m.state > 2;
        GET DIAGNOSTICS v_gone = ROW_COUNT;
        purged := purged + v_gone;
        advanced := advance(array_fill(v_part, ARRAY[cardinality(v_grps)]), v_grps);
    END IF;
    is_left := CASE WHEN purged = p_limit THEN true WHEN p_dead THEN EXISTS (
        SELECT FROM message m WHERE m.part = v_part AND m.lane >= 100 AND (m.until IS NULL OR m.until <= clock_timestamp())
    ) ELSE EXISTS (
        SELECT FROM message m WHERE m.part = v_part AND m.state = 0 AND m.lane < 100
    ) OR EXISTS (
        SELECT FROM message m WHERE m.part = v_part AND m.state = 3
    ) OR EXISTS (
        SELECT FROM message m
        WHERE m.part = v_part AND m.due IS NOT NULL AND m.lane < 100 AND (m.until IS NULL OR m.until <= clock_timestamp())
    ) END;
    RETURN NEXT;
END $$;
