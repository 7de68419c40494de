-- As 0016_short_keys.sql. The parts keep their spelling in json, and their order is that of bytes.
WITH usual (name, value) AS (VALUES
    ('job_class', '""'),
    ('variant', '""'),
    ('project', '""'),
    ('job_type', '"User"'),
    ('user_priority', '1'),
    ('sites', '[]'),
    ('banned_sites', '[]'),
    ('grid_ces', '[]'),
    ('platforms', '[]'),
    ('tags', '[]'),
    ('pilot_type', '""'),
    ('submission_pools', '[]'),
    ('submit_pool', '""'),
    ('cores', '1'),
    ('memory_mb', '0'),
    ('norm_cpu_seconds', '86400')
)
UPDATE task_queue SET key = (
    SELECT '{' || string_agg(to_json(part.key)::text || ':' || part.value::text, ',' ORDER BY part.key COLLATE "C") || '}'
    FROM json_each(task_queue.key::json) part
    WHERE NOT EXISTS (SELECT FROM usual WHERE usual.name = part.key AND usual.value = part.value::text)
);
