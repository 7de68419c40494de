-- The job that a pilot was sent for and runs alone (push); NULL: it takes any that fit (pull).
ALTER TABLE pilot ADD COLUMN bound_job INTEGER;
-- The queue of a forwarding node to which a pilot was submitted, as JSON (site, CE, queue); '' for all others. Where such a
-- pilot runs follows when it joins.
ALTER TABLE pilot ADD COLUMN sent_to TEXT NOT NULL DEFAULT '';
