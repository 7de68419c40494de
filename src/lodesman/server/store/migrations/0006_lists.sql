-- What lists and the keeping of the director's records need, so that neither reads what nobody asked for.

-- The submissions of one user in the order of their jobs. Unique, since `base` is: lists rely on that order.
CREATE UNIQUE INDEX submission_owner ON submission (owner, base);
-- Only arrays have members without rows.
CREATE INDEX submission_array ON submission (base) WHERE count > 1;

-- The size stands before the text: it can be read without walking through megabytes.
CREATE TABLE director_record (
    id    INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0,
    plan  TEXT NOT NULL
);
INSERT INTO director_record (id, at, bytes, plan)
SELECT id, at, octet_length(plan), plan FROM (SELECT * FROM director_iteration ORDER BY id DESC LIMIT 10);
DROP TABLE director_iteration;
ALTER TABLE director_record RENAME TO director_iteration;
