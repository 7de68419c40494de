"""Databases of PostgreSQL for tests: of a server that is started for them, or of the one that the environment names."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lodesman.server.store.postgresql import PostgresDatabase

SCRIPT = Path(__file__).parent / "postgresql"
SERVER = "LODE_TEST_POSTGRESQL"
# To make a database takes a third of a second, to empty one 10 ms, and 2 ms on a connection that is there already. What a
# template has in its tables stands in a schema beside them; the statements that bring a database like it back to that are
# made once.
_REMEMBER = """CREATE SCHEMA initial;
CREATE TABLE initial.tables AS SELECT tablename FROM pg_tables WHERE schemaname = 'public';
DO $$ DECLARE t text; filled bool; BEGIN
  FOR t IN SELECT tablename FROM initial.tables LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', t) INTO filled;
    IF filled THEN EXECUTE format('CREATE TABLE initial.%I AS TABLE public.%I', t, t); END IF;
  END LOOP;
END $$"""
_STATEMENTS = """SELECT format('DELETE FROM public.%I', tablename) FROM initial.tables
UNION ALL
SELECT format('INSERT INTO public.%I (%s) SELECT %2$s FROM initial.%1$I', table_name,
    string_agg(quote_ident(column_name), ', '))
FROM information_schema.columns WHERE table_schema = 'public' AND is_generated = 'NEVER'
AND table_name IN (SELECT tablename FROM pg_tables WHERE schemaname = 'initial') GROUP BY table_name
UNION ALL
SELECT format('SELECT setval(''public.%I'', %s, %L)', sequencename, coalesce(last_value, 1), last_value IS NOT NULL)
FROM pg_sequences WHERE schemaname = 'public'"""
_END = "SELECT pg_terminate_backend({}) FROM pg_stat_activity WHERE datname = %s AND pid <> %s"
_RESET = """SET session_replication_role = replica;
DO $$ DECLARE t text; BEGIN
  FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' EXCEPT SELECT tablename FROM initial.tables LOOP
    EXECUTE format('DROP TABLE public.%I', t);
  END LOOP;
END $$;
"""


class PostgresDatabases:
    """Makes databases; `url` is the address of one that is there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._admin = psycopg.connect(url, autocommit=True)
        self._names = (f"test_{secrets.token_hex(4)}_{number}" for number in count())
        # By the name of a template: databases like it that are not in use. By the name of one of these: its template.
        self._free: dict[str, list[str]] = {}
        self._template: dict[str, str] = {}
        self._resets: dict[str, str] = {}
        self._cleaners: dict[str, psycopg.Connection] = {}

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Self]:
        """With a server of its own, unless the environment names one."""
        named = os.environ.get(SERVER)
        with cls(named).closing() if named else cls.alone() as found:
            yield found

    @classmethod
    @contextmanager
    def alone(cls) -> Iterator[Self]:
        """With a server that nobody else uses."""
        with tempfile.TemporaryDirectory(prefix="lode-pg-") as folder:
            Path(folder).chmod(0o755)  # another account passes through
            subprocess.run([SCRIPT, "start", f"{folder}/pg"], check=True, timeout=120)
            try:
                with cls(f"postgresql://lode@/postgres?host={folder}/pg").closing() as found:
                    yield found
            finally:
                subprocess.run([SCRIPT, "stop", f"{folder}/pg"], check=True, timeout=120)

    @contextmanager
    def closing(self) -> Iterator[Self]:
        """Itself; its connections end."""
        with self._admin:
            yield self
        for one in self._cleaners.values():
            one.close()

    def empty(self, folder: Path) -> PostgresDatabase:
        """A database with nothing in it."""
        return self._made(folder, "template0")

    def copy(self, template: PostgresDatabase, folder: Path) -> PostgresDatabase:
        """A copy of a database that is not in use."""
        self.end_sessions(template)
        return self._made(folder, self.name_of(template))

    def like(self, template: PostgresDatabase, folder: Path) -> PostgresDatabase:
        """A database like one that nothing changes any more."""
        origin = self.name_of(template)
        if origin not in self._free:
            self._free[origin] = []
            with psycopg.connect(template.url) as db:
                db.execute(_REMEMBER)
                self._resets[origin] = _RESET + ";".join(one for (one,) in db.execute(_STATEMENTS))
        if self._free[origin]:
            made = PostgresDatabase(self.url_of(dbname=self._free[origin].pop()), folder)
        else:
            made = self.copy(template, folder)
        self._template[self.name_of(made)] = origin
        return made

    def drop(self, database: PostgresDatabase) -> None:
        """Remove it, or make it ready for another use, whoever uses it."""
        name = self.name_of(database)
        template = self._template.pop(name, "")
        if template:
            with suppress(psycopg.Error), ExitStack() as unless_clean:
                cleaner = self._cleaners.pop(name, None) or psycopg.connect(database.url, autocommit=True)
                unless_clean.callback(cleaner.close)
                self._admin.execute(_END.format("pid"), (name, cleaner.info.backend_pid))
                with cleaner.transaction():
                    cleaner.execute(self._resets[template])
                unless_clean.pop_all()
                self._cleaners[name] = cleaner
                self._free[template].append(name)
                return
        self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def end_sessions(self, database: PostgresDatabase) -> None:
        """End all connections to a database, and wait for that."""
        self._admin.execute(_END.format("pid, 10000"), (self.name_of(database), 0))

    @contextmanager
    def away(self, database: PostgresDatabase) -> Iterator[None]:
        """Nobody can connect to a database meanwhile."""
        self._admin.execute(f"ALTER DATABASE {self.name_of(database)} ALLOW_CONNECTIONS false")
        self.end_sessions(database)
        try:
            yield
        finally:
            self._admin.execute(f"ALTER DATABASE {self.name_of(database)} ALLOW_CONNECTIONS true")

    @contextmanager
    def hanging(self, database: PostgresDatabase) -> Iterator[None]:
        """The sessions that a database has now do not answer meanwhile, and do not end; new ones may begin."""
        found = "SELECT pid FROM pg_stat_activity WHERE datname = %s"
        pids = [pid for (pid,) in self._admin.execute(found, (self.name_of(database),))]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def configure(self, database: PostgresDatabase, setting: str) -> None:
        """Give a database a setting."""
        self._template.pop(self.name_of(database), None)  # it is like no other now
        self._admin.execute(f"ALTER DATABASE {self.name_of(database)} SET {setting}")

    def make_user(self, name: str) -> None:
        """A user without rights, if it is not there."""
        if not self._admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone():
            self._admin.execute(f"CREATE ROLE {name} LOGIN")

    def url_of(self, **changes: str) -> str:
        """The address of something else at this server."""
        known = conninfo_to_dict(self.url) | changes
        return f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"

    @staticmethod
    def name_of(database: PostgresDatabase) -> str:
        """The name of a database."""
        return str(conninfo_to_dict(database.url)["dbname"])

    def _made(self, folder: Path, template: str) -> PostgresDatabase:
        name = next(self._names)
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")
        return PostgresDatabase(self.url_of(dbname=name), folder)
