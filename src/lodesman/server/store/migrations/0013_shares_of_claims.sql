-- The groups that competed for a claim, each with its share then; {}: for a private pilot, which serves one group.
-- The shares behind older claims are not known.
ALTER TABLE attempt RENAME COLUMN eligible TO shares;
UPDATE attempt SET shares = NULL WHERE shares IS NOT NULL;
