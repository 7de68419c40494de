-- What was done to groups by command, the newest last: shares set beside the files' and taken back, members that came and went.
CREATE TABLE group_change (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    grp     TEXT NOT NULL,
    change  TEXT NOT NULL,
    share   REAL,
    account TEXT NOT NULL,
    by      TEXT NOT NULL,
    reason  TEXT NOT NULL
);
CREATE INDEX group_change_of ON group_change (grp, id);
