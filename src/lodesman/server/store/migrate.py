"""The schema of a new database, and migrations of others, one transaction each, recorded by checksum (ADR 0086)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from lodesman.base.errors import Unavailable
from lodesman.server.store.database import Reader, Writer

# The number that marks an unfinished copy (`store.copy`): no server may begin with it.
UNFINISHED: Final = 0
# Migrations up to this one are in the schema alone; an existing database must have had all of them.
OLDEST: Final = 42
_OLDEST_COMMIT: Final = "7f956eda (2026-11-30)"
# The digest of their records in such a database, by dialect. A new database records it in their place.
_OLDEST_SHA256: Final = {
    "": "02cd7f82f33e751338b790d25cc6a85866731e453622d1a59d3e593424236347",
    "postgresql": "07866bcd2c76429c41abeb0269548ea5dd88a30c2d79bb862326bfc2d0e1cdbc",
}
_PACKAGE: Final = "lodesman.server.store"
_RECORD: Final = "INSERT INTO migration (number, name, sha256) VALUES (?, ?, ?)"
_NO_CHANGE: Final = "CREATE TABLE IF NOT EXISTS migration (number INTEGER)"


class Script(NamedTuple):
    """A migration, or the schema."""

    number: int
    name: str  # of its file
    text: str  # SQL

    @property
    def sha256(self) -> str:
        """The checksum of its SQL."""
        return _sha256(self.text)


@cache
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def migrate(db: Writer) -> list[str]:
    """Apply what is missing; returns the names. Raises Unavailable as `missing`."""
    scripts = missing(db)
    if not scripts:  # a database that takes no changes says so now
        db.run_script(_NO_CHANGE)
    for script in scripts:
        with db:
            db.run_script(script.text)
            for record in _records(script, db.dialect):
                db.change(_RECORD, record)
    return [script.name for script in scripts]


def missing(db: Reader, *, unfinished: bool = False) -> list[Script]:
    """Missing migrations; for an empty database the schema, which includes all.

    Raises Unavailable for another program's or an unknown schema, an edited file, or an unfinished copy, unless
    `unfinished`.
    """
    applied, scripts = known_migrations(db), load_scripts(db.dialect)
    if UNFINISHED in applied and not unfinished:
        hint = "Finish it with the same lode db copy, or remove it."
        raise Unavailable(f"There is an unfinished copy in {db.database}.", hint=hint)
    if not applied:
        return [load_schema(db.dialect)]
    if unknown := {number for number in applied if number > OLDEST} - {script.number for script in scripts}:
        raise Unavailable(
            f"The database has migration {max(unknown)}, which this program does not know.",
            hint="It was written by a newer Lodesman: use that version.",
        )
    _check_oldest(db, applied)
    for script in scripts:
        if applied.get(script.number, script.sha256) != script.sha256:
            raise Unavailable(f"Migration {script.name} was changed after it was applied.", name=script.name)
    return [script for script in scripts if script.number not in applied]


def _check_oldest(db: Reader, applied: Mapping[int, str]) -> None:
    first = {number: sha256 for number, sha256 in applied.items() if UNFINISHED < number <= OLDEST}
    own = _OLDEST_SHA256[db.dialect]
    if first == {OLDEST: own} or digest_of(first.items()) == own:
        return
    oldest = f"the oldest that this program opens is that of commit {_OLDEST_COMMIT}, with migration {OLDEST}"
    if max(applied) < OLDEST:
        words = f"{db.database} is too old: its last migration is {max(applied)}; {oldest}."
        hint = f"Make a backup, give lode db migrate of commit {_OLDEST_COMMIT}, then start this program."
    else:
        words = f"{db.database} has migrations up to {max(applied)}, but not those of this program; {oldest}."
        hint = "Use the version that made it, or put a backup in its place."
    raise Unavailable(words, hint=hint)


def digest_of(records: Iterable[tuple[int, str]]) -> str:
    """One checksum of numbers and checksums."""
    return _sha256("".join(f"{number} {sha256}\n" for number, sha256 in sorted(records)))


def _records(script: Script, dialect: str) -> list[tuple[int, str, str]]:
    if script.number > OLDEST:
        return [(script.number, script.name, script.sha256)]
    later = [(migration.number, migration.name, migration.sha256) for migration in load_scripts(dialect)]
    return [(OLDEST, script.name, _OLDEST_SHA256[dialect]), *later]


def known_migrations(db: Reader) -> dict[int, str]:
    """Applied ones: number, checksum. Raises Unavailable for another program's database."""
    tables = db.tables()
    if tables and "migration" not in tables:
        words = f"{db.database} has tables of another program."
        raise Unavailable(words, hint="Give Lodesman a database of its own.")
    return dict(db.execute("SELECT number, sha256 FROM migration")) if tables else {}


@cache
def load_schema(dialect: str = "") -> Script:
    """Read the schema with all migrations."""
    own = f"schema.{dialect}.sql" if dialect else "schema.sql"
    return Script(OLDEST, "schema.sql", (resources.files(_PACKAGE) / own).read_text())


@cache
def load_scripts(dialect: str = "") -> Sequence[Script]:
    """Every migration, ascending, some in the dialect's own text."""
    folder = resources.files(_PACKAGE) / "migrations"
    names = {file.name for file in folder.iterdir() if file.name.endswith(".sql")}
    own = {
        f"{name.split('.')[0]}.sql": name for name in names if dialect and name.endswith(f".{dialect}.sql")
    }
    common = sorted(name for name in names if name.count(".") == 1)
    return tuple(Script(int(name[:4]), name, (folder / own.get(name, name)).read_text()) for name in common)
