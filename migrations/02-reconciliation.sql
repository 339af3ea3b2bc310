-- Set while no credential file describes the account: its rows are invisible then, and purged later.
ALTER TABLE accounts ADD COLUMN removed_at TEXT;

-- An operator's decision, which survives restarts and the return of the files.
ALTER TABLE accounts ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;

-- What is held against an account beyond a restart. Times are RFC 3339.
CREATE TABLE account_health (
    auth_id           TEXT PRIMARY KEY REFERENCES accounts (auth_id) ON UPDATE CASCADE ON DELETE CASCADE,
    -- The first half of the SHA-256 of an access token that was refused.
    rejected          BLOB,
    quota_seen_at     TEXT,
    quota_until       TEXT,
    quota_resets_at   TEXT,
    quota_plan        TEXT,
    workspace_seen_at TEXT,
    workspace_until   TEXT
) STRICT;

-- Which account holds which session. The session is a keyed hash, never its id.
CREATE TABLE bindings (
    digest     BLOB PRIMARY KEY,
    auth_id    TEXT NOT NULL REFERENCES accounts (auth_id) ON UPDATE CASCADE ON DELETE CASCADE,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL
) STRICT;

CREATE INDEX bindings_of_account ON bindings (auth_id);

-- Who changed what through the management. Never a secret.
CREATE TABLE audit (
    id     INTEGER PRIMARY KEY,
    at     TEXT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    result TEXT NOT NULL
) STRICT;
