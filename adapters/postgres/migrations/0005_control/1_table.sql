-- Small entries on which processes agree, apart from all messages.
CREATE TABLE control_entry (
    key        text COLLATE "C" PRIMARY KEY,
    version    bigint NOT NULL, -- 64 bits that whoever wrote the content has drawn, as a signed number
    expires_at bigint,          -- in milliseconds since 1970, by this server's clock; kept until it is deleted without one
    value      bytea  NOT NULL
) WITH (
    -- Few rows that are written often: every one that lives is replaced every few seconds.
    fillfactor = 50,
    vacuum_truncate = false,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_cost_limit = 2000
);

CREATE INDEX control_entry_expiring ON control_entry (expires_at) WHERE expires_at IS NOT NULL;
