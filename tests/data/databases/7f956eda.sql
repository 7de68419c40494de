-- A database of commit 7f956eda, the oldest that opens: made and filled by its own code on SQLite, written by sqlite3 .dump.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE migration
(number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL);
INSERT INTO migration VALUES(1,'0001_initial.sql','5f4ed2c78a192c4b9eac3f46296437c457ae7c1c7cafee9c1a67fa35e8ef0196');
INSERT INTO migration VALUES(2,'0002_submit_pools.sql','4299f5df9de408a02e485202857666086945c474d909d9435b99e711fcd9d21d');
INSERT INTO migration VALUES(3,'0003_main_reasons.sql','8c2de6df522b4fe1a8342e7b97f39dea4a1f300a5165face9b7f93a8c62fad07');
INSERT INTO migration VALUES(4,'0004_retention.sql','7a12bb5adfc3ad6c4864e5e0f5d4b93be2c5c29d7d562eb09f4fcb428ed31b3d');
INSERT INTO migration VALUES(5,'0005_stop_orders.sql','6dece31cb8ea0ece5a143de90737c1e3a02f751fe6891245a21a2ccfaa8557ab');
INSERT INTO migration VALUES(6,'0006_lists.sql','2c864f7842491ecf85dad6728b8620ead5ed6b36c6706c8bc313cf947859f990');
INSERT INTO migration VALUES(7,'0007_requirements_with_units.sql','35745a898d7e77c3fec16d43f7b8e6ca786b3cdce65663e96e843a2d903de1a9');
INSERT INTO migration VALUES(8,'0008_lost_pilots.sql','0a07d0a01cf4be2ecd9a18b5538ed380c5d4fbd93242fe5758057f1b7e9a6c50');
INSERT INTO migration VALUES(9,'0009_site_mask.sql','c0ef48fd6a70ce0d94970e2909641ceca9b1e6cc84014ff8d3d48ed39867116d');
INSERT INTO migration VALUES(10,'0010_token_parents.sql','7443608c408917b5df1c3b98aa51677ea5fc38e5013dbe0d54b3bf265b89cc7b');
INSERT INTO migration VALUES(11,'0011_rights_and_limits.sql','a4b5bacfe7cc3c08da0e8832407cbe5d07600161884000dc9d88b9513127b6ab');
INSERT INTO migration VALUES(12,'0012_incarnation.sql','091838d52c19e31c0444320f70c4e5413bec584325e4e0283d52720712857c60');
INSERT INTO migration VALUES(13,'0013_shares_of_claims.sql','fc4610d5fe336b30326e330dc1a5888146a973e37172463865774099a9771fba');
INSERT INTO migration VALUES(14,'0014_next_jobs.sql','a49ee4be3daa8dc62c57b821abc824fca2ba8ebe4952e42b1944f8c85ccd4eec');
INSERT INTO migration VALUES(15,'0015_home_of_a_database.sql','dcec86700dc5854b640e36ad6f296e949777894dabd94ce8fc4ff8b1cdd34618');
INSERT INTO migration VALUES(16,'0016_short_keys.sql','9933370f8873b2483ece1e28c833904b8730e6d947d3db5e9d69fc11ee729f07');
INSERT INTO migration VALUES(17,'0017_backends.sql','2a9293b3f138cc3d455a990b17eeee441b8bafbb69b8b9b76f9fa9d238838324');
INSERT INTO migration VALUES(18,'0018_hosts.sql','342774059c2c12df56f18642c490fc79f1a0713050a797500da739ad79279ec8');
INSERT INTO migration VALUES(19,'0019_breaker_orders.sql','3f02c50f292005d2b4585cab6c4382f53a37752823ba2daac393509cbd1b9f85');
INSERT INTO migration VALUES(20,'0020_quotas.sql','a6635247909183a74e2cff5557d2eaba9b2b408224240547bf371736df2f7947');
INSERT INTO migration VALUES(21,'0021_job_classes.sql','ad81a1b8d0aeb41d8017b15c40ad53f4a0d896fc5c7a3dcb5c273b2f78b296a9');
INSERT INTO migration VALUES(22,'0022_resolutions.sql','ee55e364a59f0de13f9361aba8622ee2f4006106b82eeaae8428b42274422eb8');
INSERT INTO migration VALUES(23,'0023_site_ads.sql','f07bcd79fc4dc99827998a27030470966270d64eb479e49292dfeb579b6d56b9');
INSERT INTO migration VALUES(24,'0024_bound_pilots.sql','486a3c375f2c670e9508efdacf63753f315a8a9660c6a991bfe3e251346ac846');
INSERT INTO migration VALUES(25,'0025_usage.sql','d5ac356b9fead3115434f571ab833ad3cbe1826b103ce3d447fd1d02a4d23178');
INSERT INTO migration VALUES(26,'0026_order.sql','d4be84d119875cc46919d763409530a8de840f94d174ea4f1aaa3adce245d96e');
INSERT INTO migration VALUES(28,'0028_looking.sql','6eca04fc3f8ab84df4106eda720c0731676672ab88ea2f1a952958d728eacd46');
INSERT INTO migration VALUES(30,'0030_groups.sql','654f5b8c7c2ed3b15f4a28bea53981ec8df4b590cc83cfae1db7ab4b448f4f1c');
INSERT INTO migration VALUES(31,'0031_vo_administrators.sql','db6c5ce8221b92eac995d59755764067400f690f926e6ed22ed57d290178d633');
INSERT INTO migration VALUES(32,'0032_small_outputs.sql','ed855de78a63884e85a44686d3219162a27be2c8599d35eb85e4cf6a1f53a3f0');
INSERT INTO migration VALUES(33,'0033_pilot_hours.sql','38d298b2efdbc985e438ce12c989b43b469442ed48e8cadabc034f95ba500a90');
INSERT INTO migration VALUES(34,'0034_usage_by_class.sql','30891521091e3a3935ec7d15925c7a26705318d0f2080a6ac92db116f8914a73');
INSERT INTO migration VALUES(35,'0035_changed_classes.sql','c63c9f81f2dab3ecfa55090a862cdde6586fc902e7d36f5019a38c4e215d3e98');
INSERT INTO migration VALUES(40,'0040_announced_closings.sql','9b942a6b103d2dd0d76b0aeea7be9acd8327b6aabb66263bf15549c16d6a6225');
INSERT INTO migration VALUES(41,'0041_shares_until.sql','89dcd884287d25eab89ea2129d63002430ac6e83b31dde99fbbe3b9dbae371fc');
INSERT INTO migration VALUES(42,'0042_readers.sql','e978f968bec37f8653b361dd06ae751449f9c3b1ee3e910bfbea13ea1de1ba53');
CREATE TABLE leadership (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    epoch   INTEGER NOT NULL,
    batch   INTEGER NOT NULL,
    next_job INTEGER NOT NULL,
    -- Counters and cursors hold for the claims up to this attempt; later ones are in the attempts alone.
    claims_at INTEGER NOT NULL
, incarnation TEXT NOT NULL DEFAULT '', home INTEGER NOT NULL DEFAULT 0);
INSERT INTO leadership VALUES(1,1,24,14,0,'f2f474c1',0);
CREATE TABLE account (
    name       TEXT PRIMARY KEY,
    vo         TEXT NOT NULL,
    groups     TEXT NOT NULL,
    admin      INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL
, disabled_at REAL, vo_admin INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO account VALUES('ann','vo','["g"]',1,1728000000.0,NULL,0);
INSERT INTO account VALUES('bob','vo','["g","h"]',0,1728000000.0,NULL,0);
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
, parent BLOB) WITHOUT ROWID;
INSERT INTO token VALUES(X'60ce02e86d9469bc666799f40e1aba375b0b5b1440e84d8b6dc668659c1cc7d3','user','bob',NULL,'["jobs:read","jobs:write","pilots:read"]','',1728000000.0,1730592000.0,'',NULL);
INSERT INTO token VALUES(X'76d268409476253687384b6fd59b46787aa2540f42bfa958fadc0c32243e83bf','joined','',2,'[]','',1728000000.0,1728432000.0,'nonce',NULL);
INSERT INTO token VALUES(X'773e026a62389ad5686de9e31e5333131ffda5e389c770d950ea4a243dc76211','user','ann',NULL,'["jobs:read","jobs:write","pilots:read"]','',1728000000.0,1730592000.0,'',NULL);
INSERT INTO token VALUES(X'994f834f470e6f7d3858ee62422fe472eebd3e57dcb31e8e3944d05a20ba1f66','pilot','',2,'[]','',1728000000.0,NULL,'',NULL);
CREATE TABLE sandbox (
    owner      TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    created_at REAL NOT NULL, unused_since REAL,
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
, held INTEGER NOT NULL DEFAULT 0, first_template INTEGER, last_template INTEGER, resolution TEXT);
INSERT INTO submission VALUES(1,1,10,'ann','g','vo','n',1728000000.0,'json','{}',NULL,NULL,0,1,1,NULL);
INSERT INTO submission VALUES(2,11,2,'bob','g','vo','n',1728000000.0,'json','{}',NULL,NULL,0,2,2,NULL);
INSERT INTO submission VALUES(3,13,1,'ann','g','vo','n',1728000000.0,'json','{}',NULL,NULL,0,3,3,NULL);
CREATE TABLE task_queue (
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL
, requirements TEXT NOT NULL DEFAULT '', pool_id TEXT AS (json_extract(key, '$.submit_pool')) VIRTUAL);
INSERT INTO task_queue VALUES(1,'{"group":"g","norm_cpu_seconds":100,"owner":"ann","submit_pool":"req1:a","vo":"vo"}',1728000000.0,'{}');
INSERT INTO task_queue VALUES(2,'{"group":"g","job_class":"sim","norm_cpu_seconds":100,"owner":"bob","variant":"long","vo":"vo"}',1728000000.0,'');
INSERT INTO task_queue VALUES(3,'{"group":"g","norm_cpu_seconds":100,"owner":"ann","vo":"vo","waits_for_jobs":true}',1728000000.0,'');
CREATE TABLE task_queue_count (
    tq_id      INTEGER PRIMARY KEY,
    waiting    INTEGER NOT NULL,
    row_cursor INTEGER NOT NULL DEFAULT 0,
    as_of      INTEGER NOT NULL DEFAULT 0,
    emptied_at REAL
);
INSERT INTO task_queue_count VALUES(1,5,0,3,NULL);
INSERT INTO task_queue_count VALUES(2,2,11,0,NULL);
INSERT INTO task_queue_count VALUES(3,1,0,0,NULL);
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
INSERT INTO cohort VALUES(1,1,1,1,0,10,1,1);
CREATE TABLE hole (
    cohort_id INTEGER NOT NULL,
    start     INTEGER NOT NULL,
    stop      INTEGER NOT NULL,
    state     TEXT NOT NULL,
    reason    TEXT NOT NULL DEFAULT '',
    at        REAL NOT NULL, admin_held INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (cohort_id, start)
) WITHOUT ROWID;
INSERT INTO hole VALUES(1,4,7,'Held','because',1728000060.0,0);
INSERT INTO hole VALUES(1,8,9,'Killed','because',1728000060.0,0);
CREATE TABLE template (
    id           INTEGER PRIMARY KEY,
    expand       INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    body         TEXT NOT NULL
, retry TEXT, resolution TEXT);
INSERT INTO template VALUES(1,0,3,'{}',NULL,NULL);
INSERT INTO template VALUES(2,0,3,'{}',NULL,NULL);
INSERT INTO template VALUES(3,0,3,'{}',NULL,NULL);
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
, admin_held INTEGER NOT NULL DEFAULT 0);
INSERT INTO job VALUES(1,1,1,1,'Matched',1,2,NULL,1728000060.0,8,3,3,'',0);
INSERT INTO job VALUES(11,2,2,2,'Done',1,NULL,1,1728000060.0,6,1,3,'',0);
INSERT INTO job VALUES(12,2,2,2,'Failed',1,NULL,1,1728000060.0,7,2,3,'exit code None',0);
INSERT INTO job VALUES(13,3,3,3,'Waiting',0,NULL,1,1728000000.0,3,NULL,3,'',0);
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
    shares     TEXT,
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
, stop_reason TEXT);
INSERT INTO attempt VALUES(1,11,1,NULL,2,NULL,1,'claim-token-1','S1','{"g": 1000.0}',1728000000.0,1728000010.0,1728000060.0,'Done','ok',NULL,NULL,40.0,50.0,NULL,NULL,NULL,'','',NULL);
INSERT INTO attempt VALUES(2,12,1,NULL,2,NULL,1,'claim-token-1','S1','{"g": 1000.0}',1728000000.0,1728000010.0,1728000060.0,'Failed','exit',NULL,NULL,40.0,50.0,NULL,NULL,NULL,'','',NULL);
INSERT INTO attempt VALUES(3,1,1,NULL,1,1,2,'claim-token-2','S1','{"g": 1000.0}',1728000060.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE event (
    id       INTEGER PRIMARY KEY,
    at       REAL NOT NULL,
    job_id   INTEGER NOT NULL,
    last_job INTEGER,
    previous INTEGER,
    kind     TEXT NOT NULL,
    data     TEXT
);
INSERT INTO event VALUES(1,1728000000.0,1,10,NULL,'Submitted','{"submission":1}');
INSERT INTO event VALUES(2,1728000000.0,11,12,NULL,'Submitted','{"submission":2}');
INSERT INTO event VALUES(3,1728000000.0,13,NULL,NULL,'Waiting',NULL);
INSERT INTO event VALUES(4,1728000000.0,11,NULL,NULL,'Matched','{"attempt":1,"pilot":1}');
INSERT INTO event VALUES(5,1728000000.0,12,NULL,NULL,'Matched','{"attempt":1,"pilot":1}');
INSERT INTO event VALUES(6,1728000060.0,11,NULL,4,'Done','{"attempt":1,"cause":"ok"}');
INSERT INTO event VALUES(7,1728000060.0,12,NULL,5,'Failed','{"attempt":1,"cause":"exit","reason":"exit code None"}');
INSERT INTO event VALUES(8,1728000060.0,1,NULL,NULL,'Matched','{"attempt":1,"pilot":2}');
INSERT INTO event VALUES(9,1728000060.0,5,7,NULL,'Held','{"by":"user","reason":"because"}');
INSERT INTO event VALUES(10,1728000060.0,9,9,NULL,'Killed','{"by":"user","reason":"because"}');
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
, drain_reason TEXT NOT NULL DEFAULT '', backend TEXT NOT NULL DEFAULT 'local', host TEXT NOT NULL DEFAULT '', held_since REAL, native_seen REAL, node_host TEXT NOT NULL DEFAULT '', bound_job INTEGER, sent_to TEXT NOT NULL DEFAULT '');
INSERT INTO pilot VALUES(1,'stamp1','Lost','vo','','','','',NULL,'S1','ce','q','{}','{"platforms":["linux"],"tags":[],"cores":8,"memory_mb":16000,"norm_cpu_seconds":100000}','{"cores":8}','nativestamp1',1728000000.0,1728000000.0,1728000000.0,1728000000.0,1728000060.0,0,'gone',2,'','local','',NULL,NULL,'',NULL,'');
INSERT INTO pilot VALUES(2,'stamp2','Running','vo','','','','',NULL,'S1','ce','q','{}','{"platforms":["linux"],"tags":[],"cores":8,"memory_mb":16000,"norm_cpu_seconds":100000}','{"cores":8}','nativestamp2',1728000000.0,1728000000.0,1728000000.0,1728000000.0,NULL,0,'',0,'','local','',NULL,NULL,'',NULL,'');
CREATE TABLE pool_queue (
    bit   INTEGER PRIMARY KEY,
    site  TEXT NOT NULL,
    ce    TEXT NOT NULL,
    queue TEXT NOT NULL,
    UNIQUE (site, ce, queue)
);
INSERT INTO pool_queue VALUES(0,'S1','ce','q');
INSERT INTO pool_queue VALUES(1,'S2','ce','q');
CREATE TABLE submit_pool_bits (
    id           TEXT PRIMARY KEY,
    vo           TEXT NOT NULL,
    requirements TEXT NOT NULL,
    queues       BLOB NOT NULL,
    created_at   REAL NOT NULL,
    unused_since REAL
, evaluated_at REAL) WITHOUT ROWID;
INSERT INTO submit_pool_bits VALUES('req1:a','vo','{}',X'01',1728000000.0,NULL,1728000000.0);
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
CREATE TABLE submit_pool_state (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    asked    INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    version  INTEGER NOT NULL
, rekeyed INTEGER NOT NULL DEFAULT 0);
INSERT INTO submit_pool_state VALUES(1,0,0,1,0);
CREATE TABLE task_queue_hold (
    tq_id  INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    since  REAL NOT NULL
);
CREATE TABLE task_queue_event (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    tq_id  INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE task_queue_reason (
    tq_id  INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '',
    since  REAL NOT NULL
, next_reason TEXT, next_jobs INTEGER NOT NULL DEFAULT 0, next_before INTEGER NOT NULL DEFAULT 0);
CREATE TABLE reason_pass (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    at       REAL NOT NULL,
    facts_at REAL
);
CREATE TABLE id_mark (
    name  TEXT PRIMARY KEY,
    given INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE sandbox_use (
    owner         TEXT NOT NULL,
    sha256        TEXT NOT NULL,
    submission_id INTEGER NOT NULL,
    PRIMARY KEY (owner, sha256, submission_id)
) WITHOUT ROWID;
CREATE TABLE sandbox_usage (
    owner TEXT PRIMARY KEY,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL
, outputs INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS "director_iteration" (
    id    INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0,
    plan  TEXT NOT NULL
);
CREATE TABLE site_mask (
    site        TEXT NOT NULL,
    ce          TEXT NOT NULL,
    queue       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    closed_by   TEXT NOT NULL,
    since       REAL NOT NULL,
    until       REAL,
    keep_pilots INTEGER NOT NULL DEFAULT 0, begins REAL,
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;
CREATE TABLE site_mask_state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO site_mask_state VALUES(1,0);
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
CREATE TABLE breaker (
    site   TEXT NOT NULL,
    ce     TEXT NOT NULL,
    queue  TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;
CREATE TABLE host (
    site   TEXT NOT NULL,
    name   TEXT NOT NULL,
    shut   INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (site, name)
) WITHOUT ROWID;
CREATE TABLE quick_failure (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    site   TEXT NOT NULL,
    host   TEXT NOT NULL,
    tq_id  INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    seconds REAL NOT NULL
);
CREATE TABLE breaker_order (
    site       TEXT NOT NULL,
    ce         TEXT NOT NULL,
    queue      TEXT NOT NULL,
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    ordered_by TEXT NOT NULL,
    at         REAL NOT NULL,
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;
CREATE TABLE quota_set (
    name       TEXT PRIMARY KEY,
    place      INTEGER NOT NULL,
    text       TEXT NOT NULL,
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE job_class (
    name       TEXT PRIMARY KEY,
    text       TEXT NOT NULL,
    disabled   TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE site_ad (
    site        TEXT PRIMARY KEY,
    sequence    INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    lifetime    REAL NOT NULL,
    received_at REAL NOT NULL,
    entry       TEXT NOT NULL,
    text        TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE site_ad_entry (
    id          INTEGER PRIMARY KEY,
    site        TEXT NOT NULL,
    received_at REAL NOT NULL,
    entry       TEXT NOT NULL
);
CREATE TABLE usage_fold (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    done    INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    purged  REAL NOT NULL
, pilots_purged REAL NOT NULL DEFAULT 0);
INSERT INTO usage_fold VALUES(1,3,1,0.0,0.0);
CREATE TABLE usage_open (attempt_id INTEGER PRIMARY KEY);
INSERT INTO usage_open VALUES(3);
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
INSERT INTO dependency VALUES(13,1,1,13,1,0,0,3,1,1);
CREATE TABLE group_change (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    grp     TEXT NOT NULL,
    change  TEXT NOT NULL,
    share   REAL,
    account TEXT NOT NULL,
    by      TEXT NOT NULL,
    reason  TEXT NOT NULL
, until REAL);
INSERT INTO group_change VALUES(1,1728000000.0,'g','user-added',NULL,'ann','server','',NULL);
INSERT INTO group_change VALUES(2,1728000000.0,'g','user-added',NULL,'bob','server','',NULL);
INSERT INTO group_change VALUES(3,1728000000.0,'h','user-added',NULL,'bob','server','',NULL);
CREATE TABLE small_output (
    attempt_id INTEGER PRIMARY KEY,
    content    BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS "usage_day" (
    day      INTEGER NOT NULL,
    owner    TEXT NOT NULL,
    grp      TEXT NOT NULL,
    vo       TEXT NOT NULL,
    site     TEXT NOT NULL,
    cause    TEXT NOT NULL,
    job_class TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    jobs     INTEGER NOT NULL,
    wall_ms  INTEGER NOT NULL,
    core_ms  INTEGER NOT NULL,
    cpu_ms   INTEGER NOT NULL,
    measured_core_ms INTEGER NOT NULL,
    PRIMARY KEY (day, owner, grp, vo, site, cause, job_class)
) WITHOUT ROWID;
INSERT INTO usage_day VALUES(20000,'bob','g','vo','S1','exit','sim.long',1,1,50000,50000,40000,50000);
INSERT INTO usage_day VALUES(20000,'bob','g','vo','S1','ok','sim.long',1,1,50000,50000,40000,50000);
CREATE TABLE submission_reader (
    submission_id INTEGER NOT NULL,
    reader        TEXT NOT NULL,
    at            REAL NOT NULL,
    by            TEXT NOT NULL,
    PRIMARY KEY (submission_id, reader)
) WITHOUT ROWID;
CREATE INDEX token_pilot ON token (pilot_id) WHERE pilot_id IS NOT NULL;
CREATE UNIQUE INDEX submission_request ON submission (owner, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX cohort_open ON cohort (tq_id, first, id) WHERE cursor < stop;
CREATE INDEX cohort_submission ON cohort (submission_id, start);
CREATE INDEX job_queued ON job (tq_id, id) WHERE queued IS NOT NULL;
CREATE INDEX attempt_live ON attempt (pilot_id) WHERE ended_at IS NULL;
CREATE INDEX event_range ON event (job_id) WHERE last_job IS NOT NULL;
CREATE INDEX pilot_live ON pilot (state) WHERE ended_at IS NULL;
CREATE VIEW cohort_now AS
SELECT c.id, c.submission_id, c.tq_id, c.base, c.start, c.stop, c.template_id,
    max(c.cursor, coalesce(r.cursor, 0)) AS cursor
FROM cohort c LEFT JOIN (
    SELECT a.cohort_id, max(a.job_id) - k.base + 1 AS cursor FROM attempt a JOIN cohort k ON k.id = a.cohort_id
    WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id
) r ON r.cohort_id = c.id;
CREATE INDEX task_queue_pool ON task_queue (pool_id) WHERE pool_id != '';
CREATE INDEX task_queue_event_of ON task_queue_event (tq_id);
CREATE INDEX job_held ON job (tq_id) WHERE state = 'Held';
CREATE VIEW queue_jobs AS
SELECT c.tq_id, c.waiting - coalesce(r.n, 0) AS jobs FROM task_queue_count c LEFT JOIN (
    SELECT a.tq_id, count(*) AS n FROM attempt a JOIN task_queue_count k ON k.tq_id = a.tq_id
    WHERE a.id > (SELECT claims_at FROM leadership) AND a.id > k.as_of GROUP BY a.tq_id
) r ON r.tq_id = c.tq_id;
CREATE VIEW queue_waiting AS
SELECT q.tq_id, q.jobs AS waiting FROM queue_jobs q
WHERE NOT EXISTS (SELECT 1 FROM task_queue_hold h WHERE h.tq_id = q.tq_id);
CREATE VIEW submit_pool_queue AS
SELECT p.id AS pool_id, q.site, q.ce, q.queue FROM submit_pool_bits p JOIN pool_queue q
ON ((instr('0123456789ABCDEF', substr(hex(substr(p.queues, q.bit / 8 + 1, 1)), 2 - q.bit % 8 / 4, 1)) - 1)
    >> (q.bit % 4)) & 1;
CREATE INDEX task_queue_reason_by ON task_queue_reason (reason, detail);
CREATE INDEX sandbox_use_of ON sandbox_use (submission_id);
CREATE UNIQUE INDEX submission_owner ON submission (owner, base);
CREATE INDEX submission_array ON submission (base) WHERE count > 1;
CREATE VIEW submit_pool AS
SELECT id, requirements, vo, queues, created_at, unused_since,
    iif(evaluated_at IS NULL, NULL,
        max(evaluated_at, coalesce((SELECT at FROM submit_pool_pass ORDER BY id DESC LIMIT 1), 0))) AS refreshed_at
FROM submit_pool_bits;
CREATE VIEW queue_may_return AS
SELECT tq_id FROM attempt WHERE ended_at IS NULL
UNION SELECT tq_id FROM job WHERE state = 'Held'
UNION SELECT c.tq_id FROM hole h JOIN cohort c ON c.id = h.cohort_id WHERE h.state = 'Held';
CREATE INDEX cohort_queue ON cohort (tq_id);
CREATE INDEX pilot_lost ON pilot (ended_at) WHERE state = 'Lost';
CREATE INDEX token_parent ON token (parent) WHERE parent IS NOT NULL;
CREATE INDEX token_account ON token (account) WHERE kind = 'user';
CREATE INDEX audit_at ON audit (at);
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
CREATE INDEX pilot_elsewhere ON pilot (backend, ended_at) WHERE backend != 'local';
CREATE INDEX site_ad_entry_site ON site_ad_entry (site, received_at);
CREATE INDEX site_ad_entry_at ON site_ad_entry (received_at);
CREATE INDEX pilot_site ON pilot (site, created_at);
CREATE INDEX dependency_submission ON dependency (submission_id);
CREATE INDEX submission_created ON submission (created_at);
CREATE INDEX attempt_cause ON attempt (cause, job_id) WHERE outcome != 'Done';
CREATE INDEX group_change_of ON group_change (grp, id);
CREATE INDEX submission_reader_of ON submission_reader (reader, submission_id);
COMMIT;
