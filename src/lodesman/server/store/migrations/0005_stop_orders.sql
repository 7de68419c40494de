-- Why a running payload must be stopped. The order stays until the attempt has ended, whoever starts again meanwhile.
ALTER TABLE attempt ADD COLUMN stop_reason TEXT;
UPDATE attempt INDEXED BY attempt_live SET stop_reason = coalesce(
    (SELECT nullif(j.reason, '') FROM job j WHERE j.id = attempt.job_id), 'kill')
WHERE ended_at IS NULL AND EXISTS
    (SELECT 1 FROM job j WHERE j.id = attempt.job_id AND j.state IN ('Killed', 'Deleted'));

-- What a lost pilot's payload used is not known; zero was stored for it.
UPDATE attempt SET cpu_seconds = NULL, wall_seconds = NULL, max_rss_mb = NULL
WHERE outcome = 'Released' AND cause IN ('pilot-lost', 'lease-expired') AND wall_seconds = 0;
