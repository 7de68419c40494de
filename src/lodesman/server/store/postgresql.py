"""PostgreSQL: connections that come back by themselves, and one writer by an advisory lock (ADR 0041)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg import generators
from psycopg.pq import TransactionStatus

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.store.database import CommitInDoubt, ConnectionLost, DatabaseGone, Reader, Writer
from lodesman.server.store.migrate import known_migrations, migrate
from lodesman.server.store.postgresql_connection import (
    NO_NUL,
    Connection,
    array,
    connect,
    place,
    ways_in,
    without_passwords,
)
from lodesman.server.store.postgresql_faults import refusal_of, refused_start
from lodesman.server.store.postgresql_lock import become_writer, openness
from lodesman.server.store.spelling import set_statement, translate, translate_schema
from lodesman.server.store.statement import Group, Row

_OLDEST: Final = 140_000
# The least pause between attempts to connect; after a long attempt, this many times its length.
_REST_SECONDS: Final = 1.0
_REST_OF_LONG: Final = 2.0
# How long a start waits for the end of a killed server, and a command for the lock after a reconnect.
_SECONDS_AT_START: Final = 3
_SECONDS_AGAIN: Final = 1
# The backend of a broken connection may live on, and even commit. Its pid may belong to another one since.
_SELF: Final = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
# A backend that waits for its standby is not ended: it would commit here, and perhaps nowhere else.
_END: Final = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND backend_start::text = $2 AND wait_event IS DISTINCT FROM 'SyncRep'"""
_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_COUNT_ON: Final = (
    """SELECT setval(pg_get_serial_sequence($1, 'id'), coalesce(max(id), 1), max(id) IS NOT NULL) FROM {}"""
)
_DURABLE: Final = """SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
_IDENTITY: Final = """SELECT (SELECT system_identifier FROM pg_control_system()) # oid::bigint FROM pg_database
WHERE datname = current_database()"""
_NAMES: Final = {16: "bool", 17: "bytea", 20: "int8", 23: "int4", 25: "text", 701: "float8", 1700: "numeric"}


class PostgresReader(Reader):
    """A connection that reads; the base of the one that writes."""

    __slots__ = ("_depth", "_next_try")
    dialect = "postgresql"
    connection: Connection
    database: PostgresDatabase

    def __init__(self, database: PostgresDatabase, connection: Connection) -> None:
        super().__init__(database, connection, self._execute)
        self._depth = 0
        self._next_try = 0.0  # by the clock that never jumps

    def __enter__(self) -> Self:
        if not self._depth:
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth and not self.connection.closed:
            with suppress(psycopg.OperationalError):  # it read all that it had to read
                self.connection.execute("ROLLBACK")

    def tables(self) -> set[str]:
        return {name for (name,) in self.execute(_TABLES)}

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        if not self.connection.closed:
            try:
                return self._ask(sql, values)
            except psycopg.OperationalError as fault:
                if self.connection.hung:
                    raise self.database.lost(fault) from None
                if not self.connection.closed:
                    raise
        self._come_back()
        return self._ask(sql, values)

    def _ask(self, sql: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
        return self.connection.read(translate(sql), values, goes_on=self._depth > 0)

    def _come_back(self) -> None:
        """Reconnect, unless reads must be of one snapshot. Raises ConnectionLost."""
        if self._depth:
            raise self.database.lost()
        self._open_again()

    def _open_again(self) -> None:
        began = time.monotonic()
        if began < self._next_try:
            raise self.database.lost()
        try:
            self.connection = self.database.connect(is_reading=not isinstance(self, PostgresWriter))
        except psycopg.Error as fault:
            self._rest(began)
            raise self.database.lost(fault) from None

    def _rest(self, began: float) -> None:
        now = time.monotonic()
        self._next_try = now + max(_REST_SECONDS, _REST_OF_LONG * (now - began))


class PostgresWriter(PostgresReader, Writer):
    """Its session holds the lock of the database."""

    __slots__ = ("_session", "_types")
    nul = NO_NUL

    def __init__(self, database: PostgresDatabase, connection: Connection) -> None:
        super().__init__(database, connection)
        self._types: dict[str, list[str]] = {}
        self._session: tuple[int, str] = connection.execute(_SELF).fetchone() or (0, "")

    def __enter__(self) -> Self:
        if not self._depth:
            self.begin()
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        if kind is None:
            self.commit()
        else:
            self.roll_back()

    def _come_back(self) -> None:
        """Only `begin` reconnects: a transaction ends with its connection."""
        raise self.database.lost()

    def _ask(self, sql: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
        return self.connection.execute(translate(sql), values)

    def open(self, *, migrates: bool) -> Self:
        """Check the database, take the lock, and migrate if it `migrates`."""
        database, connection = self.database, self.connection
        database.check_version(connection)
        known_migrations(self)
        if other := become_writer(connection, _SECONDS_AT_START):
            raise Conflict(f"Another server, at {other[1]}, already owns {database}.", hint="Stop it first.")
        connection.execute(_DURABLE)
        if migrates:
            migrate(self)
        connection.patience = None  # a start reads all that waits
        return self

    def begin(self) -> None:
        """Reconnects if necessary. Raises ConnectionLost, DatabaseGone if another server took the lock."""
        if self.connection.closed:
            self._begin_again()
        self.connection.expect_rows(0)
        try:
            self.connection.execute("BEGIN")
        except psycopg.OperationalError:
            if not self.connection.closed:
                raise
            self._begin_again()
            self.connection.execute("BEGIN")

    def _begin_again(self) -> None:
        began = time.monotonic()
        if self.connection.hung:  # what waits has waited long enough
            self.connection.hung = False
            self._rest(began)
        self._open_again()
        try:
            self.connection.execute(_END, self._session)
            if other := become_writer(self.connection, _SECONDS_AGAIN):
                self.connection.close()
                self._rest(began)
                if other[0] != self._session[0]:
                    words = f"Another server, at {other[1]}, took over {self.database}."
                    raise DatabaseGone(words, hint="Stop one of the two.")
                raise self.database.lost()
            self._session = self.connection.execute(_SELF).fetchone() or (0, "")
            self.connection.execute(_DURABLE)
        except psycopg.Error as fault:
            self.connection.close()
            self._rest(began)
            raise self.database.lost(fault) from None

    def commit(self) -> None:
        """Raises CommitInDoubt if the connection ends meanwhile."""
        try:
            done = self.connection.execute("COMMIT").statusmessage
        except psycopg.OperationalError as fault:
            if self.connection.closed:
                raise CommitInDoubt(**self.database.loss(fault)) from None
            raise
        self.connection.patience = None
        if done != "COMMIT":  # a failed transaction is rolled back
            raise Unavailable("The database refused the change; nothing was stored.")

    def roll_back(self) -> None:
        if not self.connection.closed and self.connection.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.OperationalError):  # it is over with its connection
                self.connection.execute("ROLLBACK")
                self.connection.patience = None

    def run_script(self, sql: str) -> None:
        """A migration may take its time."""
        self.connection.patience = None
        self.connection.execute(translate_schema(sql), prepare=False)

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._execute(sql, values).rowcount

    def change_each(self, sql: str, rows: Sequence[Row]) -> int:
        return self._change_all([(sql, rows)])[0]

    def change_all(self, groups: Iterable[Group]) -> None:
        """Run statements in one pipeline, as sets where equivalent. Raises WrongRows."""
        collected = list(groups)
        changed = self._change_all([(statement.sql, rows) for statement, rows in collected])
        for (statement, rows), count in zip(collected, changed, strict=True):
            statement.rows.check(statement.sql, count, len(rows))

    def _change_all(self, changes: Sequence[tuple[str, Sequence[Row]]]) -> list[int]:
        for sql, rows in changes:
            if len(rows) > 1 and sql not in self._types and set_statement(sql) is not None:
                self._types[sql] = self._types_of(sql)
        if self.connection.patience is not None:  # no migration
            self.connection.expect_rows(sum([len(rows) for _, rows in changes]))
        try:
            with self.connection.pipeline():
                sent = [self._send(sql, rows) for sql, rows in changes]
        except psycopg.OperationalError as fault:
            if self.connection.closed:
                raise self.database.lost(fault) from None
            raise
        return [sum([cursor.rowcount for cursor in cursors]) for cursors in sent]

    def _send(self, sql: str, rows: Sequence[Row]) -> list[psycopg.Cursor[Any]]:
        form = set_statement(sql) if len(rows) > 1 else None
        if form is None or (form.is_keyed and len({row[-1] for row in rows}) < len(rows)):
            return [self.connection.execute(translate(sql), row) for row in rows]
        types = self._types[sql]
        arrays = [array(kind, column) for kind, column in zip(types, zip(*rows, strict=True), strict=True)]
        return [self.connection.execute(form.text.format(*types), arrays)]

    def _types_of(self, sql: str) -> list[str]:
        raw = self.connection.pgconn
        raw.send_prepare(b"", translate(sql).encode())
        self.connection.wait(generators.execute(raw))
        raw.send_describe_prepared(b"")
        (description,) = self.connection.wait(generators.execute(raw))
        return [_NAMES[description.param_type(n)] for n in range(description.nparams)]

    def openness(self) -> str:
        return openness(self.connection)

    def end_copy(self, counted: Sequence[str]) -> None:
        """Let new ids follow the copied ones, and give the planner statistics."""
        self.connection.patience = None
        for table in counted:
            self.execute(_COUNT_ON.format(table), (table,))
        self.execute("ANALYZE")

    def refusal_of(self, fault: Exception) -> Unavailable | None:
        return refusal_of(fault)


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A database of a PostgreSQL server, and the folder of what lies beside it."""

    url: str = field(repr=False)  # it may have a password
    folder: Path

    def __str__(self) -> str:
        return place(self.url)

    def connect(self, *, is_reading: bool = False) -> Connection:
        """Open a connection. Raises psycopg.Error."""
        return connect(self.url, is_reading=is_reading)

    def check_version(self, connection: Connection) -> None:
        """Raises Unavailable for what this program cannot use."""
        if connection.info.server_version < _OLDEST:
            words = (
                f"{self} is of PostgreSQL {connection.info.server_version // 10_000}; 14 or newer is needed."
            )
            raise Unavailable(words, hint="Upgrade it.")
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise Unavailable(f"{self} is not in UTF8.", hint="Make it with ENCODING 'UTF8'.")

    def loss(self, fault: psycopg.Error | None = None) -> dict[str, str]:
        """Message and hint of a lost connection; `fault`: why there is no new one."""
        why = "" if fault is None else f"{refused_start(fault, 'it').message} "
        return {
            "message": f"The connection to {self} is lost.",
            "hint": f"{why}The server goes on when it is back.",
        }

    def lost(self, fault: psycopg.Error | None = None) -> ConnectionLost:
        return ConnectionLost(**self.loss(fault))

    def reader(self) -> PostgresReader:
        return PostgresReader(self, self.connect(is_reading=True))

    def writer(self, *, migrates: bool = True) -> PostgresWriter:
        if migrates:  # for a server
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as unless_opened:
            connection = self.connect()
            unless_opened.callback(connection.close)
            writer = PostgresWriter(self, connection).open(migrates=migrates)
            unless_opened.pop_all()
        return writer

    def backup_command(self, file: Path) -> list[str]:
        """pg_dump asks for the password, or finds it where PostgreSQL's programs do."""
        return ["pg_dump", "--format=custom", f"--file={file}", f"--dbname={without_passwords(self.url)}"]

    @contextmanager
    def usable(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as fault:
            raise refused_start(fault, str(self)) from None

    def ways_in(self) -> tuple[Path, ...]:
        """Sockets, and files with passwords and keys."""
        return ways_in(self.url)

    def is_empty(self) -> bool:
        """Its tables say it."""
        return False

    def beside(self, name: str) -> Path:
        return self.folder / f"lode.{name}"

    def identity(self, db: Reader) -> int:
        """Of the cluster, and of the database in it."""
        return int(db.only(_IDENTITY)[0])

    def made(self) -> int:
        """Unknown: the identity suffices."""
        return 0

    def home(self, db: Reader) -> int:
        """A dump that is restored elsewhere has another one."""
        return self.identity(db)
