"""Moving SQLite's log into the database on a thread of its own, so that no commit waits for it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import apsw

from lodesman.store.engine import BUSY_MS, Writer

log = logging.getLogger(__name__)

# The thread moves the log in pieces of so many pages: a page that was written several times since is moved once.
CHECKPOINT_PAGES = 1_000
# SQLite begins its log anew only when a commit finds all of it moved. Under load the thread never gets there: a log of so
# many pages (32 MB) is moved to its end by the writer itself, as soon as the thread has left it no more than the rest.
LOG_PAGES = 8_000
REST_PAGES = 500
# Commits of thousands of pages never leave so little. A log of so many (64 MB) is the writer's to move, whatever is left.
MOST_PAGES = 16_000


class Checkpointer:
    """Watches a write connection and checkpoints passively once its log has grown."""

    def __init__(self, writer: Writer, path: Path) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stop = False
        # Pages of the log as it is that are in the database. Too many while a new log has begun; the next commit sees it.
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
        """The log has so many pages now. Called by the writer, after each commit."""
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
        """Move what readers do not need where it is."""
        try:
            _, self._moved = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            # Somebody else moves it right now; the next commit asks again.
            pass
        except Exception:  # this thread must live as long as the server
            log.exception("a checkpoint failed; the log goes on growing")
