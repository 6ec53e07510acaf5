-- Whoever lets a group advance holds its row and waits for the member that comes next. So nobody may lock a member that is in line, and then
-- wait for a group, or for another message. "FOR UPDATE" keeps a lock of what somebody has put in line between the moment that a statement
-- sees and the one at which it locks: it leaves such a row out, and does not unlock it. Therefore these functions lock whatever they saw, look
-- at what it is now, and give all locks back if some of it is in line: then they see that too.

-- Messages are found by id with "part" from the side of the ids, out of the planner's sight. Else, while the table is small, it goes through
-- all of a partition for each id, and a session keeps its plan when the table grows.

-- Fails where a message is in line, so that its lock is given back at once.
CREATE FUNCTION fail_in_line(p_state smallint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_state = 3 THEN
        RAISE 'what is locked has got in line' USING ERRCODE = 'AQ003';
    END IF;
    RETURN true;
END $$;

-- Locks those of these messages that are not in line behind others of their group, in the order of their ids, and returns them with their
-- numbers from 1: the dead or the living, or both if p_dead is null. Without p_waits it leaves what is locked, without p_held what is leased
-- when it looks. To know what they are by then takes another statement.
CREATE FUNCTION lock_not_in_line(p_part integer, p_dead boolean, p_ids uuid[], p_held boolean, p_waits boolean)
RETURNS TABLE (id uuid, number bigint) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_seen uuid[];
    v_seen_numbers bigint[];
    v_ids uuid[];
    v_numbers bigint[];
BEGIN
    LOOP
        SELECT array_agg(a.id ORDER BY a.id), array_agg(a.n ORDER BY a.id) INTO v_seen, v_seen_numbers
        FROM (SELECT p_part AS part, u.* FROM unnest(p_ids) WITH ORDINALITY AS u(id, n) OFFSET 0) a
        JOIN message m ON m.part = a.part AND m.id = a.id
        WHERE m.state <> 3 AND (p_dead IS NULL OR (m.lane >= 100) = p_dead) AND (p_held OR m.until IS NULL OR m.until <= clock_timestamp());
        BEGIN
            SELECT array_agg(l.id), array_agg(l.n) INTO v_ids, v_numbers FROM (
                SELECT f.id, f.n FROM (SELECT u.* FROM unnest(v_seen, v_seen_numbers) AS u(id, n) WHERE p_waits) a
                CROSS JOIN LATERAL (SELECT m.id, a.n, m.state, m.lane FROM message m WHERE m.part = p_part AND m.id = a.id FOR UPDATE) f
                WHERE fail_in_line(f.state) AND (p_dead IS NULL OR (f.lane >= 100) = p_dead)
                UNION ALL
                SELECT f.id, f.n FROM (SELECT u.* FROM unnest(v_seen, v_seen_numbers) AS u(id, n) WHERE NOT p_waits) a
                CROSS JOIN LATERAL (
                    SELECT m.id, a.n, m.state, m.lane FROM message m WHERE m.part = p_part AND m.id = a.id FOR UPDATE SKIP LOCKED
                ) f
                WHERE fail_in_line(f.state) AND (p_dead IS NULL OR (f.lane >= 100) = p_dead)
            ) l;
            -- What was moved to another partition is locked, and may be in line there.
            IF coalesce(cardinality(v_ids), 0) < cardinality(v_seen) AND EXISTS (
                SELECT FROM unnest(v_seen) AS a(id) WHERE NOT EXISTS (SELECT FROM message m WHERE m.part = p_part AND m.id = a.id OFFSET 0)
            ) THEN
                RAISE 'what is locked may be elsewhere' USING ERRCODE = 'AQ003';
            END IF;
            EXIT;
        EXCEPTION WHEN SQLSTATE 'AQ003' THEN NULL;
        END;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(v_ids, v_numbers);
END $$;

-- As before, but nothing stays locked that is in line.
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
    LOOP
    BEGIN
        WITH late AS MATERIALIZED (
            SELECT p_part AS part, f.id, f.state, f.is_late FROM (
                SELECT u.* FROM generate_series(1, 17, 2) AS l(lane) CROSS JOIN LATERAL (
                    SELECT f.* FROM (
                        SELECT m.id FROM message m
                        WHERE m.part = p_part AND m.lane = l.lane AND m.state = 2 AND m.due > p_from AND m.due <= p_now
                        ORDER BY m.due OFFSET 0
                    ) seen CROSS JOIN LATERAL (
                        SELECT m.id, m.state, m.state = 2 AND m.due <= p_now AS is_late FROM message m
                        WHERE m.part = p_part AND m.id = seen.id FOR UPDATE SKIP LOCKED
                    ) f WHERE fail_in_line(f.state) LIMIT c_most
                ) u
                UNION ALL
                SELECT a.* FROM (
                    SELECT f.* FROM (
                        SELECT m.id FROM message m
                        WHERE m.part = p_part AND m.due > p_from AND m.due <= p_now AND m.state < 3
                        ORDER BY m.due OFFSET 0
                    ) seen CROSS JOIN LATERAL (
                        SELECT m.id, m.state, m.state < 3 AND m.due <= p_now AS is_late FROM message m
                        WHERE m.part = p_part AND m.id = seen.id FOR UPDATE SKIP LOCKED
                    ) f WHERE fail_in_line(f.state) LIMIT c_most
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
            FROM late WHERE late.is_late AND m.part = late.part AND m.id = late.id
            RETURNING m.grp, m.state
        )
        SELECT (SELECT count(*) FROM late), (SELECT bool_or(l.state = 0) FROM late l),
            array_agg(b.grp) FILTER (WHERE b.state = 3)
        INTO v_late, v_is_urgent, v_grps FROM brought b;
        EXIT;
    EXCEPTION WHEN SQLSTATE 'AQ003' THEN NULL;
    END;
    END LOOP;

    SELECT array_agg(j.id), array_agg(j.grp) INTO v_ids, v_joins FROM (
        SELECT m.id, m.grp FROM message m
        WHERE m.part = p_part AND m.state = 3 AND m.due > p_from AND m.due <= p_now ORDER BY m.lane, m.due LIMIT c_most
    ) j;
    v_grps := v_grps || v_joins;
    IF v_grps IS NOT NULL THEN
        PERFORM lock_groups(array_fill(p_part, ARRAY[cardinality(v_grps)]), v_grps);
        UPDATE message m SET due = NULL, lane = lane_at(m.lane, m.urgent, p_now), urgent = to_come(m.urgent, p_now)
        FROM (SELECT p_part AS part, u.* FROM unnest(v_ids, v_joins) AS u(id, grp) OFFSET 0) a
        WHERE m.part = a.part AND m.id = a.id AND m.grp = a.grp AND m.state > 2;
        PERFORM advance(array_fill(p_part, ARRAY[cardinality(v_grps)]), v_grps);
    END IF;
    RETURN v_late = c_most OR v_is_urgent IS TRUE OR coalesce(cardinality(v_ids), 0) = c_most;
END $$;
