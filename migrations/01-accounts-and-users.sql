-- Public labels of accounts: minted at first sight, kept for good.
CREATE TABLE accounts (
    auth_id    TEXT PRIMARY KEY,
    label      TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE users (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE COLLATE NOCASE,
    enabled    INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL
) STRICT;

-- A key is kept as a keyed hash only; `masked` is what may be shown of it.
CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE,
    masked       TEXT NOT NULL,
    enabled      INTEGER NOT NULL DEFAULT 1,
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT
) STRICT;

CREATE INDEX api_keys_of_user ON api_keys (user_id);

-- The oldest version of the schema whose programs can still use this database.
CREATE TABLE compatibility (
    only_row      INTEGER PRIMARY KEY CHECK (only_row = 1),
    oldest_schema INTEGER NOT NULL
) STRICT;

INSERT INTO compatibility VALUES (1, 1);
