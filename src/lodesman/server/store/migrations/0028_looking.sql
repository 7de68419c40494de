-- Where lists of jobs and submissions of a time begin.
CREATE INDEX submission_created ON submission (created_at);
-- Attempts that did not end well, by their cause: few, and written once.
CREATE INDEX attempt_cause ON attempt (cause, job_id) WHERE outcome != 'Done';
