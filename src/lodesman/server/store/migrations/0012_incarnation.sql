-- Which state of the data this is. It changes when the database was restored, copied, or started from an older state:
-- tokens of pilots carry it. '': the database has never been started.
ALTER TABLE leadership ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
