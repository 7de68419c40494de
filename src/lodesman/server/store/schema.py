"""The tables as the migrations make them: what a copy takes from one database to another."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from lodesman.server.store.migrate import migrate
from lodesman.server.store.sqlite import SqliteDatabase, SqliteWriter

_COLUMNS: Final = "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY pk = 0, pk, cid"
_MEMORY: Final = ":memory:"


class StoredTable(NamedTuple):
    """A table: its columns without those that the database computes, the first `keys` of them its key.

    `texts`: those of any length. `seeds`: the number of rows that it has from the beginning. `is_counted`: the database can
    give its ids.
    """

    name: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    keys: int
    seeds: int
    is_counted: bool

    @property
    def key(self) -> str:
        """The columns of its key."""
        return ", ".join(self.columns[: self.keys])

    @property
    def last(self) -> str:
        """Selects the greatest key."""
        down = ", ".join(f"{name} DESC" for name in self.columns[: self.keys])
        return f"SELECT {self.key} FROM {self.name} ORDER BY {down} LIMIT 1"

    @property
    def size(self) -> str:
        """The bytes of the texts of a row."""
        return " + ".join(f"coalesce(octet_length({name}), 0)" for name in self.texts) or "0"

    def select(self, what: str, *, is_first: bool) -> str:
        """Selects something of some rows, in the order of the key: of the first, or of those after a key."""
        after = "" if is_first else f"WHERE ({self.key}) > ({', '.join('?' * self.keys)})"
        return f"SELECT {what} FROM {self.name} {after} ORDER BY {self.key} LIMIT ?"

    @property
    def insert(self) -> str:
        """Inserts a row."""
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))})"


@cache
def tables() -> tuple[StoredTable, ...]:
    """All but `migration`, which each database fills by itself."""
    with closing(SqliteWriter(SqliteDatabase(Path(_MEMORY)), apsw.Connection(_MEMORY), -1)) as db:
        migrate(db)
        return tuple(_described(db, name) for name in sorted(db.tables() - {"migration"}))


def _described(db: SqliteWriter, name: str) -> StoredTable:
    columns = list(db.execute(_COLUMNS, (name,)))
    return StoredTable(
        name,
        tuple(column for column, _, _ in columns),
        tuple(column for column, kind, _ in columns if kind in ("TEXT", "BLOB")),
        keys=sum(place > 0 for _, _, place in columns),
        seeds=db.only(f"SELECT count(*) FROM {name}")[0],
        is_counted=columns[0][:2] == ("id", "INTEGER"),
    )
