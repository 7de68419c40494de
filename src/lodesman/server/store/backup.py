"""Backups of a SQLite database in use: a snapshot in a file that is whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from lodesman.base.durable import sync_directory
from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.store.migrate import known_migrations
from lodesman.server.store.sqlite import SqliteDatabase

_STEP_PAGES: Final = 500
_PAGE_BYTES: Final = 4096


def back_up(
    database: SqliteDatabase, file: Path, *, replaces: bool, advance: Callable[[int], None] = lambda _: None
) -> None:
    """Write a synced file for its owner alone; over an existing one if it `replaces`. `advance` gets bytes. Raises
    Conflict, Unavailable, OSError.
    """
    if file.exists() and not replaces:
        raise Conflict(f"{file} exists; nothing was written.", hint="Name another file, or give --force.")
    if file.exists() and file.samefile(database.path):
        raise Conflict(f"{file} is the database itself; nothing was written.", hint="Name another file.")
    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    part = Path(name)
    try:
        with database.usable():
            _write(database, part, advance)
        os.fsync(number)
        part.replace(file)
        sync_directory(file.parent)
    finally:
        os.close(number)
        part.unlink(missing_ok=True)


def _write(database: SqliteDatabase, part: Path, advance: Callable[[int], None]) -> None:
    # The open snapshot keeps commits of the server from restarting the backup.
    with closing(database.reader()) as source, source, closing(apsw.Connection(str(part))) as target:
        if not known_migrations(source):  # it would take the place of a good one
            raise Unavailable(f"There is nothing in {database}.", hint="Nothing was written.")
        # Nobody uses the file before it is whole.
        for setting in ("journal_mode=OFF", "synchronous=OFF"):
            list(target.execute(f"PRAGMA {setting}"))
        with target.backup("main", source.connection, "main") as copying:
            while not copying.done:
                before = copying.remaining
                try:
                    copying.step(_STEP_PAGES)
                except (apsw.FullError, apsw.IOError):
                    words = f"The backup cannot be written to {part.parent}."
                    raise Unavailable(words, hint="Is there space, and are the disks whole?") from None
                if before:
                    advance((before - copying.remaining) * _PAGE_BYTES)
