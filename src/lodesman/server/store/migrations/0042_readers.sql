-- Who may read the jobs of a submission beside those who may change them: a user, or @ and a group, of the submission's VO.
CREATE TABLE submission_reader (
    submission_id INTEGER NOT NULL,
    reader        TEXT NOT NULL,
    at            REAL NOT NULL,
    by            TEXT NOT NULL,
    PRIMARY KEY (submission_id, reader)
) WITHOUT ROWID;
CREATE INDEX submission_reader_of ON submission_reader (reader, submission_id);
