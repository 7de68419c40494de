-- A job that an administrator held: only an administrator lets it run again, also after it was killed.
ALTER TABLE job ADD COLUMN admin_held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hole ADD COLUMN admin_held INTEGER NOT NULL DEFAULT 0;

-- Since when a user is disabled; NULL: is not. The tokens of a disabled user are kept, and open nothing.
ALTER TABLE account ADD COLUMN disabled_at REAL;
CREATE INDEX token_account ON token (account) WHERE kind = 'user';

-- Who did what to whom, when and from where. `count`: so many times until `at`; `by` '' is unknown.
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
CREATE INDEX audit_at ON audit (at);

-- A file takes 4 kB at least. `outputs`: bytes of the outputs of the user's jobs, kept by these triggers.
ALTER TABLE sandbox_usage ADD COLUMN outputs INTEGER NOT NULL DEFAULT 0;
UPDATE sandbox_usage SET bytes = (SELECT sum(max(s.size, 4096)) FROM sandbox s WHERE s.owner = sandbox_usage.owner)
WHERE files > 0;
INSERT INTO sandbox_usage (owner, files, bytes, outputs)
SELECT s.owner, 0, 0, sum(max(a.output_size, 4096)) FROM attempt a JOIN job j ON j.id = a.job_id
JOIN submission s ON s.id = j.submission_id WHERE a.output_size IS NOT NULL GROUP BY s.owner
ON CONFLICT (owner) DO UPDATE SET outputs = excluded.outputs;
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
