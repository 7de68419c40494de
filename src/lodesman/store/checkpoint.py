"""Moving SQLite's log into the database on a thread of its own, so that no commit waits for it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import apsw

from lodesman.store.engine import BUSY_MS

log = logging.getLogger(__name__)

# Often and little: while a checkpoint writes, commits wait for the same disk.
CHECKPOINT_PAGES = 1_000


class Checkpointer:
    """Watches a write connection and checkpoints passively once its log has grown."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        db.set_wal_hook(self._committed)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Checkpoint once more and end the thread."""
        self._stop = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _committed(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages > CHECKPOINT_PAGES:
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
            try:
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.BusyError:
                # Somebody else writes the log back right now; the next commit asks again.
                pass
            except apsw.Error:
                log.exception("a checkpoint failed; the log goes on growing")
            if self._stop:
                db.close()
                return
