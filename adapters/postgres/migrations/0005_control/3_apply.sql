-- Makes changes, in order, each if what is there is as it expects (0 anything, 1 nothing, 2 this version), and answers each with a row: whether it
-- was made, or else what is there. A change without a version deletes. What has expired is nothing. Then frees some of what has expired.
--
-- Who changes an entry holds a lock in its key's name until the end of the transaction, as no row can be locked where none is yet. They are a few
-- for all keys, so that they never fill the server's table of locks, and are taken in one order, so that no two calls wait for each other. Each
-- statement sees what others committed before it: at other levels what is found after the lock would be of before it.
CREATE FUNCTION control_apply(
    p_keys text[], p_expects smallint[], p_expected bigint[], p_versions bigint[], p_ttls_ms bigint[], p_values bytea[]
) RETURNS TABLE (now_ms bigint, is_done boolean, there_version bigint, there_expires_at bigint, there_value bytea) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'transactions here begin at %: control entries need read committed', current_setting('transaction_isolation')
        USING ERRCODE = 'AQ001';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' control'), l.stripe)
    FROM (SELECT DISTINCT hashtext(a.key) & 63 AS stripe FROM unnest(p_keys) AS a(key) ORDER BY 1) l;
    now_ms := ended_now();

    FOR n IN 1..cardinality(p_keys) LOOP
        SELECT e.version, e.expires_at, e.value INTO there_version, there_expires_at, there_value FROM control_entry e
        WHERE e.key = p_keys[n] COLLATE "C" AND (e.expires_at IS NULL OR e.expires_at > now_ms);
        is_done := CASE p_expects[n]
            WHEN 0 THEN true
            WHEN 1 THEN there_version IS NULL
            ELSE there_version IS NOT DISTINCT FROM p_expected[n]
        END;
        IF is_done THEN
            there_version := NULL;
            there_expires_at := NULL;
            there_value := NULL;
            IF p_versions[n] IS NULL THEN
                DELETE FROM control_entry e WHERE e.key = p_keys[n] COLLATE "C";
            ELSE
                -- One that has expired may be there still, or just be freed by somebody who has not committed yet.
                INSERT INTO control_entry AS e (key, version, expires_at, value)
                VALUES (p_keys[n], p_versions[n], now_ms + p_ttls_ms[n], p_values[n])
                ON CONFLICT (key) DO UPDATE
                SET version = excluded.version, expires_at = excluded.expires_at, value = excluded.value;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;

    -- More than one call can bring, so that they do not pile up. Without the locks of their keys: what somebody else has locked, or is just given
    -- a new end, is passed over, and nothing is waited for after this.
    DELETE FROM control_entry WHERE ctid = ANY (ARRAY(
        SELECT e.ctid FROM control_entry e WHERE e.expires_at <= now_ms ORDER BY e.expires_at LIMIT 200 FOR UPDATE SKIP LOCKED
    ));
END $$;
