-- A pilot is asked about where it was submitted: until now there was one batch system. What that said of it last.
ALTER TABLE pilot ADD COLUMN backend TEXT NOT NULL DEFAULT 'local';
ALTER TABLE pilot ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE pilot ADD COLUMN held_since REAL;
ALTER TABLE pilot ADD COLUMN native_seen REAL;

CREATE INDEX pilot_elsewhere ON pilot (backend, ended_at) WHERE backend != 'local';

-- Breakers of CE queues that are not closed or have failures, as JSON (`director.limits.Breaker`).
CREATE TABLE breaker (
    site   TEXT NOT NULL,
    ce     TEXT NOT NULL,
    queue  TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;
