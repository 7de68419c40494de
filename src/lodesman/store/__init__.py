"""The database: schema, migrations, the journal with group commit, and all SQL (`read`, `write`, by noun)."""

from lodesman.store.address import database_at
from lodesman.store.database import UNREADABLE, Database, DatabaseGone, Reader, Writer, readable
from lodesman.store.sqlite import SqliteDatabase

__all__ = [
    "UNREADABLE",
    "Database",
    "DatabaseGone",
    "Reader",
    "SqliteDatabase",
    "Writer",
    "database_at",
    "readable",
]
