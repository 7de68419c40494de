-- When the last pilot ended that is not there any more, or may be: for whom pilots held cores before that is not known whole.
ALTER TABLE usage_fold ADD COLUMN pilots_purged REAL NOT NULL DEFAULT 0;
UPDATE usage_fold SET pilots_purged = purged;
