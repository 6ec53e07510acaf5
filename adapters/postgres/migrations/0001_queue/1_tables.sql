-- A message is one row of one table, from push to removal. What state it is in decides which partial index holds it, so that
-- finding what comes next never looks at what is in another state.

-- A partition and its dead letters, which share one key: an id lives once in both together.
CREATE TABLE partition (
    part        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    used        boolean NOT NULL DEFAULT false, -- has or had messages, dead letters apart
    paused      boolean NOT NULL DEFAULT false,
    dead_paused boolean NOT NULL DEFAULT false
);

-- Columns that always hold something come first: where they are in a row is known, while what follows an empty one has to be looked for.
CREATE TABLE message (
    id         uuid        NOT NULL,
    -- Its place among messages of its lane: when it took that place, in microseconds since 1970, times 1024, plus its number
    -- in the call that put it there.
    pos        bigint      NOT NULL,
    pushed_at  timestamptz NOT NULL,
    part       integer     NOT NULL,
    deliveries integer     NOT NULL DEFAULT 0,
    -- Twice its rank, where 0 is the most urgent; plus 1, unless it was given back and so goes ahead of the others; plus 100
    -- among the dead letters.
    lane       smallint    NOT NULL,
    state      smallint    NOT NULL,      -- 0 ready, 1 leased, 2 delayed or postponed, 3 behind others of its group
    head       boolean     NOT NULL DEFAULT false, -- its group waits for it
    cancel     boolean     NOT NULL DEFAULT false, -- cancellation was requested while it was held
    -- State 1: no later than the lease's end. An extension leaves it, so that no index has to change. State 2: the delay's end.
    -- State 3: when it was pushed in a transaction of the application's, which left its group alone: somebody has to look at it.
    due        timestamptz,
    until      timestamptz,               -- state 1: the lease's end
    token      uuid,                      -- state 1: proof of ownership
    grp        bytea,
    dedup      bytea,                     -- only while it holds its key
    headers    bytea,                     -- an envelope whose headers replace those of the body
    body       bytea       NOT NULL,      -- the envelope
    -- A claim makes a new version of its row, with new entries: room for them beside the old ones saves splitting and tidying pages.
    PRIMARY KEY (part, id) WITH (fillfactor = 45)
) WITH (
    fillfactor = 60,                      -- room for what claims and extensions write, within the page
    vacuum_truncate = false,              -- giving pages back would lock out everybody
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_analyze_threshold = 50000,
    autovacuum_analyze_scale_factor = 0.2
);

CREATE INDEX message_ready ON message (part, lane, pos) WHERE state = 0;
CREATE INDEX message_due ON message (part, due) WHERE due IS NOT NULL;
-- Of delays that end together the urgent come first. And what joins its group later; no claim touches either.
CREATE INDEX message_later ON message (part, state, lane, due) WHERE state > 1 AND due IS NOT NULL;
CREATE INDEX message_dead ON message (part, id) WHERE lane >= 100;
CREATE INDEX message_blocked ON message (part, grp, pos) WHERE state = 3;
CREATE UNIQUE INDEX message_head ON message (part, grp) WHERE head;
CREATE UNIQUE INDEX message_dedup ON message (part, dedup) WHERE dedup IS NOT NULL;

-- One row for each group with members, to be locked by whoever changes who its head is.
CREATE TABLE message_group (
    part integer NOT NULL,
    name bytea   NOT NULL,
    PRIMARY KEY (part, name)
) WITH (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.01);
