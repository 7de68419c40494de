-- After which ends of its payload a job is tried again (`jobs.retries.RetryRule`) as JSON; NULL: after none.
ALTER TABLE template ADD COLUMN retry TEXT;
