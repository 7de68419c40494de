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
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;
CREATE TABLE site_mask_state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO site_mask_state VALUES (1, 0);

-- Why a pilot was told to leave, if nobody drained it by name.
ALTER TABLE pilot ADD COLUMN drain_reason TEXT NOT NULL DEFAULT '';
