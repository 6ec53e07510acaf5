-- Counts of the ends of tasks, by the minute: of those that ended alike, and waited and ran about as long.
CREATE TABLE anyqueue_series (
    part          INTEGER NOT NULL,
    minute        INTEGER NOT NULL,    -- since 1970
    kind          BLOB    NOT NULL,    -- of task, in UTF-8; empty: none
    state         INTEGER NOT NULL,    -- as in anyqueue_ended
    ran_bucket    INTEGER NOT NULL,    -- n: less than 2^n microseconds, and no less than half of that; 39: more
    waited_bucket INTEGER NOT NULL,
    tasks         INTEGER NOT NULL,
    ran_us        INTEGER NOT NULL,    -- in all
    waited_us     INTEGER NOT NULL,
    PRIMARY KEY (part, minute, kind, state, ran_bucket, waited_bucket)
) WITHOUT ROWID;
CREATE INDEX anyqueue_series_minute ON anyqueue_series (minute);
