-- As 0011_rights_and_limits.sql, without what it makes of older rows: no PostgreSQL has any.
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
CREATE FUNCTION taken(size BIGINT) RETURNS BIGINT LANGUAGE sql AS $$
    SELECT CASE WHEN size IS NULL THEN 0 ELSE greatest(size, 4096) END;
$$;
CREATE FUNCTION count_output(of_job BIGINT, more BIGINT) RETURNS void LANGUAGE sql AS $$
    INSERT INTO sandbox_usage (owner, files, bytes, outputs)
    SELECT s.owner, 0, 0, greatest(0, more) FROM job j JOIN submission s ON s.id = j.submission_id WHERE j.id = of_job
    ON CONFLICT (owner) DO UPDATE SET outputs = greatest(0, sandbox_usage.outputs + more);
$$;
CREATE FUNCTION output_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM count_output(OLD.job_id, -taken(OLD.output_size));
    ELSE
        PERFORM count_output(NEW.job_id, taken(NEW.output_size) - taken(OLD.output_size));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER output_stored AFTER UPDATE OF output_size ON attempt FOR EACH ROW
WHEN (NEW.output_size IS DISTINCT FROM OLD.output_size) EXECUTE FUNCTION output_changed();
CREATE TRIGGER output_gone AFTER DELETE ON attempt FOR EACH ROW
WHEN (OLD.output_size IS NOT NULL) EXECUTE FUNCTION output_changed();
