-- A job that an administrator held: only an administrator lets it run again, also after it was killed.
ALTER TABLE job ADD COLUMN admin_held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hole ADD COLUMN admin_held INTEGER NOT NULL DEFAULT 0;

-- Since when a user is disabled; NULL: is not. The tokens of a disabled user are kept, and open nothing.
ALTER TABLE account ADD COLUMN disabled_at REAL;
CREATE INDEX token_account ON token (account) WHERE kind = 'user';

-- Who did what to whom, when and from where. `count`: so many times until `at`; `by` '' is unknown.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    by      TEXT NOT NULL,
    origin  TEXT NOT NULL,
    count   INTEGER NOT NULL DEFAULT 1,
    detail  TEXT NOT NULL DEFAULT ''
);
CREATE INDEX audit_at ON audit (at);
