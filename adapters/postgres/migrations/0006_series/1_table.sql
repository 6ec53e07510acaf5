-- Counts of the ends of tasks by the minute: of those that ended alike, and waited and ran about as long. Each counter is spread over shards, which
-- readers add up: see count_at.
CREATE TABLE series (
    minute        bigint   NOT NULL, -- since 1970, by this server's clock
    ran_us        bigint   NOT NULL, -- in all
    waited_us     bigint   NOT NULL,
    tasks         bigint   NOT NULL,
    part          integer  NOT NULL,
    shard         integer  NOT NULL,
    state         smallint NOT NULL,
    ran_bucket    smallint NOT NULL, -- n: less than 2^n microseconds, and no less than half of that; 39: more
    waited_bucket smallint NOT NULL,
    kind          bytea    NOT NULL, -- of task, in UTF-8; empty: none
    PRIMARY KEY (part, minute, kind, state, ran_bucket, waited_bucket, shard)
) WITH (
    fillfactor = 50, -- counters of this minute change in their place
    vacuum_truncate = false,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0.05
);
CREATE INDEX series_by_minute ON series (minute);

CREATE FUNCTION series_bucket(p_us bigint) RETURNS smallint LANGUAGE sql IMMUTABLE
AS $$ SELECT least(39, length(ltrim(p_us::bit(64)::text, '0')))::smallint $$;
