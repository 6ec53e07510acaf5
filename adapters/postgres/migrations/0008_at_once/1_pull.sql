-- As before, for pulls of whole groups. A partition that is paused delivers nothing, though a pull found it open shortly before.
CREATE OR REPLACE FUNCTION lease_whole(
    p_part integer, p_members integer, p_offered tid[], p_behind tid[], p_token uuid, p_now timestamptz, p_until timestamptz,
    p_most_bytes bigint
) RETURNS TABLE (
    id uuid, lane smallint, pos bigint, deliveries integer, age interval, headers bytea, body bytea, place bytea, number integer
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH offered AS MATERIALIZED (
        SELECT m.ctid, m.lane, m.pos, m.grp, octet_length(m.body) AS bytes FROM message m WHERE m.ctid = ANY (p_offered)
    ), taken AS (
        SELECT o.ctid AS leader, o.lane, o.pos, 0 AS member, o.ctid, o.bytes FROM offered o
        UNION ALL
        SELECT o.ctid, o.lane, o.pos, b.member, b.ctid, b.bytes FROM offered o
        CROSS JOIN LATERAL (
            SELECT l.ctid, l.bytes, row_number() OVER line AS member, bool_and(l.ctid = ANY (p_behind)) OVER line AS is_locked
            FROM (
                SELECT m.ctid, octet_length(m.body) AS bytes, coalesce(m.joined, m.pos) AS place FROM message m
                WHERE m.part = p_part AND m.grp = o.grp AND m.state = 3 ORDER BY coalesce(m.joined, m.pos) LIMIT p_members - 1
            ) l WINDOW line AS (ORDER BY l.place, l.ctid)
        ) b WHERE b.is_locked
    ), counted AS (
        SELECT t.*, row_number() OVER delivery AS number, sum(t.bytes) OVER delivery - t.bytes AS before
        FROM taken t WINDOW delivery AS (ORDER BY t.lane, t.pos, t.leader, t.member)
    )
    UPDATE message m SET
        state = 1, head = m.head OR c.member > 0, deliveries = m.deliveries + 1, token = p_token, until = p_until, due = p_until
    FROM counted c WHERE m.ctid = c.ctid AND c.before < p_most_bytes
        AND EXISTS (SELECT FROM partition p WHERE p.part = p_part AND NOT p.paused)
    RETURNING m.id, c.lane, c.pos, m.deliveries, p_now - m.pushed_at, m.headers, m.body, tidsend(m.ctid), c.number::integer;
END $$;

-- As before, and what it has locked it leases, or it gives its locks back and looks again: others pass over what is locked, and would
-- take what comes after it. That is not so of what somebody has changed meanwhile so that it is not ready here any more, nor of what is
-- more than the bytes of one pull of whole groups: it stays locked until the transaction ends. And a partition that is paused delivers
-- nothing, though a pull found it open shortly before.
CREATE OR REPLACE FUNCTION pull(
    p_name text, p_dead boolean, p_max integer, p_lease_ms bigint, p_token uuid,
    p_lanes smallint[], p_places bigint[], p_last_lanes smallint[], p_due_ms bigint, p_members integer DEFAULT 1
) RETURNS TABLE (
    part integer, id uuid, lane smallint, pos bigint, deliveries integer, age interval, headers bytea, body bytea, place bytea,
    looked_us integer, number integer
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c_most_bytes CONSTANT bigint := 33554432; -- known to the client as PULL_BYTES
    c_most_tries CONSTANT integer := 3;
    v_now   timestamptz := clock_timestamp();
    v_until timestamptz := v_now + milliseconds(p_lease_ms);
    v_since timestamptz := coalesce(v_now - milliseconds(p_due_ms), '-infinity');
    v_first smallint := first_lane(p_dead);
    v_part  integer;
    v_is_due boolean;
    v_is_more_due boolean := false;
    v_began timestamptz := v_now;
    v_bytes bigint;
    v_ctids tid[];
    v_fitting tid[];
    v_behind tid[];
    v_place bigint;
    v_is_misplaced boolean;
    v_is_whole CONSTANT boolean := p_members > 1 AND NOT p_dead;
    v_looked_us integer;
BEGIN
    SELECT p.part, EXISTS (SELECT FROM message m WHERE m.part = p.part AND m.due > v_since AND m.due <= v_now)
    INTO v_part, v_is_due
    FROM partition p WHERE p.name = p_name AND NOT CASE WHEN p_dead THEN p.dead_paused ELSE p.paused END;
    IF v_part IS NULL THEN
        RETURN;
    END IF;
    IF v_is_due THEN
        v_is_more_due := bring(v_part, v_now, v_since);
        v_began := clock_timestamp(); -- that was work, not looking
        IF v_is_more_due THEN
            p_lanes := ARRAY[0];
            p_places := ARRAY[0];
            p_last_lanes := ARRAY[99];
        END IF;
    END IF;
    -- Each try can be undone, which gives back its locks at once.
    FOR v_try IN 1..c_most_tries LOOP
    BEGIN
        v_place := place_at(clock_timestamp());
        IF v_is_whole THEN
            SELECT w.offered, w.behind, w.last_place > v_place INTO v_ctids, v_behind, v_is_misplaced
            FROM lock_whole(v_part, v_first, p_max, p_members, p_lanes, p_places, p_last_lanes) w;
        ELSE
            -- A row is locked only when it is taken, and what is locked keeps its place, so that it need not be looked up again.
            SELECT array_agg(l.ctid), bool_or(l.pos > v_place), sum(l.bytes) INTO v_ctids, v_is_misplaced, v_bytes FROM (
                SELECT f.ctid, f.pos, f.bytes FROM unnest(p_lanes, p_places, p_last_lanes) AS s(lane, place, last_lane)
                CROSS JOIN LATERAL (
                    SELECT m.ctid, m.pos, octet_length(m.body) AS bytes FROM message m
                    WHERE m.part = v_part AND m.state = 0 AND (m.lane, m.pos) >= (v_first + s.lane, s.place)
                        AND m.lane <= v_first + s.last_lane
                    ORDER BY m.lane, m.pos LIMIT p_max FOR UPDATE SKIP LOCKED
                ) f LIMIT p_max
            ) l;
        END IF;
        -- What got its place after this began was ready before it, elsewhere, if it is not just being pushed: somebody took it and
        -- put it behind others, and this statement went by where it had been. So it looks again; not for ever, as clocks go back.
        IF v_is_misplaced AND v_try < c_most_tries THEN
            RAISE 'what is locked stands elsewhere by now' USING ERRCODE = 'AQ003';
        END IF;
        IF NOT v_is_more_due THEN
            v_looked_us := least(extract(epoch FROM clock_timestamp() - v_began) * 1000000, 2147483647);
        END IF;
        IF v_is_whole THEN
            RETURN QUERY
            SELECT v_part, w.id, (w.lane - v_first)::smallint, w.pos, w.deliveries, w.age, w.headers, w.body, w.place, v_looked_us, w.number
            FROM lease_whole(v_part, p_members, v_ctids, v_behind, p_token, v_now, v_until, c_most_bytes) w;
            RETURN;
        END IF;
        IF v_bytes > c_most_bytes THEN
            SELECT array_agg(b.ctid), count(*) INTO v_fitting, p_max FROM (
                SELECT m.ctid, sum(octet_length(m.body)) OVER (ORDER BY m.lane, m.pos) - octet_length(m.body) AS before
                FROM message m WHERE m.ctid = ANY (v_ctids)
            ) b WHERE b.before < c_most_bytes;
            IF p_max < cardinality(v_ctids) AND v_try < c_most_tries THEN
                RAISE 'more is locked than is leased' USING ERRCODE = 'AQ003';
            END IF;
            v_ctids := v_fitting;
        END IF;
        -- A statement of its own, to see what it has locked: also what somebody gave back after the first one began. And a pause that
        -- came since then.
        RETURN QUERY UPDATE message m SET
            state = 1, deliveries = m.deliveries + 1, token = p_token, until = v_until, due = v_until
        WHERE m.ctid = ANY (v_ctids)
            AND EXISTS (SELECT FROM partition p WHERE p.part = v_part AND NOT CASE WHEN p_dead THEN p.dead_paused ELSE p.paused END)
        RETURNING m.part, m.id, m.lane - v_first, m.pos, m.deliveries, v_now - m.pushed_at, m.headers, m.body, tidsend(m.ctid), v_looked_us,
            NULL::integer;
        RETURN;
    EXCEPTION WHEN SQLSTATE 'AQ003' THEN NULL;
    END;
    END LOOP;
END $$;
