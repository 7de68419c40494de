-- Stored Requirements name operator and unit: {"name": [kind, operator, unit, values]} (ADR 0016).

-- In which unit older ones were stored is not known any more: null, read in the unit of today.
UPDATE submit_pool_bits SET requirements = (
    SELECT json_group_object(key, json_array(value ->> 0, '', NULL, json(value -> 1))) FROM json_each(requirements)
) WHERE json_valid(requirements);
UPDATE task_queue SET requirements = (
    SELECT json_group_object(key, json_array(value ->> 0, '', NULL, json(value -> 1))) FROM json_each(requirements)
) WHERE requirements != '' AND json_valid(requirements);

-- When the queues of a pool were found; NULL: they are not known. Not one queue may have meant either.
ALTER TABLE submit_pool_bits ADD COLUMN evaluated_at REAL;
UPDATE submit_pool_bits SET evaluated_at = created_at WHERE queues != x'';

-- Changes whenever task queues get other keys: those who keep keys read them anew.
ALTER TABLE submit_pool_state ADD COLUMN rekeyed INTEGER NOT NULL DEFAULT 0;

DROP VIEW submit_pool;
CREATE VIEW submit_pool AS
SELECT id, requirements, vo, queues, created_at, unused_since,
    iif(evaluated_at IS NULL, NULL,
        max(evaluated_at, coalesce((SELECT at FROM submit_pool_pass ORDER BY id DESC LIMIT 1), 0))) AS refreshed_at
FROM submit_pool_bits;

-- Task queues that a job may return to: one of it runs, or a person holds one.
CREATE VIEW queue_may_return AS
SELECT tq_id FROM attempt WHERE ended_at IS NULL
UNION SELECT tq_id FROM job WHERE state = 'Held'
UNION SELECT c.tq_id FROM hole h JOIN cohort c ON c.id = h.cohort_id WHERE h.state = 'Held';

-- The runs of a task queue, open or not: they go along when it is joined to another.
CREATE INDEX cohort_queue ON cohort (tq_id);
