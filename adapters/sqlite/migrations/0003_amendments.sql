-- Set aside: given to nobody. Enabled, it stands where it stood, or waits for `at_ms` still, or if that is over joins the end.
CREATE TABLE anyqueue_disabled (
    part       INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    at_ms      INTEGER,
    deliveries INTEGER NOT NULL,
    cancel     INTEGER NOT NULL,
    returned   INTEGER NOT NULL,       -- 1: it was given back, and so comes before all that was never delivered
    PRIMARY KEY (part, seq)
) WITHOUT ROWID;

-- What is behind others of its group may have been delivered before it came to stand there.
ALTER TABLE anyqueue_blocked ADD COLUMN deliveries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE anyqueue_blocked ADD COLUMN cancel INTEGER NOT NULL DEFAULT 0;
ALTER TABLE anyqueue_blocked ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;

-- When a message gets rank 0, wherever it stands; and the first such moment in the file, or an earlier one, so that nobody has to look
-- for what is not there.
ALTER TABLE anyqueue_message ADD COLUMN urgent_ms INTEGER;
CREATE INDEX anyqueue_message_urgent ON anyqueue_message (urgent_ms) WHERE urgent_ms IS NOT NULL;
ALTER TABLE anyqueue_counter ADD COLUMN urgent_ms INTEGER;
