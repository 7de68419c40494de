-- As 0004_retention.sql, without what it makes of older rows: no PostgreSQL has any.
-- Forgetting jobs that ended long ago, and what must be known so that nothing is forgotten too early.

-- What was given out of each kind of identifier before rows were deleted: none is ever given out again.
CREATE TABLE id_mark (
    name  TEXT PRIMARY KEY,
    given INTEGER NOT NULL
) WITHOUT ROWID;

-- The templates of a submission are numbered in one go. `held`: how many of its jobs no queue could run then.
ALTER TABLE submission ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submission ADD COLUMN first_template INTEGER;
ALTER TABLE submission ADD COLUMN last_template INTEGER;

-- Which submissions name an uploaded file.
CREATE TABLE sandbox_use (
    owner         TEXT NOT NULL,
    sha256        TEXT NOT NULL,
    submission_id INTEGER NOT NULL,
    PRIMARY KEY (owner, sha256, submission_id)
) WITHOUT ROWID;
CREATE INDEX sandbox_use_of ON sandbox_use (submission_id);

-- `unused_since`: no job names the file since it was last looked for one.
ALTER TABLE sandbox ADD COLUMN unused_since REAL;
-- What each user has on the shelf.
CREATE TABLE sandbox_usage (
    owner TEXT PRIMARY KEY,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
