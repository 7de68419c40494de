"""Grid Engine: one that `tests/services/gridengine` starts, or the one that the environment names."""

from __future__ import annotations

import functools
import os
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.kits.backend_kit import Kit, missing
from tests.kits.shared_engines import SharedEngine, at_end, share

from lodesman.decide.resources import QueueId
from lodesman.server.engines.gridengine import GridEngineBackend
from lodesman.server.engines.run.here import Here

SERVICE = Path(__file__).parents[1] / "services" / "gridengine"
ACCOUNT = "LODE_TEST_GRIDENGINE"
PROGRAMS = "/usr/lib/gridengine"
# Jobs, and queues that take none since they are in error.
_LEFT = """
qstat -u '*' || echo no answer
qstat -f -qs E || echo no answer
"""
QUEUE = QueueId("Contract.Site", "gridengine", "all.q")


def with_programs(said: str) -> dict[str, str]:
    """What `env` says, and a PATH to the programs themselves: Debian's commands are scripts that ask a compiler for the
    architecture each time, which takes twice as long as what they then run.
    """
    return {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        **dict(line.split("=", 1) for line in said.splitlines()),
    }


@contextmanager
def started_gridengine() -> Iterator[dict[str, str]]:
    """What its commands need in their environment, and the account of its pilots, by the name in `ACCOUNT`."""
    if ACCOUNT in os.environ:
        yield {name: value for name, value in os.environ.items() if name.startswith((ACCOUNT, "SGE_"))}
        return
    there = subprocess.run([SERVICE, "there"], capture_output=True, text=True, timeout=120, check=False)
    if there.returncode:
        missing("gridengine", there.stderr.strip())
    # Not a TemporaryDirectory: as this process ends, it would be removed before the engine is.
    place = Path(tempfile.mkdtemp(prefix="lode-gridengine-"))
    place.chmod(0o755)  # the account of the jobs passes through
    folder = f"{place}/engine"
    try:
        subprocess.run([SERVICE, "start", folder], check=True, timeout=900)
        command = [str(SERVICE), "env", folder]
        said = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        yield {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            **dict(line.split("=", 1) for line in said.stdout.splitlines()),
        }
    finally:
        subprocess.run([SERVICE, "purge", folder], check=True, timeout=900)
        place.rmdir()


@functools.cache
def the_gridengine() -> Mapping[str, str]:
    """One for all tests of this process, which ends with it."""
    stack = ExitStack()
    at_end(stack.close)
    found = stack.enter_context(started_gridengine())
    if ACCOUNT in os.environ:
        return found  # it may have jobs of others: nobody empties it
    run = Here(environment=found).run
    share(
        SharedEngine(
            name="Grid Engine",
            left=lambda: run(["sh", "-c", _LEFT]).out,
            clear=lambda kill: run(["sh", "-c", f"qmod -cq '*'; qdel {'-f' * kill} -u '*'"]),
        )
    )
    return found


def run_service(action: str) -> None:
    """An action of the script that started it."""
    folder = Path(the_gridengine()["SGE_ROOT"]).parent
    subprocess.run([SERVICE, action, folder], check=True, timeout=900)


def gridengine_backend(service: Mapping[str, str]) -> GridEngineBackend:
    """A new backend for it."""
    runner = Here(account=service[ACCOUNT])
    return GridEngineBackend(runner=runner, environment=service, parallel_environment="smp")


def gridengine_kit(root: Path) -> Iterator[Kit]:
    """A kit; folders of pytest are closed to the account of the jobs."""
    service = the_gridengine()
    place = Path(service["SGE_ROOT"]).parent / "places" / secrets.token_hex(4)
    place.mkdir(parents=True)
    place.chmod(0o777)
    yield Kit(
        backend=gridengine_backend(service),
        queue=QUEUE,
        place=place,
        again=lambda: gridengine_backend(service),
        advance=lambda: threading.Event().wait(0.2),
    )


GRIDENGINE_KITS = [pytest.param(gridengine_kit, id="gridengine", marks=pytest.mark.engines)]
