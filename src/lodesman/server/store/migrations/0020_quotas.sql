-- Resource quota sets, each as it was written; `place` is its turn.
CREATE TABLE quota_set (
    name       TEXT PRIMARY KEY,
    place      INTEGER NOT NULL,
    text       TEXT NOT NULL,
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL
) WITHOUT ROWID;
