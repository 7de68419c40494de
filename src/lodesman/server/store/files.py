"""The lock of a data folder, and whether the database's files are still where the writer opened them: a deleted
file takes writes, and loses them.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from lodesman.base.errors import Conflict
from lodesman.server.store.database import DatabaseGone

_CHECK_SECONDS: Final = 1.0
# The byte that a writer locks in the log's index.
_WRITE_LOCK: Final = 120
_RESTORE = "Put the data folder back, from a backup if it is lost, and start the server again."


def lock_place(lock: Path, place: str) -> int:
    """Take a server's lock; returns the descriptor that holds it. Raises Conflict."""
    lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Conflict(
            f"Another server already owns {place}.",
            hint="Stop it first, or give this one its own data directory with --data.",
        ) from None
    return descriptor


def is_read_only(path: Path) -> bool:
    """Whether the file system is."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def lock_holder(path: Path) -> str:
    """Who holds the write lock, in words."""
    try:
        inode = str(Path(f"{path}-shm").stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: POSIX ADVISORY WRITE 4711 fd:01:394230 120 120
            _, _, _, kind, pid, file, first, last = line.split() if "->" not in line else [""] * 8
            if kind == "WRITE" and file.endswith(f":{inode}") and int(first) <= _WRITE_LOCK <= int(last):
                return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except (OSError, ValueError):
        pass
    return "another program"


class DatabaseFiles:
    """Device and inode of the database, its log and the log's index. The database becomes shorter only if another
    file is written over it.
    """

    def __init__(self, path: Path) -> None:
        ends = ("", "-wal", "-shm") if path.is_file() else ()
        self._files = {Path(f"{path}{end}"): (0, 0) for end in ends}
        for file in self._files:
            status = file.stat()
            self._files[file] = (status.st_dev, status.st_ino)
        self._path, self._size = path, 0
        self._due = 0.0

    def check(self) -> None:
        """Compare, at most once a second. Raises DatabaseGone."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _CHECK_SECONDS
        for file, identity in self._files.items():
            try:
                status = file.stat()
            except (FileNotFoundError, NotADirectoryError):
                raise DatabaseGone(
                    f"{file} was deleted or moved while the server ran.", hint=_RESTORE
                ) from None
            except OSError:
                continue  # nothing is known now; the next write finds out
            if (status.st_dev, status.st_ino) != identity or not status.st_nlink:
                raise DatabaseGone(f"{file} was replaced while the server ran.", hint=_RESTORE)
            if file == self._path:
                if status.st_size < self._size:
                    raise DatabaseGone(f"{file} was overwritten while the server ran.", hint=_RESTORE)
                self._size = status.st_size
