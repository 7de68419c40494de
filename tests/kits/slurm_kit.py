"""Slurm, real ones that are started for the tests: without accounting, with it, and by SSH."""

from __future__ import annotations

import getpass
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kits.backend_kit import Kit, missing
from tests.kits.shared_engines import SharedEngine, at_end, share
from tests.kits.sshd import sshd_of_this_session

from lodesman.decide.resources import QueueId
from lodesman.server.engines.run import Runner
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.slurm import SlurmBackend

SCRIPT = Path(__file__).parents[1] / "services" / "slurm"
# All jobs are those of the account that started it.
_LEFT = ["squeue", "--all", "--noheader", "--format=%i %u %T %P %r"]
_CLEAR = ["scancel", "--quiet", "--user", getpass.getuser()]
_KILL = ["scancel", "--quiet", "--full", "--signal=KILL", "--user", getpass.getuser()]


@contextmanager
def started_slurm(*options: str) -> Iterator[Path]:
    """Its folder; it ends with the block."""
    words = [str(SCRIPT), "there", "", *options]
    there = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    if there.returncode:
        missing("slurm", there.stderr.strip())
    folder = Path(tempfile.mkdtemp(prefix="lode-slurm-"))
    try:
        service("start", folder, *options)
        yield folder
    finally:
        service("purge", folder)


def service(action: str, folder: Path, *options: str) -> None:
    subprocess.run([SCRIPT, action, folder, *options], check=True, timeout=900)


def environment(folder: Path) -> dict[str, str]:
    return {"SLURM_CONF": str(folder / "etc" / "slurm.conf")}


@cache
def slurm_of_this_session(*options: str) -> Path:
    """The folder of one that is started when it is first asked for, and ends with the tests."""
    stack = ExitStack()
    folder = stack.enter_context(started_slurm(*options))
    at_end(stack.close)
    run = Here(environment=environment(folder)).run
    share(
        SharedEngine(
            name=" ".join(["Slurm", *options]),
            left=lambda: found.out if not (found := run(_LEFT)).code else found.err or "no answer",
            clear=lambda kill: [run(words) for words in (_CLEAR, *([_KILL] * kill))],
        )
    )
    return folder


def slurm_kit(root: Path) -> Iterator[Kit]:
    return _kit(root, Here(environment=environment(slurm_of_this_session())))


def accounting_kit(root: Path) -> Iterator[Kit]:
    return _kit(root, Here(environment=environment(slurm_of_this_session("accounting"))))


def ssh_kit(root: Path) -> Iterator[Kit]:
    return _kit(root, replace(sshd_of_this_session(), environment=environment(slurm_of_this_session())))


def _kit(root: Path, runner: Runner) -> Iterator[Kit]:
    place = root.with_name("place")
    place.mkdir()

    def backend() -> SlurmBackend:
        return SlurmBackend(runner, folder=str(root / "output"))

    kit = Kit(
        backend=backend(),
        queue=QueueId("Contract.Site", "slurm", "pilots"),
        place=place,
        again=backend,
        advance=lambda: time.sleep(0.05),
    )
    yield kit


marks = pytest.mark.engines
SLURM_KITS = [
    pytest.param(slurm_kit, id="slurm", marks=marks),
    pytest.param(accounting_kit, id="slurm+accounting", marks=marks),
    pytest.param(ssh_kit, id="slurm by SSH", marks=(marks, pytest.mark.thorough)),
]
