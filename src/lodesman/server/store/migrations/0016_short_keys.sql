-- The key of a task queue says only what is not at its default: a field that is added later changes no stored key.
UPDATE task_queue SET key = json_remove(
    key,
    iif(key -> '$.job_class' = '""', '$.job_class', '$.-'),
    iif(key -> '$.variant' = '""', '$.variant', '$.-'),
    iif(key -> '$.project' = '""', '$.project', '$.-'),
    iif(key -> '$.job_type' = '"User"', '$.job_type', '$.-'),
    iif(key -> '$.user_priority' = '1', '$.user_priority', '$.-'),
    iif(key -> '$.sites' = '[]', '$.sites', '$.-'),
    iif(key -> '$.banned_sites' = '[]', '$.banned_sites', '$.-'),
    iif(key -> '$.grid_ces' = '[]', '$.grid_ces', '$.-'),
    iif(key -> '$.platforms' = '[]', '$.platforms', '$.-'),
    iif(key -> '$.tags' = '[]', '$.tags', '$.-'),
    iif(key -> '$.pilot_type' = '""', '$.pilot_type', '$.-'),
    iif(key -> '$.submission_pools' = '[]', '$.submission_pools', '$.-'),
    iif(key -> '$.submit_pool' = '""', '$.submit_pool', '$.-'),
    iif(key -> '$.cores' = '1', '$.cores', '$.-'),
    iif(key -> '$.memory_mb' = '0', '$.memory_mb', '$.-'),
    iif(key -> '$.norm_cpu_seconds' = '86400', '$.norm_cpu_seconds', '$.-')
) WHERE json_valid(key);
