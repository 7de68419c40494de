"""What the store asks of a database engine; `store.sqlite` and `store.postgresql` implement it."""

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
"""What reading a damaged value raises."""


def readable(make: Callable[..., _T], rows: Iterable[Sequence[Any]], noun: str) -> Iterator[_T]:
    """What `make` makes of each row; damaged ones are logged and left out."""
    for row in rows:
        try:
            made = make(*row)
        except UNREADABLE:
            log.exception("a row of the database cannot be read", extra={"row": f"{noun} {row[0]}"})
        else:
            yield made


def damaged(noun: str, fault: Exception) -> ServerFault:
    """The answer to a request for a row that cannot be read."""
    return ServerFault(
        f"What is stored of {noun} is damaged: {fault}.",
        hint="An administrator may restore a backup (lode db check).",
    )


def let_go(fault: BaseException | None) -> None:
    """Clear the frames of a fault: a half-read query in one pins its connection to an old snapshot."""
    while fault is not None:
        traceback.clear_frames(fault.__traceback__)
        fault = fault.__cause__ or fault.__context__


class DatabaseGone(Unavailable):
    """Writes would be lost, or the database belongs to another server: the writer must end."""


class ConnectionLost(Unavailable):
    """What was not committed is not stored."""


class CommitInDoubt(ConnectionLost):
    """Only the database knows whether the commit was done."""


class Rows(Protocol):
    """The rows of a query."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> tuple[Any, ...] | None:
        """None after the last."""


class Reader:
    """A read-only connection for one thread. As a context, all reads in it see one snapshot."""

    __slots__ = ("connection", "database", "execute")
    dialect = ""
    """The part of file names of its own migrations."""

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
        """Raises LookupError without a row."""
        row = self.execute(sql, values).fetchone()
        if row is None:
            raise LookupError(sql)
        return tuple(row)

    def find(self, make: Callable[..., _T], sql: str, values: Sequence[Any] = ()) -> _T | None:
        """What `make` makes of the first row; None without one."""
        row = self.execute(sql, values).fetchone()
        return None if row is None else make(*row)

    def tables(self) -> set[str]:
        """The names of all tables."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


class Writer(Reader):
    """The one write connection, used by the journal alone."""

    __slots__ = ()
    nul = "\0"
    """What it stores for a NUL in a text."""

    def run_script(self, sql: str) -> None:
        """Run a migration."""
        self.execute(sql)

    def begin(self) -> None:
        """Raises Unavailable if no transaction can begin."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def roll_back(self) -> None:
        """Does nothing without an open transaction."""
        raise NotImplementedError

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement; returns the number of rows changed."""
        raise NotImplementedError

    def change_each(self, sql: str, rows: Sequence[Row]) -> int:
        """Run a statement for each row, in order; returns the number of rows changed, also by triggers."""
        raise NotImplementedError

    def change_all(self, groups: Iterable[Group]) -> None:
        """Run statements in order, each for its rows. Raises WrongRows."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises DatabaseGone if writes would be lost. Called often."""

    def refusal_of(self, fault: Exception) -> Unavailable | None:
        """The answer to a command if the database failed; None for other faults."""
        raise NotImplementedError

    def broken_parts(self) -> list[str]:
        """What is damaged, in words; may read everything."""
        return []

    def openness(self) -> str:
        """What lets strangers in, in a sentence, or ''."""
        return ""

    def end_copy(self, counted: Sequence[str]) -> None:
        """Let new ids in the `counted` tables follow the copied ones."""

    def start_upkeep(self) -> None:
        """Start what the engine does beside the commits, until `close`."""


class Database(Protocol):
    """Where all but files of jobs is stored. A value: it holds no connection."""

    def reader(self) -> Reader:
        """Open a read connection."""

    def writer(self, *, migrates: bool = True) -> Writer:
        """Raises Conflict if another server has the database, Unavailable for another program's, or a newer
        Lodesman's.
        """

    def backup_command(self, file: Path) -> list[str]:
        """Without passwords; [] if `store.backup` does it."""

    def usable(self) -> AbstractContextManager[None]:
        """Around a start: raises Unavailable in clear words."""

    def ways_in(self) -> tuple[Path, ...]:
        """Files and socket folders by which other processes of this account could read it."""

    def is_empty(self) -> bool:
        """False if only the database knows."""

    def beside(self, name: str) -> Path:
        """A file that belongs to the database."""

    def identity(self, db: Reader) -> int:
        """Distinguishes databases: a copy has another one."""

    def made(self) -> int:
        """When (ns since 1970), 0 if unknown: a copy often gets the inode of the original."""

    def home(self, db: Reader) -> int:
        """The identity, if it suffices without the files beside it; else 0."""
