-- A job that an administrator held: only an administrator lets it run again, also after it was killed.
ALTER TABLE job ADD COLUMN admin_held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hole ADD COLUMN admin_held INTEGER NOT NULL DEFAULT 0;
