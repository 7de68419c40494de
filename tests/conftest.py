"""What all tests share: how much Hypothesis tries, empty databases, ports that no other program gets."""

from __future__ import annotations

import _thread
import faulthandler
import gc
import math
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from tests.kits.cost import CostWatch
from tests.kits.selection import Selection, add_options

from lodesman.server.loops.reconciler import find_suspects
from lodesman.server.store import Database, SqliteDatabase, Writer
from lodesman.wire.service import Suspects

if TYPE_CHECKING:
    from tests.services.conftest import PostgresDatabases

# Compiled modules are kept, whatever the environment says: without them each run compiles 600 modules in each process.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Servers of tests note themselves nowhere, and no server of this account is found.
os.environ["XDG_STATE_HOME"] = f"{os.devnull}/none"

_USUAL = 100
# Garbage is looked for after this many new objects; Python itself does it after 700.
_NEW_OBJECTS = 10_000
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# `default` tries new examples with each run on a developer's machine; `ci` repeats the same examples, so
# that a change is judged by what it changed; `fast` goes with `-m 'not slow'`; `long` is for a night.
settings.register_profile("default", _CALM, max_examples=_USUAL)
settings.register_profile("ci", _CALM, max_examples=_USUAL, derandomize=True, print_blob=True)
settings.register_profile("fast", _CALM, max_examples=10, derandomize=True, print_blob=True)
settings.register_profile("long", _CALM, max_examples=5_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    # What a shell starts with & ignores Ctrl-C, with nohup the end of the terminal; so would all that tests start.
    for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
    usual = "ci" if os.environ.get("CI") else "default"
    wanted = os.environ.get("HYPOTHESIS_PROFILE") or usual
    is_quick = "not slow" in config.option.markexpr and wanted != "long"
    settings.load_profile("fast" if is_quick else wanted)
    config.pluginmanager.register(Selection(config))
    if is_quick and config.option.store == "sqlite" and not config.getoption("--cov", default=None):
        config.pluginmanager.register(CostWatch())


def pytest_sessionstart(session: pytest.Session) -> None:
    # A test that tries fifty times as many examples takes as much longer.
    seconds = 320.0 * max(1, settings().max_examples // _USUAL)
    session.config.pluginmanager.register(
        HangWatch(session.config.stash[fault_handler_stderr_fd_key], seconds)
    )


def pytest_sessionfinish() -> None:
    """The batch systems that this process started end with its tests."""
    if kit := sys.modules.get("tests.kits.shared_engines"):
        kit.stop_all()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Garbage is not looked for while tests are collected, since nearly all stays, nor among the tests themselves: with
    all of them, one search takes a quarter of a second. Later it is looked for less often than usual: a test leaves little.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
        gc.enable()


class HangWatch:
    """Shows the stacks of all threads, and ends the run, if a test takes `seconds`; one that waits for real processes may
    take three times as long. The option `faulthandler_timeout` does the same with a thread for each test, which costs more
    than most tests.
    """

    def __init__(self, stderr: int, seconds: float, period: float = 20.0) -> None:
        self._stderr, self._seconds, self._period = stderr, seconds, period
        self._armed_at, self._is_idle = -math.inf, True
        _thread.start_new_thread(self._disarm, ())  # tests count those of threading

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._is_idle, now = False, monotonic()
        waits = any(item.get_closest_marker(name) for name in ("e2e", "engines"))
        seconds = self._seconds * (3 if waits else 1)
        if now - self._armed_at > self._period or seconds != self._seconds:
            self._armed_at = now
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            self._is_idle = True

    def _disarm(self) -> None:
        """A worker that waits for the others does not hang."""
        while True:
            sleep(self._period)
            if self._is_idle:
                self._armed_at = -math.inf
                faulthandler.cancel_dump_traceback_later()


def at_most(examples: int) -> settings:
    """For tests that need another number of examples than most: this one, but with `-m 'not slow'` no more than most."""
    usual = settings().max_examples
    return settings(
        max_examples=min(examples, usual) if usual < _USUAL else examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No test sees in a batch system what another one left there."""
    if item.get_closest_marker("engines"):
        from tests.kits.shared_engines import empty_all  # noqa: PLC0415 - few tests need it

        empty_all()


def _free_port() -> int:
    """A port of this machine for a server that is about to start.

    For a minute no other program is given it: it is known from a connection that was ended on this side, as
    a port is after a server that was restarted; only a program that asks for it by number can have it.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            client.recv(1)
    return port


_folders = count(1)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own. That of pytest looks through all other folders for a free name."""
    name = re.sub(r"\W", "_", request.node.name)[:24]
    return tmp_path_factory.mktemp(f"{name}-{next(_folders)}", numbered=False)


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Ports for servers, a new one with each call."""
    return _free_port


class SqliteFiles:
    """Makes databases of SQLite."""

    def empty(self, folder: Path) -> Database:
        """A database for a folder, with nothing in it."""
        return SqliteDatabase(folder / "lode.db")

    def copy(self, template: Database, folder: Path) -> Database:
        """A copy for another folder of a database that is not changed now."""
        source, copy = template.beside("db"), SqliteDatabase(folder / "lode.db")
        wal = template.beside("db-wal")
        if wal.exists() and wal.stat().st_size:
            with closing(apsw.Connection(str(source))) as db:
                list(db.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        shutil.copyfile(source, copy.path)
        return copy

    like = copy

    def drop(self, database: Database) -> None:
        """It goes with its folder."""


@pytest.fixture(scope="session")
def database_kind(request: pytest.FixtureRequest) -> str:
    """The database that is tested: `sqlite` or `postgresql`."""
    return str(getattr(request, "param", request.config.option.store))


@pytest.fixture(scope="session")
def maker(database_kind: str) -> Iterator[SqliteFiles | PostgresDatabases]:
    """Makes databases of the kind that is tested."""
    if database_kind == "sqlite":
        yield SqliteFiles()
    else:
        from tests.services.conftest import PostgresDatabases  # noqa: PLC0415 - its library may be absent

        with PostgresDatabases.started() as found:
            yield found


@pytest.fixture(scope="session")
def new_database(maker: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Database]:
    """Makes an empty database for a folder, without the work of its migrations."""
    template = maker.empty(tmp_path_factory.mktemp("template"))
    template.writer().close()
    return lambda folder: maker.like(template, folder)


@pytest.fixture
def database(maker: Any, tmp_path: Path, new_database: Callable[[Path], Database]) -> Iterator[Database]:
    """An empty database of its own."""
    found = new_database(tmp_path)
    yield found
    maker.drop(found)


@contextmanager
def untraced() -> Iterator[None]:
    """What is measured here is not slowed by the measurement of coverage, which takes several times as long."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def hasty(writer: Writer) -> Writer:
    """The same, no longer durable: for tests of other things."""
    if isinstance(writer.database, SqliteDatabase):
        list(writer.execute("PRAGMA synchronous=OFF"))
    return writer


def all_suspects(db) -> Suspects:
    """All faults that one run of the reconciler finds, in order."""
    found = list(find_suspects(db))
    return Suspects(
        jobs=sorted(n for one in found for n in one.jobs),
        queues=sorted(n for one in found for n in one.queues),
        attempts=sorted(n for one in found for n in one.attempts),
    )


def query_plan(db, work: Callable[[], object]) -> list[str]:
    """How SQLite carries out the statements that `work` runs on a connection, step by step."""
    seen = []

    def note(_cursor, sql, values):
        seen.append((sql, values))
        return True

    db.connection.set_exec_trace(note)
    try:
        work()
    finally:
        db.connection.set_exec_trace(None)
    return [
        str(step[3])
        for sql, values in seen
        if sql.lstrip().upper().startswith(("SELECT", "WITH", "UPDATE", "DELETE"))
        for step in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)
    ]
