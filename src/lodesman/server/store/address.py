"""From the url of a database to the database."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from lodesman.base.errors import Unavailable
from lodesman.server.store.database import Database
from lodesman.server.store.sqlite import SqliteDatabase


def database_at(url: str, data: Path) -> Database:
    """'': a file of the data folder. Raises Unavailable if psycopg is missing."""
    parts = urlsplit(url)
    if parts.scheme in ("", "sqlite"):
        return SqliteDatabase(Path(unquote(parts.path)) if parts.path else data / "lode.db")
    try:
        from lodesman.server.store.postgresql import PostgresDatabase  # noqa: PLC0415 - most servers do without
    except ImportError:
        words = "PostgreSQL needs the library psycopg, which is not installed."
        hint = "In a checkout of the source: pip install --require-hashes -r requirements/postgres.txt"
        raise Unavailable(words, hint=hint) from None
    return PostgresDatabase(url, data)
