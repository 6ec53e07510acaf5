-- The ends of tasks, which are kept for a time after their messages are gone.

-- What lapses together is in one table, which is then emptied as a whole: rows need not be deleted one by one, and leave nothing to clean up.
-- The tables are two rings of twelve, and one for what is deleted by row: kept shorter or longer than fits a ring, or until somebody deletes it.
-- A row is in the table of the stretch of time in which it lapses. What can be stored at a moment lapses in the present stretch or the next
-- ten, so the one before is free to be emptied. All tables are made here: none comes or goes while the queue is in use.
CREATE TABLE ended (
    id         uuid     NOT NULL,
    ended_at   bigint   NOT NULL, -- in milliseconds since 1970, by this server's clock
    rank       bigint   NOT NULL, -- among ends of the same task the greatest counts
    part       integer  NOT NULL,
    bucket     smallint NOT NULL, -- which table
    state      smallint NOT NULL,
    ended_us   smallint NOT NULL, -- the microseconds of its millisecond: which of two ends of a task is the later
    expires_at bigint,            -- in milliseconds since 1970; kept until it is deleted without one
    body       bytea    NOT NULL,
    result     bytea
) PARTITION BY LIST (bucket);

DO $$
BEGIN
    FOR b IN 0..23 LOOP
        EXECUTE format('CREATE TABLE ended_%s PARTITION OF ended FOR VALUES IN (%s)
            WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 50000, vacuum_truncate = false)', b, b);
    END LOOP;
END $$;
CREATE TABLE ended_24 PARTITION OF ended FOR VALUES IN (24) WITH (
    vacuum_truncate = false,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_analyze_threshold = 50000
);

CREATE INDEX ended_by_id ON ended (part, id);
CREATE INDEX ended_by_moment ON ended (part, state, ended_at, id);
CREATE INDEX ended_lapsing ON ended (expires_at) WHERE expires_at IS NOT NULL;

-- How long a stretch is: a table of the first ring gets what lapses within three hours, one of the second what lapses within 36. What is in the
-- last table lapses when it does.
CREATE FUNCTION ended_width(p_bucket integer) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_bucket < 12 THEN 10800000 WHEN p_bucket < 24 THEN 129600000 ELSE 1 END $$;

-- The table of what is kept for so long, and then lapses at this moment. A ring can hold what is kept for ten stretches; what is kept for less
-- than two would be done with long before its table.
CREATE FUNCTION ended_bucket(p_keep_ms bigint, p_expires_at bigint) RETURNS smallint LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN p_keep_ms BETWEEN 21600000 AND 108000000 THEN p_expires_at / 10800000 % 12
        WHEN p_keep_ms BETWEEN 108000001 AND 1296000000 THEN 12 + p_expires_at / 129600000 % 12
        ELSE 24
    END::smallint
$$;

-- In milliseconds since 1970.
CREATE FUNCTION ended_now() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint / 1000 $$;
