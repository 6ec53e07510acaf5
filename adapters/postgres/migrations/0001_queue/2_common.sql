-- What several functions use. Every function sets the same: plans must not change because the planner believes the table to be
-- small or large, and compiling a plan would take longer than running it.

-- The place of whoever comes at this time.
CREATE FUNCTION place_at(p_at timestamptz) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT (extract(epoch FROM p_at) * 1000000)::bigint * 1024 $$;

CREATE FUNCTION milliseconds(p_ms bigint) RETURNS interval LANGUAGE sql IMMUTABLE
AS $$ SELECT p_ms * interval '1 millisecond' $$;

-- What the lanes of a partition begin at, or those of its dead letters.
CREATE FUNCTION first_lane(p_dead boolean) RETURNS smallint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_dead THEN 100 ELSE 0 END::smallint $$;

-- The number of a partition that gets messages, or whose dead letters do; makes it if needed.
CREATE FUNCTION part_for(p_name text, p_dead boolean) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    v_part integer;
    v_used boolean;
BEGIN
    SELECT part, used INTO v_part, v_used FROM partition WHERE name = p_name;
    IF v_part IS NULL THEN
        INSERT INTO partition (name, used) VALUES (p_name, NOT p_dead)
        ON CONFLICT (name) DO UPDATE SET used = partition.used OR excluded.used RETURNING part INTO v_part;
    ELSIF NOT (v_used OR p_dead) THEN
        UPDATE partition SET used = true WHERE part = v_part;
    END IF;
    RETURN v_part;
END $$;

-- Locks these groups, in one order for all. Members that wait behind others are locked only by whoever has locked their group. All
-- other messages are locked before any group is, so that nobody who has locked a group waits for one of them.
CREATE FUNCTION lock_groups(p_parts integer[], p_grps bytea[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO message_group (part, name)
    SELECT DISTINCT g.part, g.name FROM unnest(p_parts, p_grps) AS g(part, name) ORDER BY g.part, g.name
    ON CONFLICT (part, name) DO UPDATE SET name = excluded.name WHERE false; -- changes nothing, but locks
END $$;

-- Gives each of these groups a head again, if it has members that wait and no head. Answers how many got one. Each statement
-- sees what others committed before it, so after the lock a member that somebody pushed meanwhile is seen. At other levels it would
-- not be, and nobody would ever look for it.
CREATE FUNCTION advance(p_parts integer[], p_grps bytea[]) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
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
            WHERE m.part = g.part AND m.grp = g.name AND m.state = 3 ORDER BY m.pos LIMIT 1
        ) f
        WHERE NOT EXISTS (SELECT FROM message h WHERE h.part = g.part AND h.grp = g.name AND h.head)
    )
    UPDATE message m SET state = 0, head = true, due = NULL FROM next
    WHERE m.part = next.part AND m.id = next.id AND m.state = 3;
    GET DIAGNOSTICS v_promoted = ROW_COUNT;

    DELETE FROM message_group g USING unnest(p_parts, p_grps) AS u(part, name)
    WHERE g.part = u.part AND g.name = u.name
      AND NOT EXISTS (SELECT FROM message h WHERE h.part = g.part AND h.grp = g.name AND h.head);
    RETURN v_promoted;
END $$;

-- Makes ready what is due after p_from, dead letters too: leases that ran out, delays that are over, members of groups that were
-- pushed in the application's transactions. The urgent first, where delays end together. What is locked is being dealt with.
-- Answers whether there may be more.
CREATE FUNCTION bring(p_part integer, p_now timestamptz, p_from timestamptz) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c_most CONSTANT integer := 1000;
    v_late  integer;
    v_grps  bytea[];
    v_ids   uuid[];
    v_joins bytea[];
BEGIN
    WITH late AS MATERIALIZED (
        SELECT f.id FROM (
            SELECT u.id FROM generate_series(1, 17, 2) AS l(lane) CROSS JOIN LATERAL (
                SELECT m.id FROM message m
                WHERE m.part = p_part AND m.lane = l.lane AND m.state = 2 AND m.due > p_from AND m.due <= p_now
                ORDER BY m.due LIMIT c_most FOR UPDATE SKIP LOCKED
            ) u
            UNION ALL
            SELECT a.id FROM (
                SELECT m.id FROM message m
                WHERE m.part = p_part AND m.due > p_from AND m.due <= p_now AND m.state < 3
                ORDER BY m.due LIMIT c_most FOR UPDATE SKIP LOCKED
            ) a
        ) f LIMIT c_most
    ), brought AS (
        UPDATE message m SET
            state = CASE
                WHEN m.until > p_now THEN 1 -- extended: look again later
                WHEN m.state = 2 AND m.grp IS NOT NULL AND NOT m.head AND m.lane < 100 THEN 3 -- joins its group now
                ELSE 0 END,
            due   = CASE WHEN m.until > p_now THEN m.until END,
            until = CASE WHEN m.until > p_now THEN m.until END,
            token = CASE WHEN m.until > p_now THEN m.token END,
            lane  = CASE WHEN m.state = 1 AND m.until <= p_now THEN m.lane & -2 ELSE m.lane END,
            pos   = CASE WHEN m.state = 2 THEN place_at(m.due) + (m.pos & 1023) ELSE m.pos END
        FROM late WHERE m.part = p_part AND m.id = late.id
        RETURNING m.grp, m.state
    )
    SELECT (SELECT count(*) FROM late), array_agg(b.grp) FILTER (WHERE b.state = 3) INTO v_late, v_grps FROM brought b;

    SELECT array_agg(j.id), array_agg(j.grp) INTO v_ids, v_joins FROM (
        SELECT m.id, m.grp FROM message m
        WHERE m.part = p_part AND m.state = 3 AND m.due > p_from AND m.due <= p_now ORDER BY m.lane, m.due LIMIT c_most
    ) j;
    v_grps := v_grps || v_joins;
    IF v_grps IS NOT NULL THEN
        PERFORM lock_groups(array_fill(p_part, ARRAY[cardinality(v_grps)]), v_grps);
        UPDATE message m SET due = NULL FROM unnest(v_ids) AS a(id) WHERE m.part = p_part AND m.id = a.id AND m.state > 2;
        PERFORM advance(array_fill(p_part, ARRAY[cardinality(v_grps)]), v_grps);
    END IF;
    RETURN v_late = c_most OR coalesce(cardinality(v_ids), 0) = c_most;
END $$;
