-- The ends of tasks: of each id in a partition the last one, or the greatest. With its message gone, nothing else is in the file of it.
CREATE TABLE anyqueue_ended (
    part       INTEGER NOT NULL,
    id         BLOB    NOT NULL,       -- 16 bytes, the message's
    state      INTEGER NOT NULL,       -- 1 cancelled, 2 failed, 3 timed out, 4 succeeded
    ended_ms   INTEGER NOT NULL,
    expires_ms INTEGER,                -- from then on it is told no more; NULL: kept until it is deleted
    rank       INTEGER NOT NULL,       -- among ends of the same task
    body       BLOB    NOT NULL,       -- the end but its result
    result     BLOB,                   -- the last column: who reads the others reads none of its pages
    PRIMARY KEY (part, id)
) WITHOUT ROWID;
-- A page of each state in its order, and, without a look at the rows, their number.
CREATE INDEX anyqueue_ended_moment ON anyqueue_ended (part, state, ended_ms, id, expires_ms);
CREATE INDEX anyqueue_ended_lapse ON anyqueue_ended (expires_ms) WHERE expires_ms IS NOT NULL;
