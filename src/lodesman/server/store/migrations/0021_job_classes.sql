-- Job classes, each in its canonical text; `disabled` has names of variants with commas between. The template is here once it was
-- changed.
CREATE TABLE job_class (
    name       TEXT PRIMARY KEY,
    text       TEXT NOT NULL,
    disabled   TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL
) WITHOUT ROWID;
