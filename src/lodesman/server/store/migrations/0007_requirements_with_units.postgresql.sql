-- As 0007_requirements_with_units.sql, without what it makes of older rows: no PostgreSQL has any.
-- Stored Requirements name operator and unit: {"name": [kind, operator, unit, values]} (ADR 0016).

-- When the queues of a pool were found; NULL: they are not known. Not one queue may have meant either.
ALTER TABLE submit_pool_bits ADD COLUMN evaluated_at REAL;

-- Changes whenever task queues get other keys: those who keep keys read them anew.
ALTER TABLE submit_pool_state ADD COLUMN rekeyed INTEGER NOT NULL DEFAULT 0;

DROP VIEW submit_pool;
CREATE VIEW submit_pool AS
SELECT id, requirements, vo, queues, created_at, unused_since,
    CASE WHEN evaluated_at IS NOT NULL THEN
        greatest(evaluated_at, (SELECT at FROM submit_pool_pass ORDER BY id DESC LIMIT 1)) END AS refreshed_at
FROM submit_pool_bits;

-- Task queues that a job may return to: one of it runs, or a person holds one.
CREATE VIEW queue_may_return AS
SELECT tq_id FROM attempt WHERE ended_at IS NULL
UNION SELECT tq_id FROM job WHERE state = 'Held'
UNION SELECT c.tq_id FROM hole h JOIN cohort c ON c.id = h.cohort_id WHERE h.state = 'Held';

-- The runs of a task queue, open or not: they go along when it is joined to another.
CREATE INDEX cohort_queue ON cohort (tq_id);
