"""A database as the code of commit 7f956eda left it, the oldest that opens (`tests/data/databases`)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from lodesman.server.store import SqliteDatabase

_DUMPS = Path(__file__).parent.parent / "data" / "databases"


def restore(database: Any) -> Any:
    """Give an empty database what the old code wrote."""
    if isinstance(database, SqliteDatabase):
        database.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(apsw.Connection(str(database.path))) as db:
            list(db.execute("PRAGMA journal_mode=WAL"))  # which a dump does not say
            db.execute((_DUMPS / "7f956eda.sql").read_text())
        return database
    with closing(database.connect()) as db:
        db.execute((_DUMPS / "7f956eda.postgresql.sql").read_text(), prepare=False)
    return database
