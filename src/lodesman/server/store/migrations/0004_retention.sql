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
CREATE TEMP TABLE template_of AS
SELECT template_id, submission_id FROM job UNION SELECT template_id, submission_id FROM cohort;
CREATE INDEX template_of_submission ON template_of (submission_id);
UPDATE submission SET
    first_template = (SELECT min(template_id) FROM template_of WHERE submission_id = submission.id),
    last_template = (SELECT max(template_id) FROM template_of WHERE submission_id = submission.id);

-- Which submissions name an uploaded file.
CREATE TABLE sandbox_use (
    owner         TEXT NOT NULL,
    sha256        TEXT NOT NULL,
    submission_id INTEGER NOT NULL,
    PRIMARY KEY (owner, sha256, submission_id)
) WITHOUT ROWID;
CREATE INDEX sandbox_use_of ON sandbox_use (submission_id);
INSERT OR IGNORE INTO sandbox_use (owner, sha256, submission_id)
SELECT s.owner, i.value ->> '$.sha256', s.id FROM template_of o JOIN template t ON t.id = o.template_id
JOIN submission s ON s.id = o.submission_id JOIN json_each(t.body, '$.input') i WHERE NOT t.expand;
INSERT OR IGNORE INTO sandbox_use (owner, sha256, submission_id)
SELECT s.owner, u.value ->> '$[0]', s.id FROM template_of o JOIN template t ON t.id = o.template_id
JOIN submission s ON s.id = o.submission_id JOIN json_each(t.body, '$.uploads') u WHERE t.expand;
DROP TABLE template_of;

-- `unused_since`: no job names the file since it was last looked for one.
ALTER TABLE sandbox ADD COLUMN unused_since REAL;
-- What each user has on the shelf.
CREATE TABLE sandbox_usage (
    owner TEXT PRIMARY KEY,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO sandbox_usage (owner, files, bytes) SELECT owner, count(*), sum(size) FROM sandbox GROUP BY owner;

-- Every job of its own has been in its task queue as a row: the index over `queued` tells who refers to a task queue.
UPDATE job SET queued = 1 WHERE queued IS NULL AND submission_id NOT IN (SELECT submission_id FROM cohort);
-- A counter that was replayed after a start did not tell when its task queue was emptied.
UPDATE task_queue_count SET emptied_at = unixepoch() WHERE waiting = 0 AND emptied_at IS NULL;
