-- Deletes all ends of these tasks, given sorted. Answers of which there was one that had not lapsed.
CREATE FUNCTION delete_ended(p_name text, p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now  bigint := ended_now();
    v_part integer;
    v_gone uuid[];
BEGIN
    SELECT p.part INTO v_part FROM partition p WHERE p.name = p_name;
    WITH gone AS (
        DELETE FROM ended e USING unnest(p_ids) AS a(id) WHERE e.part = v_part AND e.id = a.id RETURNING e.id, e.expires_at
    )
    SELECT array_agg(g.id) INTO v_gone FROM gone g WHERE g.expires_at IS NULL OR g.expires_at > v_now;
    RETURN v_gone;
END $$;

-- Frees the place of ends that have lapsed. Answers of how many, up to p_limit, and whether it should be called again for the others. A table
-- in which all has lapsed is emptied as a whole, then counted up to the limit, and nothing else is done in that call, so that its lock is over at once.
-- Else rows are deleted, up to the limit: those of the last table, and those of a ring that nobody freed before the ring came around. What has
-- lapsed in the present stretch of a ring waits for its end. Without the right to TRUNCATE a table, rows are deleted there too.
--
-- Each table is named by its number, not left to the plan to find, so that no other is locked. What others keep locked for longer than lock_timeout
-- is left for a later call, and so are then the other tables that could be emptied.
CREATE FUNCTION purge_ended(p_limit integer) RETURNS TABLE (freed integer, is_left boolean) LANGUAGE plpgsql
SET search_path FROM CURRENT SET lock_timeout = '50ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now   bigint := ended_now();
    v_table regclass;
    v_all   boolean; -- has lapsed
    v_since bigint;
    v_rows  integer;
    v_first integer := floor(random() * 24); -- so that one table that stays locked keeps no other from being emptied
    v_bucket integer;
    v_busy  boolean := false;
BEGIN
    freed := 0;
    is_left := false;
    FOR v_number IN 0..24 LOOP
        v_bucket := CASE WHEN v_number < 24 THEN (v_first + v_number) % 24 ELSE 24 END;
        v_table := ('ended_' || v_bucket)::regclass;
        CONTINUE WHEN freed >= p_limit OR pg_relation_size(v_table) = 0;
        BEGIN
            v_all := false;
            IF v_bucket < 24 THEN
                EXECUTE format('SELECT NOT EXISTS (SELECT FROM ended WHERE bucket = %s AND expires_at > $1)', v_bucket)
                INTO v_all USING v_now;
            END IF;
            IF v_all AND has_table_privilege(v_table, 'TRUNCATE') THEN
                CONTINUE WHEN v_busy;
                IF freed > 0 THEN
                    is_left := true;
                    CONTINUE;
                END IF;
                EXECUTE format('SELECT count(*) FROM (SELECT FROM ended WHERE bucket = %s LIMIT $1) c', v_bucket)
                INTO v_rows USING p_limit;
                CONTINUE WHEN v_rows = 0; -- rows that were never committed
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v_table);
                EXECUTE format(
                    'SELECT NOT EXISTS (SELECT FROM ended WHERE bucket = %1$s AND expires_at > $1) AND EXISTS (SELECT FROM ended WHERE bucket = %1$s)',
                    v_bucket
                ) INTO v_all USING v_now; -- nobody can have stored anything since
                IF v_all THEN
                    EXECUTE format('TRUNCATE %s', v_table);
                    freed := v_rows;
                    is_left := true;
                    RETURN NEXT;
                    RETURN;
                END IF;
            ELSE
                v_since := CASE WHEN v_all THEN v_now ELSE v_now - v_now % ended_width(v_bucket) END;
                EXECUTE format(
                    'DELETE FROM ended WHERE bucket = %1$s AND ctid = ANY (ARRAY(
                        SELECT ctid FROM ended WHERE bucket = %1$s AND expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))',
                    v_bucket
                ) USING v_since, p_limit - freed;
                GET DIAGNOSTICS v_rows = ROW_COUNT;
                freed := freed + v_rows;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            v_busy := true; -- waiting for another would hold up its readers too
        END;
    END LOOP;
    RETURN NEXT;
END $$;
