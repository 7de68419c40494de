"""One connection to PostgreSQL: its settings, and how long it waits for an answer (ADR 0041)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import RawCursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lodesman.server.store.postgresql_values import ADAPTERS

# What it warns of is said here, in words.
logging.getLogger("psycopg").setLevel(logging.ERROR)

# A network that stops is noticed after 2 to 3 s: by what is not acknowledged, and by missing signs of life. With one
# attempt to connect, what waits is answered within 5 s.
_CONNECT: Final = {
    "connect_timeout": 2,
    "tcp_user_timeout": 2_000,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
# The same at the other end: a lost server leaves no session behind that holds the lock. Statements are short: to compile
# them, or to start processes for them, would take longer than they do.
_SETTINGS: Final = (
    "-c tcp_user_timeout=5000 -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 "
    "-c jit=off -c max_parallel_workers_per_gather=0 "
    "-c timezone=UTC -c client_min_messages=error -c default_transaction_isolation=read\\ committed"
)
_READING: Final = " -c default_transaction_read_only=on"
# A database that hangs keeps its connections. After this many seconds without an answer one is ended from here: of the
# writer, which gets more for many rows; of a thread for which all requests wait; of any other thread; of a thread that
# only asks whether the database is there, as it does after a pause.
_WRITE_SECONDS: Final = 4.0
_ROWS_A_SECOND: Final = 2_000
_LOOP_SECONDS: Final = 3.0
_READ_SECONDS: Final = 120.0
_THERE_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 1.0


class Connection(psycopg.Connection[Any]):
    """Ends with the last reference to it, without a warning, and when an answer takes longer than `patience` seconds
    (None: it may take as long as it wants); then `hung` is set.
    """

    patience: float | None = _WRITE_SECONDS
    hung = False
    _heard = 0.0  # by the clock that never jumps

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """As that of the library."""
        began, patience = time.monotonic(), self.patience
        try:
            return super().wait(gen, interval, patience if timeout is None else timeout)
        except psycopg.OperationalError:
            if patience is not None and time.monotonic() - began >= patience:
                self.hung = True
                self.close()
            raise

    def read(self, sql: str, values: Sequence[Any], *, goes_on: bool) -> psycopg.Cursor[Any]:
        """Run a statement that reads; `goes_on`: in a transaction that has begun."""
        if _all_wait():
            self.patience = _LOOP_SECONDS
        else:
            if not goes_on and time.monotonic() > self._heard + _PAUSE_SECONDS:
                self.patience = _THERE_SECONDS
                self.execute("SELECT 1")
            self.patience = _READ_SECONDS
        found = self.execute(sql, values)
        self._heard = time.monotonic()
        return found

    def expect_rows(self, count: int) -> None:
        """What is written next has this number of rows."""
        self.patience = _WRITE_SECONDS + count / _ROWS_A_SECOND

    def __del__(self, *_: object) -> None:
        self.close()


def _all_wait() -> bool:
    """Whether all requests of the process wait for this thread: it runs their event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def connect(url: str, *, is_reading: bool) -> Connection:
    """A connection with the settings of the program. Raises psycopg.Error."""
    given = str(conninfo_to_dict(url).get("options") or "")
    connection = Connection.connect(
        make_conninfo(url, **_CONNECT, options=f"{given} {_SETTINGS}{_READING * is_reading}"),
        autocommit=True,
        cursor_factory=RawCursor,
        prepare_threshold=0,
        context=ADAPTERS,
        application_name="lodesman",
    )
    connection.prepared_max = None
    return connection
