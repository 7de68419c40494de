"""Numbered forward migrations: plain SQL files, one transaction each, recorded with their checksum."""

from __future__ import annotations

import hashlib
from importlib import resources

import apsw

from lodesman.errors import Unavailable

RECORD = """CREATE TABLE IF NOT EXISTS migration
(number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)"""


def migrate(db: apsw.Connection) -> list[str]:
    """Apply what is missing, in order; return the names applied.

    Raises Unavailable if an applied file was edited since, or the database is newer than the program.
    """
    db.execute(RECORD)
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
