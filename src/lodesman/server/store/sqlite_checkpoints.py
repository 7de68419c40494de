"""Checkpoints of SQLite beside the commits."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import apsw

from lodesman.server.store.database import Writer

log = logging.getLogger(__name__)

# A command may wait behind one batch that waits for a lock: both are answered within 5 seconds.
BUSY_MS = 2_000
# The thread moves the log in pieces of this many pages: a page written several times is moved once.
CHECKPOINT_PAGES = 1_000
# SQLite restarts its log only when a commit finds all of it moved; under load the thread never gets there. So the writer
# moves a log of this many pages (32 MB) to its end, once the thread has left no more than the rest.
LOG_PAGES = 8_000
REST_PAGES = 500
# Commits of thousands of pages never leave so little: a log of this size (64 MB) the writer moves anyway.
MOST_PAGES = 16_000


class Checkpointer:
    """Moves SQLite's log into the database on its own thread: no commit waits for it."""

    def __init__(self, writer: Writer, path: Path) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stop = False
        # Moved pages of the present log; too many after a new log has begun, until the next commit.
        self._moved = 0
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        writer.connection.set_wal_hook(self._committed)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Checkpoint once more and end the thread."""
        self._stop = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _committed(self, db: apsw.Connection, _name: str, pages: int) -> int:
        """After each commit of the writer; `pages`: in the log."""
        if pages < self._moved:
            self._moved = 0
        left = pages - self._moved
        if pages > MOST_PAGES or (pages > LOG_PAGES and left <= REST_PAGES):
            self._move(db)
        elif left > CHECKPOINT_PAGES or pages > LOG_PAGES:
            self._wanted.set()
        return apsw.SQLITE_OK

    def _run(self) -> None:
        db = apsw.Connection(str(self._path))
        db.set_busy_timeout(BUSY_MS)
        # A connection that has read nothing does not know of the log and would checkpoint nothing.
        list(db.execute("SELECT count(*) FROM sqlite_schema"))
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self._move(db)
            if self._stop:
                db.close()
                return

    def _move(self, db: apsw.Connection) -> None:
        try:
            _, self._moved = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            # Another connection moves it right now; the next commit asks again.
            pass
        except Exception:  # this thread must live as long as the server
            log.exception("a checkpoint failed; the log goes on growing")
