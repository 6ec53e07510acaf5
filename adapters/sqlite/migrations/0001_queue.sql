-- A message lives in `anyqueue_message` from push to removal, and in exactly one of ready, timed and blocked. Moving
-- between those touches small rows only: the body is written once.

-- The next position. Positions order messages; a message's first one is also its key, so keys are never used twice.
CREATE TABLE anyqueue_counter (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    next      INTEGER NOT NULL,
    forgotten INTEGER NOT NULL DEFAULT 0, -- how often rows of partitions were deleted
    boot      TEXT,                       -- a start of the host, and how far the time of day
    ahead_ms  INTEGER                     -- was then ahead of the clock that nobody sets
);
INSERT INTO anyqueue_counter (one, next) VALUES (1, 1);

-- Rows of partitions that have nothing are deleted now and then.
CREATE TABLE anyqueue_partition (
    part   INTEGER PRIMARY KEY,        -- of dead letters: the negative of their home's
    name   TEXT    NOT NULL,
    dead   INTEGER NOT NULL,           -- 1: the dead letters of the partition of that name
    paused INTEGER NOT NULL DEFAULT 0,
    UNIQUE (dead, name)
);

CREATE TABLE anyqueue_message (
    seq   INTEGER PRIMARY KEY,
    part  INTEGER NOT NULL,
    rank  INTEGER NOT NULL,            -- 0 is the most urgent
    pos   INTEGER NOT NULL,            -- its place among messages of its rank that were never delivered
    id    BLOB    NOT NULL,            -- 16 bytes
    grp   TEXT,
    joined INTEGER NOT NULL,           -- its place in its group, if it is in one, from when it joined that
    dedup TEXT,                        -- only while it holds its key
    body  BLOB    NOT NULL             -- the envelope
);
-- One index for the identity and for browsing. An id lives once in a partition and its dead letters together, which whoever
-- stores a message looks up.
CREATE UNIQUE INDEX anyqueue_message_id ON anyqueue_message (part, id);
CREATE UNIQUE INDEX anyqueue_message_dedup ON anyqueue_message (part, dedup) WHERE dedup IS NOT NULL;

-- Can be pulled now. What was given back has its position less 2^62, and so comes before all that was never delivered.
CREATE TABLE anyqueue_ready (
    part       INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    pos        INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    cancel     INTEGER NOT NULL,       -- 1: cancellation was requested while it was held
    head       INTEGER NOT NULL,       -- 1: it is at the head of a group, which ends or goes on when it leaves
    PRIMARY KEY (part, rank, pos)
) WITHOUT ROWID;

-- Not available until `at_ms` (Unix time): 1 leased, 2 delayed by its pusher, 3 postponed by a consumer.
CREATE TABLE anyqueue_timed (
    seq        INTEGER PRIMARY KEY,
    part       INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    cancel     INTEGER NOT NULL,
    head       INTEGER NOT NULL,
    token      BLOB
);
CREATE INDEX anyqueue_timed_due ON anyqueue_timed (part, at_ms, state);

-- Groups with at least one member that has joined; how many are at the head, each on offer, held or postponed; and those behind them.
-- Several are at the head only where they were claimed together.
CREATE TABLE anyqueue_group (
    part  INTEGER NOT NULL,
    grp   TEXT    NOT NULL,
    heads INTEGER NOT NULL,
    PRIMARY KEY (part, grp)
) WITHOUT ROWID;
CREATE TABLE anyqueue_blocked (
    part   INTEGER NOT NULL,
    grp    TEXT    NOT NULL,
    joined INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (part, grp, joined)
) WITHOUT ROWID;
