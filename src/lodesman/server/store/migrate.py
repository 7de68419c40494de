"""Migrations: numbered SQL files, one transaction each, recorded with their checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from lodesman.base.errors import Unavailable
from lodesman.server.store.database import Reader, Writer

# The number of an unfinished copy (`store.copy`) in this table: no server may begin with it.
UNFINISHED: Final = 0
_RECORD = """CREATE TABLE IF NOT EXISTS migration
(number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)"""


class Script(NamedTuple):
    """A migration: its number, the name of its file, its SQL."""

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """The checksum of its SQL."""
        return _sha256(self.text)


@cache
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def migrate(db: Writer) -> list[str]:
    """Apply the missing migrations, in order; returns their names. Raises Unavailable as `missing`."""
    scripts = missing(db)
    db.run_script(_RECORD)
    for one in scripts:
        with db:
            db.run_script(one.text)
            db.change("INSERT INTO migration VALUES (?, ?, ?)", (one.number, one.name, one.sha256))
    return [one.name for one in scripts]


def missing(db: Reader) -> list[Script]:
    """The migrations that a database lacks.

    Raises Unavailable if it is of another program, newer than this one, an unfinished copy, or an applied file was edited
    since.
    """
    known, scripts = known_migrations(db), load_scripts(db.dialect)
    if UNFINISHED in known:
        hint = "Finish it with the same lode db copy, or remove it."
        raise Unavailable(f"There is an unfinished copy in {db.database}.", hint=hint)
    if known and max(known) > max(one.number for one in scripts):
        raise Unavailable(
            f"The database has migration {max(known)}, which this program does not know.",
            hint="It was written by a newer Lodesman: use that version.",
        )
    for one in scripts:
        if known.get(one.number, one.sha256) != one.sha256:
            raise Unavailable(f"Migration {one.name} was changed after it was applied.", name=one.name)
    return [one for one in scripts if one.number not in known]


def known_migrations(db: Reader) -> dict[int, str]:
    """The numbers and checksums of what was applied. Raises Unavailable for the database of another program."""
    tables = db.tables()
    if tables and "migration" not in tables:
        words = f"{db.database} has tables of another program."
        raise Unavailable(words, hint="Give Lodesman a database of its own.")
    return dict(db.execute("SELECT number, sha256 FROM migration")) if tables else {}


@cache
def load_scripts(dialect: str = "") -> Sequence[Script]:
    """Every migration, ascending. A database with a dialect has some texts of its own."""
    folder = resources.files("lodesman.server.store") / "migrations"
    names = {file.name for file in folder.iterdir() if file.name.endswith(".sql")}
    own = {
        f"{name.split('.')[0]}.sql": name for name in names if dialect and name.endswith(f".{dialect}.sql")
    }
    common = sorted(name for name in names if name.count(".") == 1)
    return tuple(Script(int(name[:4]), name, (folder / own.get(name, name)).read_text()) for name in common)
