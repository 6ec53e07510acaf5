-- What is read of entries. The first row of each answer has the time alone; it is read before the entries are, for else an entry whose life is
-- just being prolonged would be found with its former end, which is over by then. What has expired is in no answer, whether it was freed or not.

-- The entries under these keys, given each once.
CREATE FUNCTION control_get(p_keys text[])
RETURNS TABLE (now_ms bigint, entry_key text, entry_version bigint, entry_expires_at bigint, entry_value bytea) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    now_ms := ended_now();
    RETURN NEXT;
    RETURN QUERY
    SELECT now_ms, e.key, e.version, e.expires_at, e.value
    FROM unnest(p_keys) AS a(key) JOIN control_entry e ON e.key = a.key COLLATE "C"
    WHERE e.expires_at IS NULL OR e.expires_at > now_ms;
END $$;

-- Entries from one key on and, if it is given, before another, in the order of the bytes of their keys.
CREATE FUNCTION control_list(p_from text, p_before text, p_limit integer)
RETURNS TABLE (now_ms bigint, entry_key text, entry_version bigint, entry_expires_at bigint, entry_value bytea) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    now_ms := ended_now();
    RETURN NEXT;
    IF p_before IS NULL THEN
        RETURN QUERY
        SELECT now_ms, e.key, e.version, e.expires_at, e.value FROM control_entry e
        WHERE e.key >= p_from COLLATE "C" AND (e.expires_at IS NULL OR e.expires_at > now_ms)
        ORDER BY e.key LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT now_ms, e.key, e.version, e.expires_at, e.value FROM control_entry e
        WHERE e.key >= p_from COLLATE "C" AND e.key < p_before COLLATE "C" AND (e.expires_at IS NULL OR e.expires_at > now_ms)
        ORDER BY e.key LIMIT p_limit;
    END IF;
END $$;
