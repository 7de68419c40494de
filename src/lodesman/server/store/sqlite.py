"""The embedded database: one write connection, any number of read connections.

WAL mode with synchronous=FULL: an answered commit survives power loss.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
from msgspec import Struct

from lodesman.base import kernel
from lodesman.base.errors import Unavailable
from lodesman.server.store.database import Reader, Writer, let_go
from lodesman.server.store.files import DatabaseFiles, is_read_only, lock_holder, lock_place
from lodesman.server.store.migrate import known_migrations, migrate
from lodesman.server.store.sqlite_checkpoints import BUSY_MS, LOG_PAGES, Checkpointer
from lodesman.server.store.statement import Group, Row

_PAGE_BYTES = 4096
_PAGE_CACHE_KIB = 65_536
_READ_CACHE_KIB = 16_384
_LOCKED_MS = 100

# Rows of one statement, most first. Few widths keep the statements prepared; below SQLite's 32,766 values.
WIDTHS = (64, 16, 4)
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_VALUES = re.compile(r"\bVALUES\s*(\([^()]*\))\s*\Z")


class TextCursor(apsw.Cursor):
    r"""The rows of one query. A disk or a hand may leave texts that are no UTF-8, where the library gives up: such bytes
    stand as `\xff`, and each reader finds the damage in its row.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        damaged: Iterator[Any] | None = None
        while True:
            try:
                # The library goes on behind a row that it cannot give.
                yield from iter(super().__next__, None)
            except UnicodeDecodeError:
                if not self.is_readonly:
                    raise
            else:
                return
            # Nothing keeps the fault, whose frame keeps this query: half read, it would keep the connection at its moment.
            if damaged is None:
                damaged = iter(_damaged(self))
            yield next(damaged)

    def fetchone(self) -> Any:
        """None after the last."""
        try:
            return super().fetchone()
        except UnicodeDecodeError:
            if not self.is_readonly:
                raise
        return _damaged(self)[0]


def _damaged(cursor: apsw.Cursor) -> list[tuple[Any, ...]]:
    names = [f"c{number}" for number in range(len(cursor.description))]
    values = ", ".join(
        f"typeof({name}) = 'text', CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
        for name in names
    )
    query = f"WITH damaged({', '.join(names)}) AS ({cursor.expanded_sql}) SELECT {values} FROM damaged"
    damaged = []
    for row in list(cursor.connection.execute(query)):
        texts = [(value, is_text) for is_text, value in zip(row[::2], row[1::2], strict=True)]
        if any(is_text and not _is_whole(value) for value, is_text in texts):
            damaged.append(
                tuple(
                    value.decode(errors="backslashreplace") if is_text else value for value, is_text in texts
                )
            )
    return damaged


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class SqliteReader(Reader):
    """A read-only connection."""

    __slots__ = ()
    connection: apsw.Connection

    def __init__(self, database: SqliteDatabase, connection: apsw.Connection) -> None:
        connection.cursor_factory = TextCursor
        super().__init__(database, connection, connection.execute)

    def begin_reading(self, *statement: Any) -> Any:
        """Apply the settings with the first statement: they read the whole schema, a millisecond."""
        self.execute = self.connection.execute
        _pragmas(self.connection, f"cache_size=-{_READ_CACHE_KIB}", "query_only=ON")
        return self.execute(*statement)

    def tables(self) -> set[str]:
        return {name for (name,) in self.execute(_TABLES)}

    def __enter__(self) -> Self:
        self.connection.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        let_go(fault)
        self.connection.__exit__(kind, fault, trace)


class SqliteWriter(SqliteReader, Writer):
    """The write connection."""

    __slots__ = ("_checkpointer", "_files", "_lock", "_path")

    def __init__(self, database: SqliteDatabase, connection: apsw.Connection, lock: int) -> None:
        super().__init__(database, connection)
        self._path = database.path
        self._lock = lock
        self._checkpointer: Checkpointer | None = None

    def begin(self) -> None:
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.set_busy_timeout(BUSY_MS)
        except apsw.BusyError:
            # Commands behind this one are answered soon, too.
            self.connection.set_busy_timeout(_LOCKED_MS)
            words = f"The database is locked by {lock_holder(self._path)}; nothing was stored."
            hint = "End that program; the server goes on by itself."
            raise Unavailable(words, hint=hint) from None

    def roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        self.connection.execute(sql, values)
        return self.connection.changes()

    def change_all(self, groups: Iterable[Group]) -> None:
        execute, changes = self.connection.execute, self.connection.changes
        for statement, rows in groups:
            if len(rows) == 1:
                execute(statement.sql, rows[0])
                changed = changes()
            elif statement.fires:  # what triggers change is not counted
                changed = sum([self.change(statement.sql, row) for row in rows])
            else:
                changed = self.change_each(statement.sql, rows)
            if changed != len(rows):
                statement.rows.check(statement.sql, changed, len(rows))

    def change_each(self, sql: str, rows: Sequence[Row]) -> int:
        """An INSERT of one row is widened: each step lets other threads run, and with one for each row the writer
        waits for the interpreter longer than it works.
        """
        before = self.connection.total_changes()
        self._run_each(sql, rows)
        return self.connection.total_changes() - before

    def _run_each(self, sql: str, rows: Sequence[Row]) -> None:
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

    def check(self) -> None:
        self._files.check()

    def refusal_of(self, fault: Exception) -> Unavailable | None:
        return refusal_of(fault, self._path)

    def broken_parts(self) -> list[str]:
        return _broken_pages(self.connection)

    def open(self, *, migrates: bool) -> Self:
        """Check the file, and migrate if it `migrates`; a command has no upkeep."""
        db = self.connection
        known_migrations(self)
        _check_length(db, self._path)
        _pragmas(db, f"page_size={_PAGE_BYTES}", "journal_mode=WAL", "synchronous=FULL",
                 f"cache_size=-{_PAGE_CACHE_KIB}", "temp_store=MEMORY",
                 f"wal_autocheckpoint={0 if migrates else LOG_PAGES}")  # fmt: skip
        self._path.chmod(0o600)
        if migrates:
            migrate(self)
            self._files = DatabaseFiles(self._path)
        return self

    def start_upkeep(self) -> None:
        self._checkpointer = Checkpointer(self, self._path)
        self._checkpointer.start()

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        self.connection.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@lru_cache(maxsize=256)
def _values_of(sql: str) -> str | None:
    match = _VALUES.search(sql)
    return match[1] if match else None


@lru_cache(maxsize=1024)
def _widened(sql: str, width: int) -> str:
    return sql + f",{_values_of(sql)}" * (width - 1)


_FULL = (errno.ENOSPC, errno.EDQUOT)


def refusal_of(fault: Exception, path: Path) -> Unavailable | None:
    """The answer to a command if the database, or its disk, failed; else None."""
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
# A fault at a start: what it says of the file, and what to do.
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
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as fault:
        words = next((words for kind, words in _UNUSABLE.items() if isinstance(fault, kind)), None)
        predicate, hint = words or (f"cannot be used ({fault})", "Check its disk.")
        if path.is_dir():
            predicate, hint = "is a folder, not a database", "Move it away."
        elif isinstance(fault, apsw.CantOpenError) and not path.exists():
            predicate, hint = "is not there", "A server makes it at its first start."
        elif isinstance(fault, apsw.BusyError):
            predicate, hint = f"is locked by {lock_holder(path)}", "End that program."
        elif isinstance(fault, apsw.IOError) and shutil.disk_usage(path.parent).free < _FULL_BYTES:
            predicate, hint = _UNUSABLE[apsw.FullError]
        raise Unavailable(f"{path} {predicate}.", hint=hint, fault=type(fault).__name__) from None
    except OSError as fault:
        hint = _UNUSABLE[apsw.FullError][1] if fault.errno in _FULL else ""
        refusal = f"{fault.filename or path} cannot be used: {fault.strerror or fault}."
        raise Unavailable(refusal, hint=hint or "Check its disk, and who owns it.") from None


# --- opening -------------------------------------------------------------------------------------------


class SqliteDatabase(Struct, frozen=True):
    """A file, and what lies beside it."""

    path: Path

    def reader(self) -> SqliteReader:
        db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        db.set_busy_timeout(BUSY_MS)
        _pragmas(db, "schema_version")  # the first page says whether it is a database
        reader = SqliteReader(self, db)
        reader.execute = reader.begin_reading
        return reader

    def __str__(self) -> str:
        return str(self.path)

    def writer(self, *, migrates: bool = True) -> SqliteWriter:
        path = self.path
        lock = lock_place(path.with_suffix(".lock"), str(path))
        try:
            db = apsw.Connection(str(path))
            db.set_busy_timeout(BUSY_MS)
            return SqliteWriter(self, db, lock).open(migrates=migrates)
        except BaseException:
            os.close(lock)
            raise

    def backup_command(self, file: Path) -> list[str]:
        return []

    def usable(self) -> AbstractContextManager[None]:
        return _usable(self.path)

    def ways_in(self) -> tuple[Path, ...]:
        """The log may be outside of the data folder."""
        return self.path, Path(f"{self.path}-wal"), Path(f"{self.path}-shm")

    def is_empty(self) -> bool:
        """By the file alone: opening it would remove a log beside it."""
        return not self.path.exists() or (self.path.is_file() and not self.path.stat().st_size)

    def beside(self, name: str) -> Path:
        return self.path.with_suffix(f".{name}")

    def identity(self, db: Reader) -> int:
        """The inode: a copy has another one."""
        return self.path.stat().st_ino

    def made(self) -> int:
        return kernel.birth_of(str(self.path))

    def home(self, db: Reader) -> int:
        """The inode stays when other content is copied into the file."""
        return 0


def _check_length(db: apsw.Connection, path: Path) -> None:
    """A crash may leave pages in the log alone; others are lost. Raises apsw.CorruptError."""
    with path.open("rb") as file:
        pages = int.from_bytes(file.read(32)[28:], "big")
    if pages * _PAGE_BYTES > path.stat().st_size and _broken_pages(db):
        raise apsw.CorruptError


def _broken_pages(db: apsw.Connection) -> list[str]:
    try:
        return [text for (text,) in db.execute("PRAGMA quick_check(20)") if text != "ok"]
    except apsw.CorruptError as fault:
        return [str(fault)]


def _pragmas(db: apsw.Connection, *settings: str) -> None:
    """Each to its end: otherwise it is not carried out."""
    for setting in settings:
        list(db.execute(f"PRAGMA {setting}"))
