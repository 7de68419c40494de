-- The whole schema for SQLite: a new database is made of this file, and schema.postgresql.sql is the same for PostgreSQL.
-- Whoever adds a migration changes both. Tests hold them equal to each other, and to what migrations make of an older
-- database (ADR 0086); so a new column stands last in its table, where a migration puts it.
--
-- Times are UNIX seconds and durations seconds, if a name does not say otherwise. A condition is 0 or 1. '' is none; NULL is
-- not known, or not yet.


-- The database itself -----------------------------------------------------------------------------------

-- What this database was brought up to date with. It may be there before all others, empty.
CREATE TABLE IF NOT EXISTS migration (
    number INTEGER PRIMARY KEY,  -- 0: an unfinished copy
    name   TEXT NOT NULL,
    sha256 TEXT NOT NULL         -- of its text
);

CREATE TABLE leadership (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    epoch       INTEGER NOT NULL,  -- of the writer: one more at each start
    batch       INTEGER NOT NULL,  -- commits so far
    next_job    INTEGER NOT NULL,  -- the id that the next job gets
    -- Counters and cursors hold for the claims up to this attempt; later ones are in the attempts alone.
    claims_at   INTEGER NOT NULL,
    -- Which state of the data this is. It changes when the database was restored, copied, or started from an older state:
    -- tokens of pilots carry it. '': the database has never been started.
    incarnation TEXT NOT NULL DEFAULT '',
    -- Which database this was when a server last began with it: a restored dump is another. 0: the files beside it say so.
    home        INTEGER NOT NULL DEFAULT 0
);
INSERT INTO leadership (one, epoch, batch, next_job, claims_at) VALUES (1, 0, 0, 1, 0);

-- What was given out of each kind of identifier before rows were deleted: none is ever given out again.
CREATE TABLE id_mark (
    name  TEXT PRIMARY KEY,  -- of the table
    given INTEGER NOT NULL   -- the greatest id
) WITHOUT ROWID;


-- Users and their rights --------------------------------------------------------------------------------

CREATE TABLE account (
    name        TEXT PRIMARY KEY,
    vo          TEXT NOT NULL,
    groups      TEXT NOT NULL,              -- a list of names as JSON
    admin       INTEGER NOT NULL DEFAULT 0,
    created_at  REAL NOT NULL,
    disabled_at REAL,                       -- NULL: is not; tokens of a disabled user are kept, and open nothing
    vo_admin    INTEGER NOT NULL DEFAULT 0  -- the user administers its VO
) WITHOUT ROWID;

CREATE TABLE token (
    hash       BLOB PRIMARY KEY,            -- SHA-256; the token itself is not kept
    kind       TEXT NOT NULL,               -- user, service, site; of a pilot: join, joined, pilot
    account    TEXT NOT NULL DEFAULT '',
    pilot_id   INTEGER,
    scopes     TEXT NOT NULL DEFAULT '[]',  -- a list of names as JSON
    note       TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    expires_at REAL,                        -- NULL: never
    nonce      TEXT NOT NULL DEFAULT '',    -- what a pilot gave as it joined with it
    -- The one it was made with, and is revoked with; NULL: none, or not known.
    parent     BLOB
) WITHOUT ROWID;
CREATE INDEX token_pilot ON token (pilot_id) WHERE pilot_id IS NOT NULL;
CREATE INDEX token_parent ON token (parent) WHERE parent IS NOT NULL;
CREATE INDEX token_account ON token (account) WHERE kind = 'user';

-- What was done to groups by command, the newest last: shares set beside the files' and taken back, members that came
-- and went.
CREATE TABLE group_change (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    grp     TEXT NOT NULL,
    change  TEXT NOT NULL,  -- share-set, share-reset, user-added, user-removed
    share   REAL,
    account TEXT NOT NULL,  -- who came or went
    by      TEXT NOT NULL,
    reason  TEXT NOT NULL,
    until   REAL            -- when a share ends; NULL: when it is taken back
);
CREATE INDEX group_change_of ON group_change (grp, id);

-- Who did what to whom, when and from where.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    by      TEXT NOT NULL,               -- '': not known
    origin  TEXT NOT NULL,
    count   INTEGER NOT NULL DEFAULT 1,  -- so many times until `at`
    detail  TEXT NOT NULL DEFAULT ''
);
CREATE INDEX audit_at ON audit (at);


-- Jobs --------------------------------------------------------------------------------------------------
-- Rows that the hot path touches are narrow, and what it adds is appended: a claim dirties few pages.

CREATE TABLE submission (
    id             INTEGER PRIMARY KEY,
    base           INTEGER NOT NULL UNIQUE,     -- the id of its first job
    count          INTEGER NOT NULL,            -- of its jobs, whose ids follow each other
    owner          TEXT NOT NULL,
    grp            TEXT NOT NULL,
    vo             TEXT NOT NULL,
    name           TEXT NOT NULL,
    created_at     REAL NOT NULL,
    form           TEXT NOT NULL,               -- in which language it came
    record         TEXT NOT NULL,               -- the description, as JSON
    members        TEXT,                        -- what differs from job to job, as JSON
    request_id     TEXT,                        -- given by the client: a second request with it is the first one
    held           INTEGER NOT NULL DEFAULT 0,  -- how many of its jobs no queue could run when it came
    first_template INTEGER,                     -- its templates are numbered in one go
    last_template  INTEGER,
    -- What job classes made of its descriptions, as JSON by index (`wire.jobs.Resolution`).
    resolution     TEXT
);
CREATE UNIQUE INDEX submission_request ON submission (owner, request_id) WHERE request_id IS NOT NULL;
-- The submissions of one user in the order of their jobs. Unique, since `base` is: lists rely on that order.
CREATE UNIQUE INDEX submission_owner ON submission (owner, base);
-- Only arrays have members without rows.
CREATE INDEX submission_array ON submission (base) WHERE count > 1;
-- Where lists of jobs and submissions of a time begin.
CREATE INDEX submission_created ON submission (created_at);

-- Who may read the jobs of a submission beside those who may change them.
CREATE TABLE submission_reader (
    submission_id INTEGER NOT NULL,
    reader        TEXT NOT NULL,  -- a user, or @ and a group, of the submission's VO
    at            REAL NOT NULL,
    by            TEXT NOT NULL,
    PRIMARY KEY (submission_id, reader)
) WITHOUT ROWID;
CREATE INDEX submission_reader_of ON submission_reader (reader, submission_id);

-- What a pilot is given.
CREATE TABLE template (
    id           INTEGER PRIMARY KEY,
    expand       INTEGER NOT NULL,  -- it holds placeholders
    max_attempts INTEGER NOT NULL,
    body         TEXT NOT NULL,     -- as JSON
    -- After which ends of its payload a job is tried again, as JSON (`languages.jobs.retries`); NULL: after none.
    retry        TEXT,
    -- What a job class made of jobs that were changed while they waited, as JSON (`wire.jobs.Resolution`).
    resolution   TEXT
);

-- Only jobs that entered singly, were taken or were touched have a row.
CREATE TABLE job (
    id            INTEGER PRIMARY KEY,
    submission_id INTEGER NOT NULL,
    tq_id         INTEGER NOT NULL,
    template_id   INTEGER NOT NULL,
    state         TEXT NOT NULL,
    attempt       INTEGER NOT NULL DEFAULT 0,  -- the number of the last one
    pilot_id      INTEGER,
    queued        INTEGER,                     -- it joined a task queue as a row; stays set: claims change no index
    since         REAL NOT NULL,               -- it is in this state
    last_event    INTEGER,                     -- heads the chain of its events
    last_attempt  INTEGER,                     -- heads the chain of its attempts
    max_attempts  INTEGER NOT NULL DEFAULT 3,
    reason        TEXT NOT NULL DEFAULT '',
    admin_held    INTEGER NOT NULL DEFAULT 0   -- only an administrator lets it run again, also after it was killed
);
CREATE INDEX job_queued ON job (tq_id, id) WHERE queued IS NOT NULL;
-- Held by a person. Few, and found without reading all jobs.
CREATE INDEX job_held ON job (tq_id) WHERE state = 'Held';

-- Members [cursor, stop) of a submission that wait as one, except those in holes.
CREATE TABLE cohort (
    id            INTEGER PRIMARY KEY,
    submission_id INTEGER NOT NULL,
    tq_id         INTEGER NOT NULL,
    base          INTEGER NOT NULL,                          -- of the submission
    start         INTEGER NOT NULL,
    stop          INTEGER NOT NULL,
    cursor        INTEGER NOT NULL,
    template_id   INTEGER NOT NULL,
    first         INTEGER NOT NULL AS (base + start) STORED  -- the id of its first job
);
CREATE INDEX cohort_open ON cohort (tq_id, first, id) WHERE cursor < stop;
CREATE INDEX cohort_submission ON cohort (submission_id, start);
-- The runs of a task queue, open or not: they go along when it is joined to another.
CREATE INDEX cohort_queue ON cohort (tq_id);

-- Members [start, stop) of a cohort that do not wait, and have no row.
CREATE TABLE hole (
    cohort_id  INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    stop       INTEGER NOT NULL,
    state      TEXT NOT NULL,               -- of the jobs; Moved: they are in another cohort
    reason     TEXT NOT NULL DEFAULT '',
    at         REAL NOT NULL,
    admin_held INTEGER NOT NULL DEFAULT 0,  -- as of a job
    PRIMARY KEY (cohort_id, start)
) WITHOUT ROWID;

-- The jobs from job_id to last_job of a submission wait for those from first to last, which are of one submission, too.
-- A row goes when all of its jobs wait no more; what has happened so far follows from the states of the jobs.
CREATE TABLE dependency (
    job_id        INTEGER NOT NULL,
    first         INTEGER NOT NULL,
    ok            INTEGER NOT NULL,  -- they must be Done
    last_job      INTEGER NOT NULL,
    last          INTEGER NOT NULL,
    by_index      INTEGER NOT NULL,  -- each waits for its own one
    cancel        INTEGER NOT NULL,  -- one that can never run is killed; else held
    submission_id INTEGER NOT NULL,
    parent_id     INTEGER NOT NULL,  -- the submission that they wait for
    base          INTEGER NOT NULL,  -- the first job of that one
    PRIMARY KEY (job_id, first, ok)
) WITHOUT ROWID;
CREATE INDEX dependency_submission ON dependency (submission_id);

-- Append-only; the events of a job are a chain from job.last_event by `previous`.
CREATE TABLE event (
    id       INTEGER PRIMARY KEY,
    at       REAL NOT NULL,
    job_id   INTEGER NOT NULL,
    last_job INTEGER,  -- the same of all jobs up to this one; NULL: of one
    previous INTEGER,
    kind     TEXT NOT NULL,
    data     TEXT      -- as JSON
);
CREATE INDEX event_range ON event (job_id) WHERE last_job IS NOT NULL;

CREATE TABLE attempt (
    id            INTEGER PRIMARY KEY,
    job_id        INTEGER NOT NULL,
    number        INTEGER NOT NULL,  -- of the job, from 1
    previous      INTEGER,           -- the attempt before it, of the job
    tq_id         INTEGER NOT NULL,
    cohort_id     INTEGER,           -- where the job waited; NULL: as a row
    pilot_id      INTEGER NOT NULL,
    claim_token   TEXT NOT NULL,     -- '': it is bound to a pilot that has not claimed yet
    site          TEXT NOT NULL,
    -- Of the groups that competed, as JSON; {}: a pilot of one group; NULL: not known.
    shares        TEXT,
    claimed_at    REAL NOT NULL,
    started_at    REAL,
    ended_at      REAL,
    outcome       TEXT,
    cause         TEXT,
    exit_code     INTEGER,
    signal        INTEGER,
    cpu_seconds   REAL,
    wall_seconds  REAL,
    max_rss_mb    REAL,
    output_sha256 TEXT,
    output_size   INTEGER,           -- bytes
    message       TEXT,
    tail          TEXT,              -- the end of what the payload wrote
    -- Why the payload must be stopped; it stays, whoever starts again meanwhile.
    stop_reason   TEXT
);
-- Small whatever the history: it holds running attempts only.
CREATE INDEX attempt_live ON attempt (pilot_id) WHERE ended_at IS NULL;
-- Attempts that did not end well, by their cause: few, and written once.
CREATE INDEX attempt_cause ON attempt (cause, job_id) WHERE outcome != 'Done';

-- Outputs that came with the report of their attempt (ADR 0077): a tar.gz of at most 8 kB. Others are files.
CREATE TABLE small_output (
    attempt_id INTEGER PRIMARY KEY,
    content    BLOB NOT NULL
);

-- What readers use: cursors with the claims that are in the attempts alone so far.
CREATE VIEW cohort_now AS
SELECT c.id, c.submission_id, c.tq_id, c.base, c.start, c.stop, c.template_id,
    max(c.cursor, coalesce(r.cursor, 0)) AS cursor
FROM cohort c LEFT JOIN (
    SELECT a.cohort_id, max(a.job_id) - k.base + 1 AS cursor FROM attempt a JOIN cohort k ON k.id = a.cohort_id
    WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id
) r ON r.cohort_id = c.id;


-- Task queues -------------------------------------------------------------------------------------------

CREATE TABLE task_queue (
    id           INTEGER PRIMARY KEY,
    -- What its jobs have in common, as JSON: only what is not at its default.
    key          TEXT NOT NULL UNIQUE,
    created_at   REAL NOT NULL,
    requirements TEXT NOT NULL DEFAULT '',  -- what its pool is made of again if that was removed
    pool_id      TEXT AS (json_extract(key, '$.submit_pool')) VIRTUAL
);
CREATE INDEX task_queue_pool ON task_queue (pool_id) WHERE pool_id != '';

-- Apart from task_queue so that a counter is one of hundreds on its page.
CREATE TABLE task_queue_count (
    tq_id      INTEGER PRIMARY KEY,
    waiting    INTEGER NOT NULL,            -- jobs, after the claims up to attempt `as_of`
    row_cursor INTEGER NOT NULL DEFAULT 0,  -- no row before this job waits
    as_of      INTEGER NOT NULL DEFAULT 0,
    emptied_at REAL
);

-- Task queues that no configured queue can run: their waiting jobs are Held, however many they are (ADR 0016).
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

-- Why the jobs of a task queue wait: one main reason each, for lists and metrics. Only what changed is written.
CREATE TABLE task_queue_reason (
    tq_id       INTEGER PRIMARY KEY,
    reason      TEXT NOT NULL,
    detail      TEXT NOT NULL DEFAULT '',
    since       REAL NOT NULL,
    -- The jobs whose turn is next wait for another reason than those behind them:
    next_reason TEXT,
    next_jobs   INTEGER NOT NULL DEFAULT 0,  -- how many they are
    next_before INTEGER NOT NULL DEFAULT 0   -- greater than their ids
);
CREATE INDEX task_queue_reason_by ON task_queue_reason (reason, detail);

CREATE TABLE reason_pass (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    at       REAL NOT NULL,  -- when the reasons were last judged
    facts_at REAL            -- the time of the oldest fact that they were judged by
);

-- What readers use: counters with the claims that are in the attempts alone so far.
CREATE VIEW queue_jobs AS
SELECT c.tq_id, c.waiting - coalesce(r.n, 0) AS jobs FROM task_queue_count c LEFT JOIN (
    SELECT a.tq_id, count(*) AS n FROM attempt a JOIN task_queue_count k ON k.tq_id = a.tq_id
    WHERE a.id > (SELECT claims_at FROM leadership) AND a.id > k.as_of GROUP BY a.tq_id
) r ON r.tq_id = c.tq_id;

-- Jobs that are Held by their task queue do not count as waiting.
CREATE VIEW queue_waiting AS
SELECT q.tq_id, q.jobs AS waiting FROM queue_jobs q
WHERE NOT EXISTS (SELECT 1 FROM task_queue_hold h WHERE h.tq_id = q.tq_id);

-- Task queues that a job may return to: one of it runs, or a person holds one.
CREATE VIEW queue_may_return AS
SELECT tq_id FROM attempt WHERE ended_at IS NULL
UNION SELECT tq_id FROM job WHERE state = 'Held'
UNION SELECT c.tq_id FROM hole h JOIN cohort c ON c.id = h.cohort_id WHERE h.state = 'Held';


-- SubmitPools (ADR 0016) --------------------------------------------------------------------------------

-- The CE queues that SubmitPools speak of. A queue keeps its bit for as long as it is configured.
CREATE TABLE pool_queue (
    bit   INTEGER PRIMARY KEY,
    site  TEXT NOT NULL,
    ce    TEXT NOT NULL,
    queue TEXT NOT NULL,
    UNIQUE (site, ce, queue)
);

CREATE TABLE submit_pool_bits (
    id           TEXT PRIMARY KEY,
    vo           TEXT NOT NULL,
    requirements TEXT NOT NULL,  -- as JSON: {"name": [kind, operator, unit, values]}
    queues       BLOB NOT NULL,  -- bit b is bit b % 8 of byte b / 8
    created_at   REAL NOT NULL,
    unused_since REAL,           -- no job needs it since then
    evaluated_at REAL            -- when its queues were found; NULL: they are not known
) WITHOUT ROWID;

-- Every evaluation of all pools: its time stamp is that of all of them.
CREATE TABLE submit_pool_pass (
    id       INTEGER PRIMARY KEY,
    at       REAL NOT NULL,
    cause    TEXT NOT NULL,
    config   TEXT NOT NULL,     -- the digest of the configuration
    pools    INTEGER NOT NULL,
    changed  INTEGER NOT NULL,
    held     INTEGER NOT NULL,  -- jobs
    released INTEGER NOT NULL,  -- jobs
    seconds  REAL NOT NULL      -- that it took
);

-- A pass is due if more were asked for than were answered.
CREATE TABLE submit_pool_state (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    asked    INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    version  INTEGER NOT NULL,           -- changes whenever a pool does
    rekeyed  INTEGER NOT NULL DEFAULT 0  -- changes whenever task queues get other keys: who keeps keys reads them anew
);
INSERT INTO submit_pool_state (one, asked, answered, version) VALUES (1, 0, 0, 0);

CREATE VIEW submit_pool AS
SELECT id, requirements, vo, queues, created_at, unused_since,
    iif(evaluated_at IS NULL, NULL,
        max(evaluated_at, coalesce((SELECT at FROM submit_pool_pass ORDER BY id DESC LIMIT 1), 0))) AS refreshed_at
FROM submit_pool_bits;

CREATE VIEW submit_pool_queue AS
SELECT p.id AS pool_id, q.site, q.ce, q.queue FROM submit_pool_bits p JOIN pool_queue q
ON ((instr('0123456789ABCDEF', substr(hex(substr(p.queues, q.bit / 8 + 1, 1)), 2 - q.bit % 8 / 4, 1)) - 1)
    >> (q.bit % 4)) & 1;


-- Pilots ------------------------------------------------------------------------------------------------

CREATE TABLE pilot (
    id              INTEGER PRIMARY KEY,
    stamp           TEXT NOT NULL UNIQUE,           -- its name, given before it is submitted
    state           TEXT NOT NULL,
    vo              TEXT NOT NULL,
    owner           TEXT NOT NULL DEFAULT '',       -- whose jobs alone it takes
    grp             TEXT NOT NULL DEFAULT '',       -- the same of a group
    pilot_type      TEXT NOT NULL DEFAULT '',
    submission_pool TEXT NOT NULL DEFAULT '',
    tq_id           INTEGER,                        -- the task queue that it was sent for
    site            TEXT NOT NULL,
    ce              TEXT NOT NULL,
    queue           TEXT NOT NULL,
    requirements    TEXT NOT NULL DEFAULT '{}',     -- as JSON
    request         TEXT NOT NULL DEFAULT '{}',     -- what it presents, as JSON
    node            TEXT NOT NULL DEFAULT '{}',     -- what it reported of its node as it joined, as JSON
    native_id       TEXT,                           -- its id in its batch system
    created_at      REAL NOT NULL,
    submitted_at    REAL,
    joined_at       REAL,
    last_seen       REAL,
    ended_at        REAL,
    drain           INTEGER NOT NULL DEFAULT 0,     -- it takes no more jobs
    reason          TEXT NOT NULL DEFAULT '',
    jobs_done       INTEGER NOT NULL DEFAULT 0,
    drain_reason    TEXT NOT NULL DEFAULT '',       -- why, if nobody drained it by name
    backend         TEXT NOT NULL DEFAULT 'local',  -- where it was submitted, and is asked about
    host            TEXT NOT NULL DEFAULT '',       -- where it runs, as its batch system said last
    held_since      REAL,                           -- as its batch system said last
    native_seen     REAL,                           -- when its batch system said so
    node_host       TEXT NOT NULL DEFAULT '',       -- that it reported as it joined
    -- The one job that it runs (push); NULL: any that fit (pull).
    bound_job       INTEGER,
    -- Of a forwarding node, its queue as JSON: where it runs is known later.
    sent_to         TEXT NOT NULL DEFAULT ''
);
CREATE INDEX pilot_live ON pilot (state) WHERE ended_at IS NULL;
-- Pilots that lost their lease are cancelled at their batch systems until these say that they are gone: few, and found
-- without reading all pilots that ever were.
CREATE INDEX pilot_lost ON pilot (ended_at) WHERE state = 'Lost';
CREATE INDEX pilot_elsewhere ON pilot (backend, ended_at) WHERE backend != 'local';
-- Pilots that were placed at a site since its ad.
CREATE INDEX pilot_site ON pilot (site, created_at);

CREATE TABLE director_iteration (
    id    INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0,  -- of the plan; before it, and so read without walking through megabytes
    plan  TEXT NOT NULL                -- as JSON
);


-- Sites -------------------------------------------------------------------------------------------------

-- Sites, CEs and queues that an administrator closed ('': all of them), from then until somebody opens them, or until a
-- time. Few: looked at as a whole, when `version` has changed.
CREATE TABLE site_mask (
    site        TEXT NOT NULL,
    ce          TEXT NOT NULL,
    queue       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    closed_by   TEXT NOT NULL,
    since       REAL NOT NULL,
    until       REAL,
    keep_pilots INTEGER NOT NULL DEFAULT 0,
    begins      REAL,  -- when an announced closing begins; NULL: it began at `since`
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;

CREATE TABLE site_mask_state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO site_mask_state (one, version) VALUES (1, 0);

-- Breakers of CE queues that are not closed or have failures.
CREATE TABLE breaker (
    site   TEXT NOT NULL,
    ce     TEXT NOT NULL,
    queue  TEXT NOT NULL,
    record TEXT NOT NULL,  -- as JSON (`decide.director.limits.Breaker`)
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;

-- Orders of administrators for the breakers of CE queues.
CREATE TABLE breaker_order (
    site       TEXT NOT NULL,
    ce         TEXT NOT NULL,
    queue      TEXT NOT NULL,
    state      TEXT NOT NULL,  -- open (no pilot is sent) or closed (whatever happens there)
    reason     TEXT NOT NULL,
    ordered_by TEXT NOT NULL,
    at         REAL NOT NULL,
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;

-- Hosts that are shut, or were lately.
CREATE TABLE host (
    site   TEXT NOT NULL,
    name   TEXT NOT NULL,
    shut   INTEGER NOT NULL,
    record TEXT NOT NULL,  -- as JSON (`wire.hosts.HostRecord`)
    PRIMARY KEY (site, name)
) WITHOUT ROWID;

-- Attempts that failed at once, of the last half hour.
CREATE TABLE quick_failure (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    site    TEXT NOT NULL,
    host    TEXT NOT NULL,
    tq_id   INTEGER NOT NULL,
    job_id  INTEGER NOT NULL,
    seconds REAL NOT NULL  -- that it ran
);

-- The newest ad of each site.
CREATE TABLE site_ad (
    site        TEXT PRIMARY KEY,
    sequence    INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    lifetime    REAL NOT NULL,  -- seconds
    received_at REAL NOT NULL,  -- by the clock of the server
    entry       TEXT NOT NULL,  -- what it says in short, as JSON (`wire.site_ads.AdEntry`)
    text        TEXT NOT NULL   -- as it came
) WITHOUT ROWID;

-- What the ads of the last day said, in short.
CREATE TABLE site_ad_entry (
    id          INTEGER PRIMARY KEY,
    site        TEXT NOT NULL,
    received_at REAL NOT NULL,
    entry       TEXT NOT NULL
);
CREATE INDEX site_ad_entry_site ON site_ad_entry (site, received_at);
CREATE INDEX site_ad_entry_at ON site_ad_entry (received_at);


-- Quotas and job classes --------------------------------------------------------------------------------

CREATE TABLE quota_set (
    name       TEXT PRIMARY KEY,
    place      INTEGER NOT NULL,  -- its turn
    text       TEXT NOT NULL,     -- as it was written
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL
) WITHOUT ROWID;

-- The template is here once it was changed.
CREATE TABLE job_class (
    name       TEXT PRIMARY KEY,
    text       TEXT NOT NULL,  -- in its canonical form
    disabled   TEXT NOT NULL,  -- names of variants with commas between
    revision   INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL
) WITHOUT ROWID;


-- Sandboxes ---------------------------------------------------------------------------------------------

-- Uploaded files; their contents are beside the database.
CREATE TABLE sandbox (
    owner        TEXT NOT NULL,
    sha256       TEXT NOT NULL,
    size         INTEGER NOT NULL,  -- bytes
    created_at   REAL NOT NULL,
    unused_since REAL,              -- no job names it since it was last looked for one
    PRIMARY KEY (owner, sha256)
) WITHOUT ROWID;

-- Which submissions name an uploaded file.
CREATE TABLE sandbox_use (
    owner         TEXT NOT NULL,
    sha256        TEXT NOT NULL,
    submission_id INTEGER NOT NULL,
    PRIMARY KEY (owner, sha256, submission_id)
) WITHOUT ROWID;
CREATE INDEX sandbox_use_of ON sandbox_use (submission_id);

-- What each user has on the shelf. A file takes 4 kB at least.
CREATE TABLE sandbox_usage (
    owner   TEXT PRIMARY KEY,
    files   INTEGER NOT NULL,
    bytes   INTEGER NOT NULL,
    outputs INTEGER NOT NULL DEFAULT 0  -- bytes of the outputs of the user's jobs, kept by these triggers
) WITHOUT ROWID;
CREATE TRIGGER output_stored AFTER UPDATE OF output_size ON attempt
WHEN NEW.output_size IS NOT NULL OR OLD.output_size IS NOT NULL
BEGIN
    INSERT INTO sandbox_usage (owner, files, bytes)
    SELECT s.owner, 0, 0 FROM job j JOIN submission s ON s.id = j.submission_id WHERE j.id = NEW.job_id
    ON CONFLICT (owner) DO NOTHING;
    UPDATE sandbox_usage SET outputs = outputs
    + CASE WHEN NEW.output_size IS NULL THEN 0 ELSE max(NEW.output_size, 4096) END
    - CASE WHEN OLD.output_size IS NULL THEN 0 ELSE max(OLD.output_size, 4096) END
    WHERE owner = (SELECT s.owner FROM job j JOIN submission s ON s.id = j.submission_id WHERE j.id = NEW.job_id);
END;
CREATE TRIGGER output_gone AFTER DELETE ON attempt WHEN OLD.output_size IS NOT NULL
BEGIN
    UPDATE sandbox_usage SET outputs = max(0, outputs - max(OLD.output_size, 4096))
    WHERE owner = (SELECT s.owner FROM job j JOIN submission s ON s.id = j.submission_id WHERE j.id = OLD.job_id);
END;


-- Usage -------------------------------------------------------------------------------------------------

-- What attempts used by the day of their end: it stays when jobs are purged.
CREATE TABLE usage_day (
    day              INTEGER NOT NULL,  -- UTC days since 1970
    owner            TEXT NOT NULL,
    grp              TEXT NOT NULL,
    vo               TEXT NOT NULL,
    site             TEXT NOT NULL,
    cause            TEXT NOT NULL,
    job_class        TEXT NOT NULL,     -- class.variant; 'unknown': added up before this was kept
    job_group        TEXT NOT NULL,     -- '(unknown)': added up before this was kept
    attempts         INTEGER NOT NULL,
    jobs             INTEGER NOT NULL,  -- first attempts
    wall_ms          INTEGER NOT NULL,
    core_ms          INTEGER NOT NULL,
    cpu_ms           INTEGER NOT NULL,
    measured_core_ms INTEGER NOT NULL,  -- of the attempts whose CPU time is known
    PRIMARY KEY (day, owner, grp, vo, site, cause, job_class, job_group)
) WITHOUT ROWID;

-- How far attempts are in it.
CREATE TABLE usage_fold (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    done          INTEGER NOT NULL,        -- all attempts up to this one but those in usage_open
    changes       INTEGER NOT NULL,        -- how often this changed
    purged        REAL NOT NULL,           -- the latest end of an attempt that was purged
    -- The same of pilots: who had cores until then is not known whole.
    pilots_purged REAL NOT NULL DEFAULT 0
);
INSERT INTO usage_fold (one, done, changes, purged) VALUES (1, 0, 0, 0);

CREATE TABLE usage_open (
    attempt_id INTEGER PRIMARY KEY
);
