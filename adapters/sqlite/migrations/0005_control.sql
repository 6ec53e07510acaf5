-- Small shared entries on which processes agree, apart from all messages.
CREATE TABLE anyqueue_control (
    key        TEXT    NOT NULL UNIQUE, -- in the order of its bytes
    version    INTEGER NOT NULL,        -- 64 bits, drawn by who wrote it
    expires_ms INTEGER,                 -- from then on it is gone; NULL: it stays until it is deleted
    value      BLOB    NOT NULL
);
CREATE INDEX anyqueue_control_lapse ON anyqueue_control (expires_ms) WHERE expires_ms IS NOT NULL;
