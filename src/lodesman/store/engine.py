"""Opening the embedded database: one write connection, any number of read connections.

SQLite in WAL mode with synchronous=FULL: a commit that was answered survives power loss. Passive
checkpoints run on a thread of their own (`journal`), so a commit never pays for one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

from lodesman.errors import Conflict
from lodesman.store.migrate import migrate

PAGE_CACHE_KIB = 65_536
READ_CACHE_KIB = 16_384
BUSY_MS = 5_000


class Reader:
    """A read-only connection; each thread uses its own. As a context, all reads in it see one moment."""

    __slots__ = ("connection", "execute")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute

    def __enter__(self) -> Self:
        self.connection.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.__exit__(kind, fault, trace)

    @property
    def path(self) -> Path:
        """The database file."""
        return Path(self.connection.filename)

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


class Writer(Reader):
    """The write connection. It changes the database only by way of the journal."""

    __slots__ = ()


def open_writer(path: Path) -> Writer:
    """The write connection, schema up to date. There is one at a time: see `lock_database`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = apsw.Connection(str(path))
    db.set_busy_timeout(BUSY_MS)
    _pragmas(db, "page_size=4096", "journal_mode=WAL", "synchronous=FULL", f"cache_size=-{PAGE_CACHE_KIB}",
             "wal_autocheckpoint=0", "temp_store=MEMORY")  # fmt: skip
    path.chmod(0o600)
    migrate(db)
    return Writer(db)


def open_reader(path: Path) -> Reader:
    """A read-only connection; each thread uses its own."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(BUSY_MS)
    _pragmas(db, f"cache_size=-{READ_CACHE_KIB}", "query_only=ON")
    return Reader(db)


def only_row(db: Reader, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The first row of a query that always has one. Raises LookupError if there is none after all."""
    row = db.execute(sql, values).fetchone()
    if row is None:
        raise LookupError(sql)
    return tuple(row)


def _pragmas(db: apsw.Connection, *settings: str) -> None:
    """Each to its end: a statement whose rows are not read is not carried out."""
    for setting in settings:
        list(db.execute(f"PRAGMA {setting}"))


def lock_database(path: Path) -> int:
    """Take the writer's lock beside the database; it is held until the process ends.

    Returns the descriptor that holds it. Raises Conflict if another server has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Conflict(
            f"Another server already owns {path}.",
            hint="Stop it first, or give this one its own data directory with --data.",
        ) from None
    return descriptor
