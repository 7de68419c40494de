-- Tables that were made anew got their names back, but not their keys.
ALTER TABLE director_iteration RENAME CONSTRAINT director_record_pkey TO director_iteration_pkey;
ALTER SEQUENCE director_record_id_seq RENAME TO director_iteration_id_seq;
ALTER TABLE usage_day RENAME CONSTRAINT usage_day_by_group_pkey TO usage_day_pkey;
