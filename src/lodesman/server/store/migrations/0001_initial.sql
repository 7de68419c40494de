-- Rows that the hot path touches are narrow, and what it adds is appended: a claim dirties few pages.

CREATE TABLE leadership (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    epoch   INTEGER NOT NULL,
    batch   INTEGER NOT NULL,
    next_job INTEGER NOT NULL,
    -- Counters and cursors hold for the claims up to this attempt; later ones are in the attempts alone.
    claims_at INTEGER NOT NULL
);
INSERT INTO leadership VALUES (1, 0, 0, 1, 0);

CREATE TABLE account (
    name       TEXT PRIMARY KEY,
    vo         TEXT NOT NULL,
    groups     TEXT NOT NULL,
    admin      INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE token (
    hash       BLOB PRIMARY KEY,
    kind       TEXT NOT NULL,
    account    TEXT NOT NULL DEFAULT '',
    pilot_id   INTEGER,
    scopes     TEXT NOT NULL DEFAULT '[]',
    note       TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    expires_at REAL,
    nonce      TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX token_pilot ON token (pilot_id) WHERE pilot_id IS NOT NULL;

CREATE TABLE sandbox (
    owner      TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (owner, sha256)
) WITHOUT ROWID;

CREATE TABLE submission (
    id         INTEGER PRIMARY KEY,
    base       INTEGER NOT NULL UNIQUE,
    count      INTEGER NOT NULL,
    owner      TEXT NOT NULL,
    grp        TEXT NOT NULL,
    vo         TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at REAL NOT NULL,
    form       TEXT NOT NULL,
    record     TEXT NOT NULL,
    members    TEXT,
    request_id TEXT
);
CREATE UNIQUE INDEX submission_request ON submission (owner, request_id) WHERE request_id IS NOT NULL;

CREATE TABLE task_queue (
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL
);

-- Apart from task_queue so that a counter is one of hundreds on its page.
CREATE TABLE task_queue_count (
    tq_id      INTEGER PRIMARY KEY,
    waiting    INTEGER NOT NULL,
    row_cursor INTEGER NOT NULL DEFAULT 0,
    as_of      INTEGER NOT NULL DEFAULT 0,
    emptied_at REAL
);

-- Members [cursor, stop) of a submission that wait as one, except those in holes.
CREATE TABLE cohort (
    id            INTEGER PRIMARY KEY,
    submission_id INTEGER NOT NULL,
    tq_id         INTEGER NOT NULL,
    base          INTEGER NOT NULL,
    start         INTEGER NOT NULL,
    stop          INTEGER NOT NULL,
    cursor        INTEGER NOT NULL,
    template_id   INTEGER NOT NULL,
    first         INTEGER NOT NULL AS (base + start) STORED
);
CREATE INDEX cohort_open ON cohort (tq_id, first, id) WHERE cursor < stop;
CREATE INDEX cohort_submission ON cohort (submission_id, start);

CREATE TABLE hole (
    cohort_id INTEGER NOT NULL,
    start     INTEGER NOT NULL,
    stop      INTEGER NOT NULL,
    state     TEXT NOT NULL,
    reason    TEXT NOT NULL DEFAULT '',
    at        REAL NOT NULL,
    PRIMARY KEY (cohort_id, start)
) WITHOUT ROWID;

-- What a pilot is given, as JSON; `expand` tells whether it holds placeholders.
CREATE TABLE template (
    id           INTEGER PRIMARY KEY,
    expand       INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    body         TEXT NOT NULL
);

-- Only jobs that entered singly, were taken or were touched have a row. `queued` marks rows that
-- joined a task queue as rows; it stays set, so that a claim changes no index.
CREATE TABLE job (
    id            INTEGER PRIMARY KEY,
    submission_id INTEGER NOT NULL,
    tq_id         INTEGER NOT NULL,
    template_id   INTEGER NOT NULL,
    state         TEXT NOT NULL,
    attempt       INTEGER NOT NULL DEFAULT 0,
    pilot_id      INTEGER,
    queued        INTEGER,
    since         REAL NOT NULL,
    last_event    INTEGER,
    last_attempt  INTEGER,
    max_attempts  INTEGER NOT NULL DEFAULT 3,
    reason        TEXT NOT NULL DEFAULT ''
);
CREATE INDEX job_queued ON job (tq_id, id) WHERE queued IS NOT NULL;

CREATE TABLE attempt (
    id           INTEGER PRIMARY KEY,
    job_id       INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    previous     INTEGER,
    tq_id        INTEGER NOT NULL,
    cohort_id    INTEGER,
    pilot_id     INTEGER NOT NULL,
    claim_token  TEXT NOT NULL,
    site         TEXT NOT NULL,
    eligible     TEXT,
    claimed_at   REAL NOT NULL,
    started_at   REAL,
    ended_at     REAL,
    outcome      TEXT,
    cause        TEXT,
    exit_code    INTEGER,
    signal       INTEGER,
    cpu_seconds  REAL,
    wall_seconds REAL,
    max_rss_mb   REAL,
    output_sha256 TEXT,
    output_size  INTEGER,
    message      TEXT,
    tail         TEXT
);
-- Small whatever the history: it holds running attempts only.
CREATE INDEX attempt_live ON attempt (pilot_id) WHERE ended_at IS NULL;

-- Append-only; the events of a job are a chain from job.last_event by `previous`.
CREATE TABLE event (
    id       INTEGER PRIMARY KEY,
    at       REAL NOT NULL,
    job_id   INTEGER NOT NULL,
    last_job INTEGER,
    previous INTEGER,
    kind     TEXT NOT NULL,
    data     TEXT
);
CREATE INDEX event_range ON event (job_id) WHERE last_job IS NOT NULL;

CREATE TABLE pilot (
    id             INTEGER PRIMARY KEY,
    stamp          TEXT NOT NULL UNIQUE,
    state          TEXT NOT NULL,
    vo             TEXT NOT NULL,
    owner          TEXT NOT NULL DEFAULT '',
    grp            TEXT NOT NULL DEFAULT '',
    pilot_type     TEXT NOT NULL DEFAULT '',
    submission_pool TEXT NOT NULL DEFAULT '',
    tq_id          INTEGER,
    site           TEXT NOT NULL,
    ce             TEXT NOT NULL,
    queue          TEXT NOT NULL,
    requirements   TEXT NOT NULL DEFAULT '{}',
    request        TEXT NOT NULL DEFAULT '{}',
    node           TEXT NOT NULL DEFAULT '{}',
    native_id      TEXT,
    created_at     REAL NOT NULL,
    submitted_at   REAL,
    joined_at      REAL,
    last_seen      REAL,
    ended_at       REAL,
    drain          INTEGER NOT NULL DEFAULT 0,
    reason         TEXT NOT NULL DEFAULT '',
    jobs_done      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX pilot_live ON pilot (state) WHERE ended_at IS NULL;

CREATE TABLE director_iteration (
    id   INTEGER PRIMARY KEY,
    at   REAL NOT NULL,
    plan TEXT NOT NULL
);

CREATE TABLE submit_pool (
    id           TEXT PRIMARY KEY,
    requirements TEXT NOT NULL,
    vo           TEXT NOT NULL,
    created_at   REAL NOT NULL,
    refreshed_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE submit_pool_queue (
    pool_id TEXT NOT NULL,
    site    TEXT NOT NULL,
    ce      TEXT NOT NULL,
    queue   TEXT NOT NULL,
    PRIMARY KEY (pool_id, site, ce, queue)
) WITHOUT ROWID;

-- What readers use: counters and cursors with the claims that are in the attempts alone so far.
CREATE VIEW queue_waiting AS
SELECT c.tq_id, c.waiting - coalesce(r.n, 0) AS waiting FROM task_queue_count c LEFT JOIN (
    SELECT a.tq_id, count(*) AS n FROM attempt a JOIN task_queue_count k ON k.tq_id = a.tq_id
    WHERE a.id > (SELECT claims_at FROM leadership) AND a.id > k.as_of GROUP BY a.tq_id
) r ON r.tq_id = c.tq_id;

CREATE VIEW cohort_now AS
SELECT c.id, c.submission_id, c.tq_id, c.base, c.start, c.stop, c.template_id,
    max(c.cursor, coalesce(r.cursor, 0)) AS cursor
FROM cohort c LEFT JOIN (
    SELECT a.cohort_id, max(a.job_id) - k.base + 1 AS cursor FROM attempt a JOIN cohort k ON k.id = a.cohort_id
    WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id
) r ON r.cohort_id = c.id;
