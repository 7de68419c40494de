"""Where a run keeps its worlds: each in a file of its folder, or in a database of a PostgreSQL of the run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg

from lodesman.server.store import Database, database_at

SCRIPT = Path(__file__).resolve().parent.parent / "tests" / "services" / "postgresql"
# Its own defaults, where those of the tests would lose commits; and what the manual for administrators asks for.
DURABLE = ("fsync=on", "full_page_writes=on")
ADVISED = ("wal_compression=lz4", "shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=15min")
STEP_SECONDS = 120.0
NAME = "store.url"


def address(data: Path) -> str:
    """The address of the database of a world; '' if it is a file of its folder."""
    named = data / NAME
    return named.read_text() if named.exists() else ""


def database(data: Path) -> Database:
    """The database of a world."""
    return database_at(address(data), data)


class PostgresServer:
    """A PostgreSQL of its own, which forces each commit to the disk, as its defaults are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._admin = psycopg.connect(self._url("postgres"), autocommit=True)

    @classmethod
    @contextmanager
    def started(cls, home: Path) -> Iterator[Self]:
        """In a folder of `home`, on the disk to measure. Raises OSError."""
        folder = home / "pg"
        home.chmod(0o755)  # its account passes through
        _run("start", folder, *(word for setting in (*DURABLE, *ADVISED) for word in ("-c", setting)))
        try:
            found = cls(folder)
            with found._admin:
                yield found
        finally:
            _run("stop", folder)

    def make(self, data: Path, template: Path | None = None) -> str:
        """Give a folder a database: empty, or a copy of that of another folder. Returns its address."""
        source = "template0" if template is None else template.name
        how = "" if template is None else " STRATEGY file_copy"
        self._admin.execute(f'CREATE DATABASE "{data.name}" TEMPLATE "{source}"{how}')
        (data / NAME).write_text(self._url(data.name))
        return address(data)

    def settle(self, data: Path) -> None:
        """Let upkeep be done that would come during a measurement."""
        with psycopg.connect(address(data), autocommit=True) as db:
            db.execute("VACUUM ANALYZE")
            db.execute("CHECKPOINT")

    def drop(self, data: Path) -> None:
        """Remove the database of a folder."""
        self._admin.execute(f'DROP DATABASE "{data.name}" WITH (FORCE)')

    def _url(self, name: str) -> str:
        return f"postgresql://lode@/{name}?host={self._folder}"


def _run(action: str, folder: Path, *options: str) -> None:
    done = subprocess.run(
        [SCRIPT, action, folder, *options], check=False, timeout=STEP_SECONDS, capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(f"PostgreSQL: {action} failed: {done.stderr[-500:]}")
