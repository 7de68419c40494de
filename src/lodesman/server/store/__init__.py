"""The database: schema, migrations, the journal, and all SQL by noun.

Decisions: docs/adr/README.md, The store and the writer.
"""

from lodesman.server.store.address import database_at
from lodesman.server.store.database import (
    UNREADABLE,
    Database,
    DatabaseGone,
    Reader,
    Writer,
    damaged,
    let_go,
    readable,
)
from lodesman.server.store.sqlite import SqliteDatabase

__all__ = [
    "UNREADABLE",
    "Database",
    "DatabaseGone",
    "Reader",
    "SqliteDatabase",
    "Writer",
    "damaged",
    "database_at",
    "let_go",
    "readable",
]
