-- The host that a pilot reported when it joined; '' if it did not, or joined before this was kept.
ALTER TABLE pilot ADD COLUMN node_host TEXT NOT NULL DEFAULT '';

-- Hosts that are shut, or were lately, as JSON (`answers.hosts.HostRecord`).
CREATE TABLE host (
    site   TEXT NOT NULL,
    name   TEXT NOT NULL,
    shut   INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (site, name)
) WITHOUT ROWID;

-- Attempts that failed at once, of the last half hour.
CREATE TABLE quick_failure (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    site   TEXT NOT NULL,
    host   TEXT NOT NULL,
    tq_id  INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    seconds REAL NOT NULL
);
