"""The embedded database: one write connection, any number of read connections, migrations, checkpoints.

SQLite in WAL mode with synchronous=FULL: a commit that was answered survives power loss. Only this module knows the
library; `store.dialect` has the SQL that only this database understands.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import apsw

from lodesman.errors import Conflict, Unavailable
from lodesman.store.files import is_read_only, lock_holder

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_PAGE_BYTES = 4096
_PAGE_CACHE_KIB = 65_536
_READ_CACHE_KIB = 16_384
# One batch may wait for a lock before a command and one with it: both are answered within 5 seconds.
_BUSY_MS = 2_000
_LOCKED_MS = 100

# The thread moves the log in pieces of this many pages: a page that was written several times since is moved once.
CHECKPOINT_PAGES = 1_000
# SQLite begins its log anew only when a commit finds all of it moved. Under load the thread never gets there. The writer
# itself moves a log of this many pages (32 MB) to its end, as soon as the thread has left no more than the rest.
LOG_PAGES = 8_000
REST_PAGES = 500
# Commits of thousands of pages never leave so little. The writer moves a log of this size (64 MB), whatever is left.
MOST_PAGES = 16_000

# Rows of one statement, most first. Few widths, so that the statements stay prepared; below SQLite's 32,766 values.
WIDTHS = (64, 16, 4)
_VALUES = re.compile(r"\bVALUES\s*(\([^()]*\))\s*\Z")
_RECORD = """CREATE TABLE IF NOT EXISTS migration
(number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)"""


class Reader:
    """A read-only connection; each thread uses its own. As a context, all reads in it see one moment.

    `execute` is for the store's modules: they alone know SQL.
    """

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

    def only(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The first row of a query that always has one. Raises LookupError if there is none."""
        row = self.execute(sql, values).fetchone()
        if row is None:
            raise LookupError(sql)
        return tuple(row)

    def find(self, make: Callable[..., _T], sql: str, values: Sequence[Any] = ()) -> _T | None:
        """What `make` makes of the columns of the first row of a query; None if there is none."""
        row = self.execute(sql, values).fetchone()
        return None if row is None else make(*row)

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

    def begin(self) -> None:
        """Begin a transaction. Raises Unavailable if another program has locked the database."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.set_busy_timeout(_BUSY_MS)
        except apsw.BusyError:
            # What waits behind this is answered soon, too.
            self.connection.set_busy_timeout(_LOCKED_MS)
            words = f"The database is locked by {lock_holder(self.path)}; nothing was stored."
            hint = "End that program; the server goes on by itself."
            raise Unavailable(words, hint=hint) from None

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement; returns the number of rows changed."""
        self.connection.execute(sql, values)
        return self.connection.changes()

    def change_each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row, in their order. An INSERT of one row is widened to take many at a time.

        Each step of a statement lets other threads run, and the writer waits until it has the interpreter again: a batch
        of claims with one step for each row waits longer than it works.
        """
        values = _values_of(sql) if len(rows) >= WIDTHS[-1] else None
        if values is None:
            self.connection.executemany(sql, rows)
            return
        left = iter(rows)
        count = len(rows)
        for width in WIDTHS:
            while count >= width:
                self.connection.execute(_widened(sql, width), tuple(chain.from_iterable(islice(left, width))))
                count -= width
        if count:
            self.connection.executemany(sql, left)


@lru_cache(maxsize=256)
def _values_of(sql: str) -> str | None:
    """The list of values of an INSERT of one row; None for any other statement."""
    found = _VALUES.search(sql)
    return found[1] if found else None


@lru_cache(maxsize=1024)
def _widened(sql: str, width: int) -> str:
    return sql + f",{_values_of(sql)}" * (width - 1)


_FULL = (errno.ENOSPC, errno.EDQUOT)


def refusal_of(fault: Exception, path: Path) -> Unavailable | None:
    """What a command is answered with when the database at `path`, or the disk, failed; None for any other `fault`."""
    number = fault.errno if isinstance(fault, OSError) else 0
    if isinstance(fault, apsw.FullError) or number in _FULL:
        return Unavailable("The disk of the server is full.", hint="Nothing was stored; try again later.")
    if not isinstance(fault, apsw.Error) and number != errno.EROFS:
        return None
    if isinstance(fault, apsw.ReadOnlyError) or number or is_read_only(path):
        words = "The disk of the server is read-only; nothing was stored."
        return Unavailable(words, hint="Make it writable again; the server goes on by itself.")
    return Unavailable("The database refused the change; nothing was stored.", fault=type(fault).__name__)


_BACKUP = "Move it away, and put a backup in its place."
# What a fault at the start says of the file, and what to do.
_UNUSABLE: dict[type[Exception], tuple[str, str]] = {
    apsw.NotADBError: ("is not a database", _BACKUP),
    apsw.CorruptError: ("is damaged or cut short", _BACKUP),
    apsw.CantOpenError: ("cannot be opened", "This user must own the data folder."),
    apsw.FullError: ("cannot be changed: its disk is full", "Free some space there; nothing is lost."),
    apsw.ReadOnlyError: ("is read-only", "This user must own it, on a disk that takes changes."),
}
# With less than this some faults of a full disk have other names.
_FULL_BYTES = 1 << 20


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Around a start: raises Unavailable in clear words if the database, or a file beside it, cannot be used."""
    try:
        yield
    except apsw.Error as fault:
        words = next((words for kind, words in _UNUSABLE.items() if isinstance(fault, kind)), None)
        what, hint = words or (f"cannot be used ({fault})", "Check its disk.")
        if path.is_dir():
            what, hint = "is a folder, not a database", "Move it away."
        elif isinstance(fault, apsw.BusyError):
            what, hint = f"is locked by {lock_holder(path)}", "End that program."
        elif isinstance(fault, apsw.IOError) and shutil.disk_usage(path.parent).free < _FULL_BYTES:
            what, hint = _UNUSABLE[apsw.FullError]
        raise Unavailable(f"{path} {what}.", hint=hint, fault=type(fault).__name__) from None
    except OSError as fault:
        hint = _UNUSABLE[apsw.FullError][1] if fault.errno in _FULL else ""
        refusal = f"{fault.filename or path} cannot be used: {fault.strerror or fault}."
        raise Unavailable(refusal, hint=hint or "Check its disk, and who owns it.") from None


# --- opening -------------------------------------------------------------------------------------------


def open_writer(path: Path) -> Writer:
    """The write connection, schema up to date. There is one at a time: see `lock_database`.

    Raises Unavailable for the database of another program, or of a newer Lodesman; `usable` words other faults.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.is_file() and not path.stat().st_size and any(path.parent.glob(f"{path.stem}.seen-*")):
        raise Unavailable(f"{path} is empty, but a server has used it.", hint=_BACKUP)
    db = apsw.Connection(str(path))
    db.set_busy_timeout(_BUSY_MS)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and "migration" not in tables:
        raise Unavailable(f"{path} is the database of another program.", hint=_BACKUP)
    _check_length(db, path)
    _pragmas(db, f"page_size={_PAGE_BYTES}", "journal_mode=WAL", "synchronous=FULL", f"cache_size=-{_PAGE_CACHE_KIB}",
             "wal_autocheckpoint=0", "temp_store=MEMORY")  # fmt: skip
    path.chmod(0o600)
    migrate(db)
    return Writer(db)


def _check_length(db: apsw.Connection, path: Path) -> None:
    """A crash may leave pages in the log alone; other missing pages are lost. Raises apsw.CorruptError."""
    with path.open("rb") as file:
        pages = int.from_bytes(file.read(32)[28:], "big")
    if pages * _PAGE_BYTES > path.stat().st_size and broken_pages(Reader(db)):
        raise apsw.CorruptError


def broken_pages(db: Reader) -> list[str]:
    """What is wrong with the pages of the database, in the words of SQLite; all of it is read."""
    try:
        return [text for (text,) in db.execute("PRAGMA quick_check(20)") if text != "ok"]
    except apsw.CorruptError as fault:
        return [str(fault)]


def open_reader(path: Path) -> Reader:
    """A read-only connection; each thread uses its own."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(_BUSY_MS)
    _pragmas(db, f"cache_size=-{_READ_CACHE_KIB}", "query_only=ON")
    return Reader(db)


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


# --- migrations: numbered SQL files, one transaction each, recorded with their checksum ------------------


def migrate(db: apsw.Connection) -> list[str]:
    """Apply the missing migrations, in order; returns their names.

    Raises Unavailable if an applied file was edited since, or the database is newer than the program.
    """
    db.execute(_RECORD)
    known = dict(db.execute("SELECT number, sha256 FROM migration"))
    scripts = load_scripts()
    if known and max(known) > max(number for number, _, _ in scripts):
        raise Unavailable(
            f"The database has migration {max(known)}, which this program does not know.",
            hint="It was written by a newer Lodesman: use that version.",
        )
    applied = []
    for number, name, text in scripts:
        sha = hashlib.sha256(text.encode()).hexdigest()
        if number in known:
            if known[number] != sha:
                raise Unavailable(f"Migration {name} was changed after it was applied.", name=name)
            continue
        with db:
            db.execute(text)
            db.execute("INSERT INTO migration VALUES (?, ?, ?)", (number, name, sha))
        applied.append(name)
    return applied


def load_scripts() -> list[tuple[int, str, str]]:
    """(number, file name, text) of every migration, ascending."""
    folder = resources.files("lodesman.store") / "migrations"
    found = [(int(f.name[:4]), f.name, f.read_text()) for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(found)


# --- checkpoints -----------------------------------------------------------------------------------------


class Checkpointer:
    """Moves SQLite's log into the database on a thread of its own, so that no commit waits for it."""

    def __init__(self, writer: Writer, path: Path) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stop = False
        # Pages of the present log that are in the database. Too many after a new log has begun; the next commit sees it.
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
        """The log has `pages` pages now. Called by the writer, after each commit."""
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
        db.set_busy_timeout(_BUSY_MS)
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
            # Another connection moves it right now; the next commit asks again.
            pass
        except Exception:  # this thread must live as long as the server
            log.exception("a checkpoint failed; the log goes on growing")
