-- What job classes made of the descriptions of a submission, as JSON by index (`answers.jobs.Resolution`).
ALTER TABLE submission ADD COLUMN resolution TEXT;
