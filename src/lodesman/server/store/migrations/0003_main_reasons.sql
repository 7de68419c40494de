-- Why the jobs of a task queue wait: one main reason each, for lists and metrics. Only what changed is written.
CREATE TABLE task_queue_reason (
    tq_id  INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '',
    since  REAL NOT NULL
);
CREATE INDEX task_queue_reason_by ON task_queue_reason (reason, detail);

-- When the reasons were last judged, and how old the oldest fact they were judged by was then.
CREATE TABLE reason_pass (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    at       REAL NOT NULL,
    facts_at REAL
);
