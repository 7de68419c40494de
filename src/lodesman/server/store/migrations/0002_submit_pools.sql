-- SubmitPools as bitmaps, passes, and task queues that no queue can run (ADR 0016).

-- The CE queues that SubmitPools speak of. A queue keeps its bit for as long as it is configured.
CREATE TABLE pool_queue (
    bit   INTEGER PRIMARY KEY,
    site  TEXT NOT NULL,
    ce    TEXT NOT NULL,
    queue TEXT NOT NULL,
    UNIQUE (site, ce, queue)
);
INSERT INTO pool_queue (bit, site, ce, queue)
SELECT row_number() OVER (ORDER BY site, ce, queue) - 1, site, ce, queue
FROM (SELECT DISTINCT site, ce, queue FROM submit_pool_queue);

-- One row a pool. `queues`: bit b is bit b % 8 of byte b / 8. `unused_since`: no job needs it since then.
CREATE TABLE submit_pool_bits (
    id           TEXT PRIMARY KEY,
    vo           TEXT NOT NULL,
    requirements TEXT NOT NULL,
    queues       BLOB NOT NULL,
    created_at   REAL NOT NULL,
    unused_since REAL
) WITHOUT ROWID;
-- Their queues are evaluated by the first pass, which comes with the start.
INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at)
SELECT id, vo, requirements, x'', created_at FROM submit_pool;

-- Every evaluation of all pools: its time stamp is that of all of them.
CREATE TABLE submit_pool_pass (
    id       INTEGER PRIMARY KEY,
    at       REAL NOT NULL,
    cause    TEXT NOT NULL,
    config   TEXT NOT NULL,
    pools    INTEGER NOT NULL,
    changed  INTEGER NOT NULL,
    held     INTEGER NOT NULL,
    released INTEGER NOT NULL,
    seconds  REAL NOT NULL
);
-- A pass is due if more were asked for than were answered. `version`: changes whenever a pool does.
CREATE TABLE submit_pool_state (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    asked    INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    version  INTEGER NOT NULL
);
INSERT INTO submit_pool_state VALUES (1, 0, 0, 0);

-- What a pool is made of again when it was removed and a job needs it once more.
ALTER TABLE task_queue ADD COLUMN requirements TEXT NOT NULL DEFAULT '';
ALTER TABLE task_queue ADD COLUMN pool_id TEXT AS (json_extract(key, '$.submit_pool')) VIRTUAL;
UPDATE task_queue SET requirements = coalesce((SELECT p.requirements FROM submit_pool p WHERE p.id = pool_id), '')
WHERE pool_id != '';
CREATE INDEX task_queue_pool ON task_queue (pool_id) WHERE pool_id != '';

DROP TABLE submit_pool;
DROP TABLE submit_pool_queue;

-- Task queues that no configured queue can run: their waiting jobs are Held, however many they are.
CREATE TABLE task_queue_hold (
    tq_id  INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    since  REAL NOT NULL
);
-- What happened to all waiting jobs of a task queue; numbered with the events of jobs.
CREATE TABLE task_queue_event (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    tq_id  INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX task_queue_event_of ON task_queue_event (tq_id);
-- Held by a person. Few, and found without reading all jobs.
CREATE INDEX job_held ON job (tq_id) WHERE state = 'Held';

-- Until now a job that no queue could run was held itself, as by a person, but for `by` in the event.
CREATE TEMP TABLE impossible_run AS
SELECT c.id AS cohort_id, c.submission_id, c.tq_id, c.base, h.start, h.stop, h.reason, c.template_id
FROM hole h JOIN cohort c ON c.id = h.cohort_id WHERE h.state = 'Held' AND NOT EXISTS (
    SELECT 1 FROM event e WHERE e.last_job IS NOT NULL AND e.kind = 'Held' AND e.job_id <= c.base + h.start
    AND e.last_job >= c.base + h.stop - 1 AND json_extract(e.data, '$.by') = 'user');
CREATE TEMP TABLE impossible_row AS
SELECT j.id, j.tq_id, j.reason FROM job j JOIN event e ON e.id = j.last_event
WHERE j.state = 'Held' AND e.kind = 'Held' AND json_extract(e.data, '$.by') IS NULL;
INSERT INTO task_queue_hold (tq_id, reason, since)
SELECT tq_id, min(reason), unixepoch() FROM
(SELECT tq_id, reason FROM impossible_run UNION ALL SELECT tq_id, reason FROM impossible_row) GROUP BY tq_id;
UPDATE task_queue_count SET emptied_at = NULL, waiting = waiting
    + (SELECT coalesce(sum(r.stop - r.start), 0) FROM impossible_run r WHERE r.tq_id = task_queue_count.tq_id)
    + (SELECT count(*) FROM impossible_row r WHERE r.tq_id = task_queue_count.tq_id)
WHERE tq_id IN (SELECT tq_id FROM task_queue_hold);
UPDATE hole SET state = 'Moved' WHERE (cohort_id, start) IN (SELECT cohort_id, start FROM impossible_run);
INSERT INTO cohort (id, submission_id, tq_id, base, start, stop, cursor, template_id)
SELECT (SELECT max(id) FROM cohort) + row_number() OVER (), submission_id, tq_id, base, start, stop, start, template_id
FROM impossible_run;
UPDATE job SET state = 'Waiting', queued = 1, reason = '' WHERE id IN (SELECT id FROM impossible_row);
DROP TABLE impossible_run;
DROP TABLE impossible_row;

-- What readers use. Jobs that are Held by their task queue do not count as waiting.
DROP VIEW queue_waiting;
CREATE VIEW queue_jobs AS
SELECT c.tq_id, c.waiting - coalesce(r.n, 0) AS jobs FROM task_queue_count c LEFT JOIN (
    SELECT a.tq_id, count(*) AS n FROM attempt a JOIN task_queue_count k ON k.tq_id = a.tq_id
    WHERE a.id > (SELECT claims_at FROM leadership) AND a.id > k.as_of GROUP BY a.tq_id
) r ON r.tq_id = c.tq_id;

CREATE VIEW queue_waiting AS
SELECT q.tq_id, q.jobs AS waiting FROM queue_jobs q
WHERE NOT EXISTS (SELECT 1 FROM task_queue_hold h WHERE h.tq_id = q.tq_id);

CREATE VIEW submit_pool AS
SELECT id, requirements, vo, queues, created_at, unused_since,
    max(created_at, coalesce((SELECT at FROM submit_pool_pass ORDER BY id DESC LIMIT 1), 0)) AS refreshed_at
FROM submit_pool_bits;

CREATE VIEW submit_pool_queue AS
SELECT p.id AS pool_id, q.site, q.ce, q.queue FROM submit_pool_bits p JOIN pool_queue q
ON ((instr('0123456789ABCDEF', substr(hex(substr(p.queues, q.bit / 8 + 1, 1)), 2 - q.bit % 8 / 4, 1)) - 1)
    >> (q.bit % 4)) & 1;
