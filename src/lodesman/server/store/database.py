"""What the store asks of a database engine: where it is, its connections, and its faults in words.

`store.sqlite` implements it. All other modules know these types only.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from lodesman.base.errors import ServerFault, Unavailable
from lodesman.server.store.statement import Group, Row

log = logging.getLogger(__name__)

_T = TypeVar("_T")

UNREADABLE: Final = (msgspec.DecodeError, RecursionError, TypeError, ValueError)
"""What the reading of a damaged value meets with."""


def readable(make: Callable[..., _T], rows: Iterable[Sequence[Any]], noun: str) -> Iterator[_T]:
    """What `make` makes of each row, but for damaged ones: the log names each by its first column."""
    for row in rows:
        try:
            made = make(*row)
        except UNREADABLE:
            log.exception("a row of the database cannot be read", extra={"row": f"{noun} {row[0]}"})
        else:
            yield made


def damaged(what: str, fault: Exception) -> ServerFault:
    """What is answered to who asks for the one thing whose row cannot be read."""
    return ServerFault(
        f"What is stored of {what} is damaged: {fault}.",
        hint="An administrator may restore a backup (lode db check).",
    )


def let_go(fault: BaseException | None) -> None:
    """Forget what the frames of a fault hold, and those of faults before it: a query that is half read would keep its
    connection at that moment as long as anyone keeps the fault.
    """
    while fault is not None:
        traceback.clear_frames(fault.__traceback__)
        fault = fault.__cause__ or fault.__context__


class DatabaseGone(Unavailable):
    """What the writer writes would be lost, or is no longer its own: it must end."""


class ConnectionLost(Unavailable):
    """The connection to the database has ended; what was not committed is not stored."""


class CommitInDoubt(ConnectionLost):
    """The connection ended while a transaction was committed: only the database knows whether it was."""


class Rows(Protocol):
    """The rows of a query."""

    def __iter__(self) -> Iterator[Any]:
        """Those that are left."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next one, None after the last."""


class Reader:
    """A read-only connection; each thread uses its own. As a context, all reads in it see one moment.

    `execute` is for the store's modules: they alone know SQL.
    """

    __slots__ = ("connection", "database", "execute")
    dialect = ""
    """Names the migrations that are its own."""

    def __init__(self, database: Database, connection: Any, execute: Callable[..., Rows]) -> None:
        self.database = database
        self.connection = connection
        self.execute = execute

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

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

    def tables(self) -> set[str]:
        """The names of all tables."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


class Writer(Reader):
    """The write connection; there is one at a time. It changes the database only by way of the journal."""

    __slots__ = ()
    nul = "\0"
    """What it stores for this character in a text."""

    def run_script(self, sql: str) -> None:
        """Run the statements of a migration."""
        self.execute(sql)

    def begin(self) -> None:
        """Begin a transaction. Raises Unavailable if that is not possible now."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def roll_back(self) -> None:
        """Roll back the transaction, if one is open."""
        raise NotImplementedError

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement; returns the number of rows changed."""
        raise NotImplementedError

    def change_each(self, sql: str, rows: Sequence[Row]) -> int:
        """Run one statement for each row, in their order, in as few steps as the database allows; returns the number of rows
        changed, those that triggers changed included.
        """
        raise NotImplementedError

    def change_all(self, groups: Iterable[Group]) -> None:
        """Run statements one after the other, each for its rows. Raises WrongRows."""
        raise NotImplementedError

    def check(self) -> None:
        """Often called. Raises DatabaseGone if what is written would be lost."""

    def refusal_of(self, fault: Exception) -> Unavailable | None:
        """What a command is answered with when the database failed; None if `fault` is not of the database."""
        raise NotImplementedError

    def broken_parts(self) -> list[str]:
        """What is damaged in the database, in words; all of it may be read."""
        return []

    def openness(self) -> str:
        """What lets strangers in, in a sentence; '' if nothing does."""
        return ""

    def end_copy(self, counted: Sequence[str]) -> None:
        """After all rows were copied: ids that the database gives in the `counted` tables are greater."""

    def start_upkeep(self) -> None:
        """Begin what the engine does beside the commits, until `close`."""


class Database(Protocol):
    """Where everything is stored but for files of jobs. A value: it holds no connection."""

    def reader(self) -> Reader:
        """A read connection."""

    def writer(self, *, migrates: bool = True) -> Writer:
        """The write connection, schema up to date, or left as it is if not `migrates`.

        Raises Conflict if another server has it, Unavailable for the database of another program, or of a newer
        Lodesman; `usable` words other faults.
        """

    def backup_command(self, file: Path) -> list[str]:
        """The program that backs it up, with its arguments, no password in them; [] if `store.backup` does."""

    def usable(self) -> AbstractContextManager[None]:
        """Around a start: raises Unavailable in clear words if the database cannot be used."""

    def ways_in(self) -> tuple[Path, ...]:
        """Files, and folders of sockets, by which another process of this account could read it."""

    def is_empty(self) -> bool:
        """Whether nothing can be in it; False if only the database itself can say it."""

    def beside(self, name: str) -> Path:
        """A file that lies beside the database, and belongs to it."""

    def identity(self, db: Reader) -> int:
        """Which database this is: a copy has another one."""

    def made(self) -> int:
        """When it was made (ns since 1970), 0 if that is unknown: a copy often gets the inode of what it replaces."""

    def home(self, db: Reader) -> int:
        """The same, where that says enough without the files beside it; else 0."""
