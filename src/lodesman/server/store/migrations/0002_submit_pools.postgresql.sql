-- As 0002_submit_pools.sql, without what it makes of older rows: no PostgreSQL has any.
-- SubmitPools as bitmaps, passes, and task queues that no queue can run (ADR 0016).

-- The CE queues that SubmitPools speak of. A queue keeps its bit for as long as it is configured.
CREATE TABLE pool_queue (
    bit   INTEGER PRIMARY KEY,
    site  TEXT NOT NULL,
    ce    TEXT NOT NULL,
    queue TEXT NOT NULL,
    UNIQUE (site, ce, queue)
);

-- One row a pool. `queues`: bit b is bit b % 8 of byte b / 8. `unused_since`: no job needs it since then.
CREATE TABLE submit_pool_bits (
    id           TEXT PRIMARY KEY,
    vo           TEXT NOT NULL,
    requirements TEXT NOT NULL,
    queues       BLOB NOT NULL,
    created_at   REAL NOT NULL,
    unused_since REAL
) WITHOUT ROWID;

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
ALTER TABLE task_queue ADD COLUMN pool_id TEXT AS (key::json ->> 'submit_pool') STORED;
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
ON CASE WHEN q.bit < 8 * length(p.queues) THEN get_bit(p.queues, q.bit) = 1 END;
