"""What all tests share: how much Hypothesis tries, empty databases, ports that no other program gets."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lodesman.answers.service import Suspects
from lodesman.background.upkeep import find_suspects
from lodesman.store import open_writer

# Compiled modules are kept, whatever the environment says: without them each run compiles 600 modules in each process.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_E2E = Path(__file__).parent / "e2e"
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# `default` tries new examples with each run on a developer's machine; `ci` repeats the same examples, so
# that a change is judged by what it changed; `fast` goes with `-m 'not slow'`; `long` is for a night.
settings.register_profile("default", _CALM, max_examples=100)
settings.register_profile("ci", _CALM, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("fast", _CALM, max_examples=20, derandomize=True, print_blob=True)
settings.register_profile("long", _CALM, max_examples=5_000)


def pytest_configure(config: pytest.Config) -> None:
    usual = "ci" if os.environ.get("CI") else "default"
    fast = "not slow" in config.option.markexpr
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("fast" if fast else usual))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Nothing of a folder is read of which no test would run."""
    return True if collection_path == _E2E and "not e2e" in config.option.markexpr else None


def pytest_itemcollected(item: pytest.Item) -> None:
    if _E2E in item.path.parents:
        item.add_marker("e2e")


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


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Ports for servers, a new one with each call."""
    return _free_port


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes an empty database at a path, without the work of its migrations."""
    template = tmp_path_factory.mktemp("template") / "lode.db"
    open_writer(template).close()

    def make(path: Path) -> Path:
        shutil.copyfile(template, path)
        return path

    return make


def all_suspects(db) -> Suspects:
    """All faults that one run of the reconciler finds."""
    found = list(find_suspects(db))
    return Suspects(
        jobs=[n for one in found for n in one.jobs], queues=[n for one in found for n in one.queues]
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
