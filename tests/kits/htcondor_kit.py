"""HTCondor: a pool of one host with two cores, which `tests/services/htcondor` starts once for all tests of a process."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kits.backend_kit import Kit, missing
from tests.kits.shared_engines import SharedEngine, at_end, share

from lodesman.decide.resources import QueueId
from lodesman.server.engines.htcondor import HTCondorBackend
from lodesman.server.engines.run.here import Here

SERVICE = Path(__file__).parents[1] / "services" / "htcondor"
# A schedd that does not answer is no empty one.
_LEFT = """
condor_q -allusers -af:j Owner 'JobStatus == 4 ? "completed" : JobStatus' || echo no queue
condor_status -constraint 'State != "Unclaimed" && State != "Owner"' -af Name State Activity JobId
"""
_CLEAR = """
condor_rm -all
"""
# A slot may be claimed for a job that was removed at that moment; HTCondor itself frees it after half an hour.
_KILL = """
condor_rm -forcex -all
condor_vacate -fast -all
"""


@functools.cache
def service() -> Path:
    """The folder of a pool that runs until this process ends, or of the one that the environment names."""
    if "LODE_TEST_HTCONDOR" in os.environ:
        return Path(os.environ["LODE_TEST_HTCONDOR"])  # it may have jobs of others: nobody empties it
    pool = started()
    share(
        SharedEngine(
            name="HTCondor",
            left=lambda: runner("root", pool).run(["sh", "-c", _LEFT]).out,
            clear=lambda kill: runner("root", pool).run(["sh", "-c", _CLEAR + _KILL * kill]),
        )
    )
    return pool


def started() -> Path:
    """The folder of a new pool that runs until this process ends."""
    there = subprocess.run([SERVICE, "there"], check=False, capture_output=True, text=True, timeout=120)
    if there.returncode:
        missing("htcondor", there.stderr.strip())
    folder = Path(tempfile.mkdtemp(prefix="lode-htcondor-", dir="/var/tmp"))

    def stop() -> None:
        subprocess.run([SERVICE, "stop", folder], check=False, timeout=300)
        shutil.rmtree(folder, ignore_errors=True)

    at_end(stop)
    subprocess.run([SERVICE, "start", folder], check=True, timeout=900)
    return folder


def run_service(action: str) -> None:
    """An action of the script that started it."""
    subprocess.run([SERVICE, action, service()], check=True, timeout=900)


def runner(account: str = "lode", pool: Path | None = None) -> Here:
    """Commands of HTCondor, and those of a shell, run where the pool is, as an account there."""
    return Here(environment={"PATH": f"{pool or service()}/bin:/usr/bin:/bin", "ACCOUNT": account})


def htcondor_kit(root: Path) -> Iterator[Kit]:
    place = service() / "place" / secrets.token_hex(4)
    place.mkdir()
    place.chmod(0o777)
    yield Kit(
        backend=HTCondorBackend(runner=runner()),
        queue=QueueId("Contract.Site", "condor", f"group_{secrets.token_hex(4)}"),
        place=place,
        again=lambda: HTCondorBackend(runner=runner()),
        advance=lambda: threading.Event().wait(0.3),
    )


HTCONDOR_KITS = [pytest.param(htcondor_kit, id="htcondor", marks=pytest.mark.engines)]
