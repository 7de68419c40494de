-- Usage by JobGroup, too: '' without one, '(unknown)' of what was added up before this was kept.
CREATE TABLE usage_day_by_group (
    day      INTEGER NOT NULL,
    owner    TEXT NOT NULL,
    grp      TEXT NOT NULL,
    vo       TEXT NOT NULL,
    site     TEXT NOT NULL,
    cause    TEXT NOT NULL,
    job_class TEXT NOT NULL,
    job_group TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    jobs     INTEGER NOT NULL,
    wall_ms  INTEGER NOT NULL,
    core_ms  INTEGER NOT NULL,
    cpu_ms   INTEGER NOT NULL,
    measured_core_ms INTEGER NOT NULL,
    PRIMARY KEY (day, owner, grp, vo, site, cause, job_class, job_group)
) WITHOUT ROWID;
INSERT INTO usage_day_by_group
SELECT day, owner, grp, vo, site, cause, job_class, '(unknown)', attempts, jobs, wall_ms, core_ms, cpu_ms, measured_core_ms FROM usage_day;
DROP TABLE usage_day;
ALTER TABLE usage_day_by_group RENAME TO usage_day;
