-- Outputs that came with the report of their attempt (ADR 0077): a tar.gz of at most 8 kB. Others are files.
CREATE TABLE small_output (
    attempt_id INTEGER PRIMARY KEY,
    content    BLOB NOT NULL
);
