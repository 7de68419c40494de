"""One connection to PostgreSQL: settings, patience, values, and where its url leads (ADR 0041)."""

from __future__ import annotations

import asyncio
import logging
import math
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import RawCursor, adapters
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from psycopg.types.numeric import Int8Dumper

# Its warnings are worded here.
logging.getLogger("psycopg").setLevel(logging.ERROR)

# A dead network is noticed after 2 to 3 s, by missing acknowledgements and keepalives. With one attempt to connect, what
# waits is answered within 5 s.
_CONNECT: Final = {
    "connect_timeout": 2,
    "tcp_user_timeout": 2_000,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
# The same at the other end: a lost server leaves no session that holds the lock. Statements are short: compiling them, or
# starting processes for them, would take longer than they do.
_SETTINGS: Final = (
    "-c tcp_user_timeout=5000 -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 "
    "-c jit=off -c max_parallel_workers_per_gather=0 "
    "-c timezone=UTC -c client_min_messages=error -c default_transaction_isolation=read\\ committed"
)
_READING: Final = " -c default_transaction_read_only=on"
# A database that hangs keeps its connections. After this many seconds without an answer one is ended from here: the
# writer's, with more for many rows; of a thread for which all requests wait; of any other thread; and of a thread that
# checks, after a pause, whether the database is there.
_WRITE_SECONDS: Final = 4.0
_ROWS_A_SECOND: Final = 2_000
_LOOP_SECONDS: Final = 3.0
_READ_SECONDS: Final = 120.0
_THERE_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 1.0


class Connection(psycopg.Connection[Any]):
    """A connection that closes, and is `hung`, if an answer takes longer than `patience` seconds; or with its last
    reference.
    """

    patience: float | None = _WRITE_SECONDS
    hung = False
    _heard = 0.0  # by the clock that never jumps

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """As in the library, but with patience."""
        began, patience = time.monotonic(), self.patience
        try:
            return super().wait(gen, interval, patience if timeout is None else timeout)
        except psycopg.OperationalError:
            if patience is not None and time.monotonic() - began >= patience:
                self.hung = True
                self.close()
            raise

    def read(self, sql: str, values: Sequence[Any], *, goes_on: bool) -> psycopg.Cursor[Any]:
        """Run a statement that reads; `goes_on`: inside a transaction."""
        if _all_wait():
            self.patience = _LOOP_SECONDS
        else:
            if not goes_on and time.monotonic() > self._heard + _PAUSE_SECONDS:
                self.patience = _THERE_SECONDS
                self.execute("SELECT 1")
            self.patience = _READ_SECONDS
        cursor = self.execute(sql, values)
        self._heard = time.monotonic()
        return cursor

    def expect_rows(self, count: int) -> None:
        """Be patient for writing that many rows."""
        self.patience = _WRITE_SECONDS + count / _ROWS_A_SECOND

    def __del__(self, *_: object) -> None:
        self.close()


def _all_wait() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def connect(url: str, *, is_reading: bool) -> Connection:
    """Raises psycopg.Error."""
    options = str(conninfo_to_dict(url).get("options") or "")
    connection = Connection.connect(
        make_conninfo(url, **_CONNECT, options=f"{options} {_SETTINGS}{_READING * is_reading}"),
        autocommit=True,
        cursor_factory=RawCursor,
        prepare_threshold=0,
        context=_ADAPTERS,
        application_name="lodesman",
    )
    connection.prepared_max = None
    return connection


# --- values, as SQLite takes and gives them ----------------------------------------------------------

# PostgreSQL keeps no such character in a text.
_NUL: Final = "\0"
NO_NUL: Final = "\N{REPLACEMENT CHARACTER}"


class _Integer(Int8Dumper):
    oid = 0


class _Float(Dumper):
    def dump(self, obj: float) -> bytes | None:
        return None if math.isnan(obj) else repr(obj).encode()


class _Flag(Dumper):
    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _Text(Dumper):
    def dump(self, obj: str) -> bytes:
        return (obj.replace(_NUL, NO_NUL) if _NUL in obj else obj).encode()


class _LoadedFlag(Loader):
    def load(self, data: Buffer) -> int:
        return int(data == b"t")


class _LoadedNumber(Loader):
    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


def _adapters() -> AdaptersMap:
    adapters_map = AdaptersMap(adapters)
    for kind, dumper in ((int, _Integer), (float, _Float), (bool, _Flag), (str, _Text)):
        adapters_map.register_dumper(kind, dumper)
    adapters_map.register_loader("bool", _LoadedFlag)
    adapters_map.register_loader("numeric", _LoadedNumber)
    return adapters_map


class _Context:
    adapters = _adapters()
    connection = None


_ADAPTERS: Final = _Context()


def _numbers(column: Sequence[Any]) -> str:
    text = str(list(column))[1:-1]
    return text.replace("None", "NULL").replace("nan", "NULL").replace("True", "1").replace("False", "0")


def _texts(column: Sequence[str | None]) -> str:
    return ",".join("NULL" if text is None else f'"{_quoted(text)}"' for text in column)


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return text


def _blobs(column: Sequence[bytes | None]) -> str:
    return ",".join("NULL" if blob is None else f'"\\\\x{blob.hex()}"' for blob in column)


_ELEMENTS: Final[dict[str, Callable[[Sequence[Any]], str]]] = {"text": _texts, "bytea": _blobs}


def array(kind: str, column: Sequence[Any]) -> str:
    """A column of values as the text of an array."""
    return f"{{{_ELEMENTS.get(kind, _numbers)(column)}}}"


# --- the url -----------------------------------------------------------------------------------------

# Of Debian's library, and of the one in the wheel.
_FOLDERS: Final = "/var/run/postgresql,/tmp"


def place(url: str) -> str:
    """The database and its host, for sentences."""
    parameters = conninfo_to_dict(url)
    name, host = (
        parameters.get("dbname") or parameters.get("user") or "",
        parameters.get("host") or "the default socket",
    )
    return f"the database {name} at {host}"


def without_passwords(url: str) -> str:
    """Rewrites an address for command lines of other programs."""
    parameters = conninfo_to_dict(url)
    return make_conninfo(
        "", **{name: parameters[name] for name in parameters if name not in ("password", "sslpassword")}
    )


def ways_in(url: str) -> tuple[Path, ...]:
    """Sockets of its server, and files with passwords and keys."""
    usual = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
    parameters = {name: str(value) for name, value in (usual | conninfo_to_dict(url)).items()}
    files = parameters["passfile"] or "~/.pgpass", parameters["sslkey"] or "~/.postgresql"
    return (
        *_sockets(parameters["host"] or _FOLDERS, parameters["port"]),
        *(Path(file).expanduser() for file in files),
    )


def _sockets(hosts: str, ports: str) -> Iterator[Path]:
    for folder in (Path(host) for host in hosts.split(",") if host.startswith("/")):
        if folder.is_dir() and folder.stat().st_mode & stat.S_ISVTX:  # jobs need it, as they need /tmp
            yield from (folder / f".s.PGSQL.{port}" for port in ports.split(","))
        else:
            yield folder
