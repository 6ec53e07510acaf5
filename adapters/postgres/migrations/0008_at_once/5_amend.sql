-- As before, but nothing stays locked that is in line, and no more is read where more waits.
CREATE OR REPLACE FUNCTION amend(
    p_name text, p_ids uuid[], p_lane smallint, p_delay_ms bigint, p_regroups boolean, p_grp bytea, p_disabled boolean,
    p_bodies bytea[], p_hashes bytea[]
) RETURNS TABLE (amended uuid[], held uuid[], there uuid[], dead uuid[], ready integer) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_part    integer;
    v_now     timestamptz;
    v_pos     bigint;
    v_ids     uuid[];
    v_numbers bigint[];
    v_behind  uuid[];
    v_behind_numbers bigint[];
    v_behind_grps bytea[];
    v_grps    bytea[]; -- that are left or joined
    v_is_disabled boolean;
    v_regroups boolean;
    v_lines_up boolean; -- at the end
    v_stays   boolean; -- in front of its group: others get in line again
    v_moment  timestamptz;
    h record;
BEGIN
    SELECT part INTO v_part FROM partition WHERE name = p_name;
    SELECT array_agg(l.id), array_agg(l.number) INTO v_ids, v_numbers FROM lock_not_in_line(v_part, false, p_ids, true, false) l;
    -- Not "= 3": that would make the index of such rows look good, which knows no ids.
    SELECT array_agg(m.id), array_agg(a.n), array_agg(m.grp) INTO v_behind, v_behind_numbers, v_behind_grps
    FROM (SELECT v_part AS part, u.* FROM unnest(p_ids) WITH ORDINALITY AS u(id, n) OFFSET 0) a JOIN message m ON m.part = a.part AND m.id = a.id
    WHERE m.lane < 100 AND m.state > 2;
    v_now := clock_timestamp();
    v_pos := place_at(v_now);
    ready := 0;

    FOR v_round IN 1..2 LOOP
        IF v_round = 2 THEN
            v_grps := v_grps || v_behind_grps;
            IF v_behind IS NOT NULL AND p_regroups AND p_grp IS NOT NULL THEN
                v_grps := v_grps || p_grp;
            END IF;
            EXIT WHEN v_grps IS NULL;
            PERFORM lock_groups(array_fill(v_part, ARRAY[cardinality(v_grps)]), v_grps);
            v_ids := v_behind;
            v_numbers := v_behind_numbers;
        END IF;
        FOR h IN
            SELECT m.id, m.pos, m.joined, m.lane, m.state, m.head, m.due, m.due_then, m.until, m.grp, m.urgent, a.n::integer,
                CASE WHEN cardinality(p_bodies) > 0 THEN sha256(m.body) END AS hash
            FROM (SELECT v_part AS part, u.* FROM unnest(v_ids, v_numbers) AS u(id, n) OFFSET 0) a
            JOIN message m ON m.part = a.part AND m.id = a.id
            WHERE v_round = 1 OR m.state > 2 AND m.grp = ANY (v_behind_grps)
            FOR UPDATE OF m SKIP LOCKED
        LOOP
            IF h.until > v_now THEN
                held := held || h.id;
                CONTINUE;
            END IF;
            CONTINUE WHEN cardinality(p_bodies) > 0 AND h.hash IS DISTINCT FROM p_hashes[h.n];

            -- It stands where the next pull would have it.
            h.lane := lane_at(h.lane, h.urgent, v_now);
            h.urgent := to_come(h.urgent, v_now);
            v_moment := NULL;
            v_is_disabled := false;
            IF h.state = 1 THEN -- its lease has run out
                h.lane := h.lane & -2;
            ELSIF h.state = 2 AND h.due = 'infinity' THEN
                v_is_disabled := true;
                v_moment := h.due_then;
            ELSIF h.state = 2 AND h.due > v_now THEN
                v_moment := h.due;
            ELSIF h.state = 2 THEN
                h.pos := place_at(h.due) + (h.pos & 1023);
                IF NOT h.head THEN
                    h.joined := h.pos;
                END IF;
            END IF;
            h.joined := coalesce(h.joined, h.pos);

            v_is_disabled := coalesce(p_disabled, v_is_disabled);
            v_regroups := p_regroups AND h.grp IS DISTINCT FROM p_grp;
            v_lines_up := v_regroups OR v_moment IS NOT NULL;
            IF p_delay_ms IS NOT NULL THEN
                v_moment := CASE WHEN p_delay_ms > 0 THEN v_now + milliseconds(p_delay_ms) END;
            END IF;
            v_stays := h.head AND NOT v_regroups AND NOT v_is_disabled AND coalesce(v_moment > v_now, false);
            IF h.head AND NOT v_stays THEN
                v_grps := v_grps || h.grp; -- which goes on
            END IF;
            IF v_regroups THEN
                h.grp := p_grp;
                h.joined := v_pos + h.n;
            END IF;
            IF p_lane IS NOT NULL THEN
                h.lane := p_lane + (h.lane & 1);
            END IF;

            h.state := 2;
            h.due_then := NULL;
            IF v_is_disabled THEN
                h.due := 'infinity';
                h.due_then := v_moment;
            ELSIF v_moment > v_now THEN
                h.due := v_moment;
                h.lane := h.lane | 1;
                IF p_delay_ms IS NOT NULL THEN
                    h.pos := v_pos + h.n;
                END IF;
            ELSE
                IF v_lines_up THEN
                    h.lane := h.lane | 1;
                    h.pos := v_pos + h.n;
                    IF NOT h.head THEN
                        h.joined := h.pos;
                    END IF;
                END IF;
                IF h.grp IS NULL THEN
                    h.state := 0;
                    h.due := h.urgent;
                    ready := ready + 1;
                ELSE
                    h.state := 3;
                    h.due := NULL;
                    IF v_round = 1 THEN
                        v_grps := v_grps || h.grp;
                    END IF;
                END IF;
            END IF;
            UPDATE message m SET
                pos = h.pos, joined = CASE WHEN h.grp IS NOT NULL THEN h.joined END, lane = h.lane, state = h.state, head = v_stays,
                due = h.due, due_then = h.due_then, until = NULL, token = NULL, grp = h.grp, urgent = h.urgent, body = coalesce(p_bodies[h.n], m.body)
            WHERE m.part = v_part AND m.id = h.id;
            amended := amended || h.id;
        END LOOP;
    END LOOP;
    IF v_grps IS NOT NULL THEN
        ready := ready + advance(array_fill(v_part, ARRAY[cardinality(v_grps)]), v_grps);
    END IF;
    SELECT array_agg(m.id) FILTER (WHERE m.lane < 100), array_agg(m.id) FILTER (WHERE m.lane >= 100) INTO there, dead
    FROM (SELECT v_part AS part, u.* FROM unnest(p_ids) AS u(id) OFFSET 0) a JOIN message m ON m.part = a.part AND m.id = a.id;
    RETURN NEXT;
END $$;

-- As before, and no more is read where more waits.
CREATE OR REPLACE FUNCTION bodies(p_name text, p_ids uuid[], p_most_bytes bigint) RETURNS TABLE (number integer, body bytea, hash bytea)
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off AS $$
    SELECT s.n::integer, CASE WHEN s.before < p_most_bytes THEN s.body END, CASE WHEN s.before < p_most_bytes THEN sha256(s.body) END
    FROM (
        SELECT a.n, m.body, sum(octet_length(m.body)) OVER (ORDER BY a.n) - octet_length(m.body) AS before
        FROM (SELECT p.part, u.* FROM partition p, unnest(p_ids) WITH ORDINALITY AS u(id, n) WHERE p.name = p_name OFFSET 0) a
        JOIN message m ON m.part = a.part AND m.id = a.id AND m.lane < 100
    ) s ORDER BY s.n
$$;
