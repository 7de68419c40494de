-- What attempts used by the day of their end, UTC days since 1970: it stays when jobs are purged. Times in milliseconds.
-- `jobs`: first attempts; `measured_core_ms`: of the attempts whose CPU time is known.
CREATE TABLE usage_day (
    day      INTEGER NOT NULL,
    owner    TEXT NOT NULL,
    grp      TEXT NOT NULL,
    vo       TEXT NOT NULL,
    site     TEXT NOT NULL,
    cause    TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    jobs     INTEGER NOT NULL,
    wall_ms  INTEGER NOT NULL,
    core_ms  INTEGER NOT NULL,
    cpu_ms   INTEGER NOT NULL,
    measured_core_ms INTEGER NOT NULL,
    PRIMARY KEY (day, owner, grp, vo, site, cause)
) WITHOUT ROWID;
-- How far attempts are in it: all up to `done` but those in usage_open. `changes`: how often this changed.
-- `purged`: the latest end of an attempt that was purged (UNIX seconds).
CREATE TABLE usage_fold (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    done    INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    purged  REAL NOT NULL
);
INSERT INTO usage_fold (one, done, changes, purged) VALUES (1, 0, 0, 0);
CREATE TABLE usage_open (attempt_id INTEGER PRIMARY KEY);
