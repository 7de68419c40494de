-- What a job class made of jobs that were changed while they waited, as JSON (`answers.jobs.Resolution`).
ALTER TABLE template ADD COLUMN resolution TEXT;
