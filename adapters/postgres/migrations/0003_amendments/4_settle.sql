DROP FUNCTION give_back;

-- Gives back: 1 released, 2 failed, 3 postponed. What was in front of its group gets in line again, at its own place, unless it is
-- postponed for a while. Answers how many groups went on; or, if the caller lets them advance, which have to.
CREATE FUNCTION give_back(
    p_parts integer[], p_ids uuid[], p_tokens uuid[], p_actions smallint[], p_delays_ms bigint[], p_headers bytea[],
    p_advances boolean DEFAULT true
) RETURNS TABLE (done integer[], advanced integer, parts integer[], grps bytea[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    WITH back AS (
        UPDATE message m SET
            state      = CASE WHEN s.action = 3 AND s.delay_ms > 0 THEN 2 WHEN m.head THEN 3 ELSE 0 END,
            head       = m.head AND s.action = 3 AND s.delay_ms > 0,
            joined     = CASE WHEN m.head THEN coalesce(m.joined, m.pos) END,
            due        = CASE WHEN s.action = 3 AND s.delay_ms > 0 THEN v_now + milliseconds(s.delay_ms)
                WHEN NOT m.head THEN urgent_due(m.urgent, v_now) END,
            until      = NULL,
            token      = NULL,
            lane       = CASE WHEN s.action = 3 THEN m.lane | 1 ELSE m.lane & -2 END,
            pos        = CASE WHEN s.action = 3 THEN place_at(v_now) + s.n ELSE m.pos END,
            deliveries = CASE WHEN s.action = 2 THEN m.deliveries ELSE m.deliveries - 1 END,
            headers    = coalesce(s.headers, m.headers)
        FROM unnest(p_parts, p_ids, p_tokens, p_actions, p_delays_ms, p_headers) WITH ORDINALITY
            AS s(part, id, token, action, delay_ms, headers, n)
        WHERE m.part = s.part AND m.id = s.id AND m.token = s.token AND m.until > v_now
        RETURNING s.n::integer AS n, m.part, m.grp, m.state
    )
    SELECT array_agg(b.n), array_agg(b.part) FILTER (WHERE b.state = 3), array_agg(b.grp) FILTER (WHERE b.state = 3)
    INTO done, parts, grps FROM back b;
    advanced := CASE WHEN p_advances AND grps IS NOT NULL THEN advance(parts, grps) ELSE 0 END;
    RETURN NEXT;
END $$;

-- Moves to the ends of partitions. The group it leaves goes on, and in a live partition it joins the one it finds, as soon as the
-- caller advances the groups that this answers. Where its id lives already there is nothing to move: it is one message, which was on
-- its way twice. Its moment of urgency goes with it.
CREATE OR REPLACE FUNCTION move_only(
    p_parts integer[], p_ids uuid[], p_tokens uuid[], p_names text[], p_deads boolean[], p_headers bytea[]
) RETURNS TABLE (done integer[], parts integer[], grps bytea[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_to  integer[];
BEGIN
    SELECT array_agg(t.part ORDER BY a.n) INTO v_to
    FROM unnest(p_names, p_deads) WITH ORDINALITY AS a(name, dead, n)
    JOIN (
        SELECT d.name, d.dead, part_for(d.name, d.dead) AS part
        FROM (SELECT DISTINCT name, dead FROM unnest(p_names, p_deads) AS u(name, dead) ORDER BY 1, 2) d
    ) t ON t.name = a.name AND t.dead = a.dead;

    WITH held AS MATERIALIZED (
        SELECT m.part AS old_part, m.id, m.head AS old_head, s.n, s.part, s.dead, s.headers
        FROM unnest(p_parts, p_ids, p_tokens, v_to, p_deads, p_headers) WITH ORDINALITY
            AS s(old_part, id, token, part, dead, headers, n)
        JOIN message m ON m.part = s.old_part AND m.id = s.id AND m.token = s.token AND m.until > v_now
        FOR UPDATE OF m
    ), way AS MATERIALIZED (
        SELECT h.*, h.part <> h.old_part AND (
            EXISTS (SELECT FROM message t WHERE t.part = h.part AND t.id = h.id)
            OR row_number() OVER (PARTITION BY h.part, h.id ORDER BY h.n) > 1) AS met
        FROM held h
    ), gone AS (
        DELETE FROM message m USING way w WHERE w.met AND m.part = w.old_part AND m.id = w.id
        RETURNING w.n, m.part, m.grp, w.old_head
    ), moved AS (
        UPDATE message m SET
            part = w.part, pos = place_at(v_now) + w.n, lane = ((m.lane % 100) | 1) + first_lane(w.dead),
            head = false, joined = NULL, dedup = NULL, state = CASE WHEN m.grp IS NOT NULL AND NOT w.dead THEN 3 ELSE 0 END,
            due = CASE WHEN m.grp IS NULL OR w.dead THEN urgent_due(m.urgent, v_now) END, until = NULL, token = NULL, deliveries = 0, cancel = false,
            headers = coalesce(w.headers, m.headers)
        FROM way w WHERE NOT w.met AND m.part = w.old_part AND m.id = w.id
        RETURNING w.n, m.part, m.grp, m.state, w.old_part, w.old_head
    ), touched AS (
        SELECT w.old_part AS part, w.grp FROM moved w WHERE w.old_head
        UNION SELECT w.part, w.grp FROM moved w WHERE w.state = 3
        UNION SELECT g.part, g.grp FROM gone g WHERE g.old_head
    )
    SELECT (SELECT array_agg(e.n::integer) FROM (SELECT n FROM moved UNION ALL SELECT n FROM gone) e),
        array_agg(t.part), array_agg(t.grp)
    INTO done, parts, grps FROM touched t;
    RETURN NEXT;
END $$;
