"""A copy of a database in another one, of either engine: table by table, in the order of their keys.

The greatest key of each table says where to go on. A mark keeps servers away until all rows are compared. The copy
holds both writers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw
import msgspec

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.store.database import Reader, Writer
from lodesman.server.store.migrate import UNFINISHED, known_migrations, migrate, missing
from lodesman.server.store.sqlite import SqliteDatabase, SqliteWriter

_COLUMNS: Final = "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY pk = 0, pk, cid"
_MEMORY: Final = ":memory:"


class _StoredTable(NamedTuple):
    name: str
    columns: tuple[str, ...]  # the columns of the key first
    texts: tuple[str, ...]  # columns of any length
    keys: int  # how many columns the key has
    seeds: int  # how many rows a new table has
    is_counted: bool  # whether the database can give its ids

    @property
    def key(self) -> str:
        return ", ".join(self.columns[: self.keys])

    @property
    def last(self) -> str:
        down = ", ".join(f"{name} DESC" for name in self.columns[: self.keys])
        return f"SELECT {self.key} FROM {self.name} ORDER BY {down} LIMIT 1"

    @property
    def size(self) -> str:
        return " + ".join(f"coalesce(octet_length({name}), 0)" for name in self.texts) or "0"

    def select(self, columns: str, *, is_first: bool) -> str:
        after = "" if is_first else f"WHERE ({self.key}) > ({', '.join('?' * self.keys)})"
        return f"SELECT {columns} FROM {self.name} {after} ORDER BY {self.key} LIMIT ?"

    @property
    def insert(self) -> str:
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))})"


@cache
def tables() -> tuple[_StoredTable, ...]:
    """All tables of the schema but `migration`, which each database fills by itself."""
    with closing(SqliteWriter(SqliteDatabase(Path(_MEMORY)), apsw.Connection(_MEMORY), -1)) as db:
        migrate(db)
        return tuple(_described(db, name) for name in sorted(db.tables() - {"migration"}))


def _described(db: SqliteWriter, name: str) -> _StoredTable:
    columns = list(db.execute(_COLUMNS, (name,)))
    return _StoredTable(
        name,
        tuple(column for column, _, _ in columns),
        tuple(column for column, kind, _ in columns if kind in ("TEXT", "BLOB")),
        keys=sum(place > 0 for _, _, place in columns),
        seeds=db.only(f"SELECT count(*) FROM {name}")[0],
        is_counted=columns[0][:2] == ("id", "INTEGER"),
    )


# The most bytes of texts in a portion, which has at least one row.
_PORTION_BYTES: Final = 4 << 20
_MOST_ROWS: Final = 2_000

_MARK: Final = "INSERT INTO migration (number, name, sha256) VALUES (?, 'unfinished copy', ?)"
_UNMARK: Final = "DELETE FROM migration WHERE number = ?"
_ENCODER: Final = msgspec.json.Encoder()
_NUL, _NUL_IN_JSON = "\0", b"\\u0000"


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What both databases have of a table."""

    table: str
    rows: int
    sha256: str  # of its rows as JSON, one a line, in the order of its key
    replaced: int  # texts with a NUL, for which the copy has U+FFFD


_Row = tuple[Any, ...]


def check_source(source: Writer) -> None:
    """Raises Unavailable for nothing, an unfinished copy, another schema."""
    if not source.tables():
        raise Unavailable(f"There is nothing in {source.database}.", hint="Name the database of a server.")
    if lacking := missing(source):
        words = (
            f"Migrations are missing in {source.database}: {', '.join(script.name for script in lacking)}."
        )
        raise Unavailable(words, hint="Bring it up to date: lode db migrate.")


def begin_copy(source: Writer, target: Writer) -> int:
    """Prepare an empty or unfinished target; returns the number of rows to copy. Raises Conflict for other targets."""
    mark = hashlib.sha256(_ENCODER.encode(source.only("SELECT * FROM leadership"))).hexdigest()
    applied = known_migrations(target)
    if UNFINISHED not in applied:
        _make_target(target, mark)
    elif applied[UNFINISHED] != mark or missing(target, unfinished=True):  # begun by an older program
        words = (
            f"In {target.database} is an unfinished copy of another database, or of what this one was before."
        )
        raise Conflict(words, hint="Remove it, and begin again.")
    return sum(_count(source, table) for table in tables())


def _make_target(target: Writer, mark: str) -> None:
    existing = target.tables()
    for table in tables():
        rows = list(target.execute(f"SELECT 1 FROM {table.name} LIMIT 2")) if table.name in existing else []
        if len(rows) > table.seeds:
            words = f"There are rows in {table.name} of {target.database}; a copy needs an empty database."
            raise Conflict(words, hint="Nothing was changed: name another one.")
    migrate(target)
    with target:
        for table in tables():
            if table.seeds:
                target.change(f"DELETE FROM {table.name}")
        target.change(_MARK, (UNFINISHED, mark))


def copy_rows(source: Writer, target: Writer, advance: Callable[[int], None]) -> list[CopiedTable]:
    """Copy missing rows, compare all, remove the mark. `advance` counts each row twice. Raises Conflict if a row differs."""
    for table in tables():
        _copy_table(source, target, table, advance)
    copied = [_compare_table(source, target, table, advance) for table in tables()]
    with target:
        target.end_copy([table.name for table in tables() if table.is_counted])
        target.change(_UNMARK, (UNFINISHED,))
    return copied


def _copy_table(source: Writer, target: Writer, table: _StoredTable, advance: Callable[[int], None]) -> None:
    after = target.find(lambda *key: key, table.last)
    advance(_count(target, table))
    for rows in _portions(source, table, after):
        with target.database.usable(), target:
            target.change_each(table.insert, rows)
        advance(len(rows))


def _compare_table(
    source: Writer, target: Writer, table: _StoredTable, advance: Callable[[int], None]
) -> CopiedTable:
    digest, count, replaced, after = hashlib.sha256(), 0, 0, None
    for rows in _portions(source, table):
        expected, copied = _as_stored(rows, target.nul), _rows(target, table, after, len(rows))
        if expected != copied:
            raise _difference(table, expected, copied)
        digest.update(_ENCODER.encode_lines(copied))
        count += len(rows)
        if expected is not rows:
            replaced += sum(isinstance(v, str) and _NUL in v for row in rows for v in row)
        after = rows[-1][: table.keys]
        advance(len(rows))
    if more := _rows(target, table, after, 1):
        raise _difference(table, [], more)
    return CopiedTable(table=table.name, rows=count, sha256=digest.hexdigest(), replaced=replaced)


def _difference(table: _StoredTable, rows: list[_Row], copied: list[_Row]) -> Conflict:
    pairs = zip_longest(rows, copied, fillvalue=())
    row = next(expected or other for expected, other in pairs if expected != other)
    words = f"The copy differs: in {table.name}, at {', '.join(map(repr, row[: table.keys]))}."
    return Conflict(
        words, hint="Did something else write to one of the two? Remove the copy, and begin again."
    )


def _count(db: Reader, table: _StoredTable) -> int:
    return int(db.only(f"SELECT count(*) FROM {table.name}")[0])


def _portions(db: Reader, table: _StoredTable, after: _Row | None = None) -> Iterator[list[_Row]]:
    sizes = _some(db, table, table.size, after, _MOST_ROWS)
    while sizes:
        fitting = sum(size <= _PORTION_BYTES for size in accumulate(size for (size,) in sizes))
        rows = _rows(db, table, after, max(1, fitting))
        yield rows
        after = rows[-1][: table.keys]
        sizes = _some(db, table, table.size, after, _MOST_ROWS)


def _rows(db: Reader, table: _StoredTable, after: _Row | None, limit: int) -> list[_Row]:
    return _some(db, table, ", ".join(table.columns), after, limit)


def _some(db: Reader, table: _StoredTable, columns: str, after: _Row | None, limit: int) -> list[_Row]:
    with db.database.usable():
        return list(db.execute(table.select(columns, is_first=after is None), (*(after or ()), limit)))


def _as_stored(rows: list[_Row], nul: str) -> list[_Row]:
    if nul == _NUL or _NUL_IN_JSON not in _ENCODER.encode_lines(rows):
        return rows
    return [tuple(v.replace(_NUL, nul) if isinstance(v, str) else v for v in row) for row in rows]
