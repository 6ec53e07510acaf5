-- Offers the first in line of each of these groups that have nobody in front. Answers how many are offered. Whoever takes a member from
-- the front calls this in the same transaction: of several at once the last to lock the group sees that nobody is left. Each statement
-- sees what others committed before it, so after the lock a member that somebody pushed meanwhile is seen. At other levels it would
-- not be, and nobody would ever look for it.
CREATE OR REPLACE FUNCTION advance(p_parts integer[], p_grps bytea[]) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now      timestamptz := clock_timestamp();
    v_promoted integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'transactions here begin at %: groups need read committed', current_setting('transaction_isolation')
        USING ERRCODE = 'AQ001';
    END IF;
    PERFORM lock_groups(p_parts, p_grps);
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

-- Makes ready what is due after p_from, dead letters too: leases that ran out, delays that are over, members of groups that were
-- pushed in the application's transactions. A member of a group gets in line, at its own place if it was in front, at the end if not. The
-- urgent first, where delays end together. What is ready and has become urgent gets the highest level where it stands. What is locked is
-- being dealt with. Answers whether a pull has to look at everything: there may be more, or
-- what has become urgent may stand anywhere.
CREATE OR REPLACE FUNCTION bring(p_part integer, p_now timestamptz, p_from timestamptz) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c_most CONSTANT integer := 1000;
    v_late  integer;
    v_is_urgent boolean;
    v_grps  bytea[];
    v_ids   uuid[];
    v_joins bytea[];
BEGIN
    WITH late AS MATERIALIZED (
        SELECT f.id, f.state FROM (
            SELECT u.id, u.state FROM generate_series(1, 17, 2) AS l(lane) CROSS JOIN LATERAL (
                SELECT m.id, m.state FROM message m
                WHERE m.part = p_part AND m.lane = l.lane AND m.state = 2 AND m.due > p_from AND m.due <= p_now
                ORDER BY m.due LIMIT c_most FOR UPDATE SKIP LOCKED
            ) u
            UNION ALL
            SELECT a.id, a.state FROM (
                SELECT m.id, m.state FROM message m
                WHERE m.part = p_part AND m.due > p_from AND m.due <= p_now AND m.state < 3
                ORDER BY m.due LIMIT c_most FOR UPDATE SKIP LOCKED
            ) a
        ) f LIMIT c_most
    ), brought AS (
        UPDATE message m SET
            state = CASE
                WHEN m.until > p_now THEN 1 -- extended: look again later
                WHEN m.state > 0 AND m.grp IS NOT NULL AND m.lane < 100 THEN 3
                ELSE 0 END,
            head  = m.head AND (m.until > p_now OR m.state = 0) IS TRUE,
            due   = CASE
                WHEN m.until > p_now THEN m.until
                WHEN m.state > 0 AND m.grp IS NOT NULL AND m.lane < 100 THEN NULL
                ELSE to_come(m.urgent, p_now) END,
            until = CASE WHEN m.until > p_now THEN m.until END,
            token = CASE WHEN m.until > p_now THEN m.token END,
            lane  = lane_at(CASE WHEN m.state = 1 AND m.until <= p_now THEN m.lane & -2 ELSE m.lane END::smallint, m.urgent, p_now),
            urgent = to_come(m.urgent, p_now),
            pos   = CASE WHEN m.state = 2 THEN place_at(m.due) + (m.pos & 1023) ELSE m.pos END,
            joined = CASE WHEN m.head OR m.state <> 2 THEN m.joined END
        FROM late WHERE m.part = p_part AND m.id = late.id
        RETURNING m.grp, m.state
    )
    SELECT (SELECT count(*) FROM late), (SELECT bool_or(l.state = 0) FROM late l), array_agg(b.grp) FILTER (WHERE b.state = 3)
    INTO v_late, v_is_urgent, v_grps FROM brought b;

    SELECT array_agg(j.id), array_agg(j.grp) INTO v_ids, v_joins FROM (
        SELECT m.id, m.grp FROM message m
        WHERE m.part = p_part AND m.state = 3 AND m.due > p_from AND m.due <= p_now ORDER BY m.lane, m.due LIMIT c_most
    ) j;
    v_grps := v_grps || v_joins;
    IF v_grps IS NOT NULL THEN
        PERFORM lock_groups(array_fill(p_part, ARRAY[cardinality(v_grps)]), v_grps);
        UPDATE message m SET due = NULL, lane = lane_at(m.lane, m.urgent, p_now), urgent = to_come(m.urgent, p_now)
        FROM unnest(v_ids, v_joins) AS a(id, grp)
        WHERE m.part = p_part AND m.id = a.id AND m.grp = a.grp AND m.state > 2;
        PERFORM advance(array_fill(p_part, ARRAY[cardinality(v_grps)]), v_grps);
    END IF;
    RETURN v_late = c_most OR v_is_urgent IS TRUE OR coalesce(cardinality(v_ids), 0) = c_most;
END $$;
