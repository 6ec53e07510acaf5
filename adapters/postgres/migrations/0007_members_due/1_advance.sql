-- A member of a group whose delay is over stands in line from then on, though no pull has looked since.

-- So that who lets a group advance finds those at once.
CREATE INDEX message_deferred ON message (part, grp, due) WHERE state = 2 AND grp IS NOT NULL;

-- As before, and first it gets those in line that are due, as bring does: what was pushed later must not be offered ahead of them. One that somebody
-- has locked is being brought, changed or taken at this moment, and is not waited for: its holder may wait for the group.
CREATE OR REPLACE FUNCTION advance(p_parts integer[], p_grps bytea[]) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c_most CONSTANT integer := 100; -- of a group; they come by and by, each at its place
    v_now      timestamptz := clock_timestamp();
    v_promoted integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'transactions here begin at %: groups need read committed', current_setting('transaction_isolation')
        USING ERRCODE = 'AQ001';
    END IF;
    PERFORM lock_groups(p_parts, p_grps);

    WITH late AS MATERIALIZED (
        SELECT g.part, d.id
        FROM (SELECT DISTINCT part, name FROM unnest(p_parts, p_grps) AS u(part, name)) g
        CROSS JOIN LATERAL (
            SELECT m.id FROM message m
            WHERE m.part = g.part AND m.grp = g.name AND m.state = 2 AND m.due <= v_now AND m.lane < 100
            ORDER BY m.due LIMIT c_most FOR UPDATE SKIP LOCKED
        ) d
    )
    UPDATE message m SET
        state = 3, head = false, due = NULL, pos = place_at(m.due) + (m.pos & 1023), joined = CASE WHEN m.head THEN m.joined END,
        lane = lane_at(m.lane, m.urgent, v_now), urgent = to_come(m.urgent, v_now)
    FROM late WHERE m.part = late.part AND m.id = late.id;

    WITH next AS MATERIALIZED (
        SELECT g.part, f.id
        FROM (SELECT DISTINCT part, name FROM unnest(p_parts, p_grps) AS u(part, name)) g
        CROSS JOIN LATERAL (
            SELECT m.id FROM message m
            WHERE m.part = g.part AND m.grp = g.name AND m.state = 3 ORDER BY coalesce(m.joined, m.pos) LIMIT 1
        ) f
        WHERE NOT EXISTS (SELECT FROM message h WHERE h.part = g.part AND h.grp = g.name AND h.head)
    )
    UPDATE message m SET state = 0, head = true, due = urgent_due(m.urgent, v_now) FROM next
    WHERE m.part = next.part AND m.id = next.id AND m.state = 3;
    GET DIAGNOSTICS v_promoted = ROW_COUNT;

    DELETE FROM message_group g USING unnest(p_parts, p_grps) AS u(part, name)
    WHERE g.part = u.part AND g.name = u.name
      AND NOT EXISTS (SELECT FROM message h WHERE h.part = g.part AND h.grp = g.name AND h.head);
    RETURN v_promoted;
END $$;
