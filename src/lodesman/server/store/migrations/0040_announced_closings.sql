-- When a closing that was announced begins, in UNIX seconds; null: it began at `since`.
ALTER TABLE site_mask ADD COLUMN begins REAL;
