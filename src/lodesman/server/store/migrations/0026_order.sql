-- After which ends of its payload a job is tried again (`jobs.retries.RetryRule`) as JSON; NULL: after none.
ALTER TABLE template ADD COLUMN retry TEXT;

-- The jobs from job_id to last_job of a submission wait for those from first to last, which are of one submission, too
-- (parent_id; its first job is base). ok: they must be Done. by_index: each waits for its own one. A row goes when all of its
-- jobs wait no more; what has happened so far follows from the states of the jobs.
CREATE TABLE dependency (
    job_id        INTEGER NOT NULL,
    first         INTEGER NOT NULL,
    ok            INTEGER NOT NULL,
    last_job      INTEGER NOT NULL,
    last          INTEGER NOT NULL,
    by_index      INTEGER NOT NULL,
    cancel        INTEGER NOT NULL,
    submission_id INTEGER NOT NULL,
    parent_id     INTEGER NOT NULL,
    base          INTEGER NOT NULL,
    PRIMARY KEY (job_id, first, ok)
) WITHOUT ROWID;
CREATE INDEX dependency_submission ON dependency (submission_id);
