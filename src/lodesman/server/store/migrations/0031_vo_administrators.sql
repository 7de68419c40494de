-- Whether the user administers its VO.
ALTER TABLE account ADD COLUMN vo_admin INTEGER NOT NULL DEFAULT 0;
