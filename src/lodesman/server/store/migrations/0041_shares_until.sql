-- When a share that was set by command ends, in UNIX seconds; null: when it is taken back.
ALTER TABLE group_change ADD COLUMN until REAL;
