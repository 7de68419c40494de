-- Orders of administrators for the breakers of CE queues: open (no pilot is sent) or closed (whatever happens there).
CREATE TABLE breaker_order (
    site       TEXT NOT NULL,
    ce         TEXT NOT NULL,
    queue      TEXT NOT NULL,
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    ordered_by TEXT NOT NULL,
    at         REAL NOT NULL,
    PRIMARY KEY (site, ce, queue)
) WITHOUT ROWID;
