"""HTCondor: a pool of one host with two cores, which `tests/services/htcondor` starts once for all tests of a process."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kits.backend_kit import Kit, missing

from lodesman.batch.htcondor import HTCondorBackend
from lodesman.batch.run.here import Here
from lodesman.resources import QueueId

SERVICE = Path(__file__).parents[1] / "services" / "htcondor"


@functools.cache
def service() -> Path:
    """The folder of a pool that runs until this process ends, or of the one that the environment names."""
    if "LODE_TEST_HTCONDOR" in os.environ:
        return Path(os.environ["LODE_TEST_HTCONDOR"])
    return started()


def started() -> Path:
    """The folder of a new pool that runs until this process ends."""
    there = subprocess.run([SERVICE, "there"], check=False, capture_output=True, text=True, timeout=10)
    if there.returncode:
        missing("htcondor", there.stderr.strip())
    folder = Path(tempfile.mkdtemp(prefix="lode-htcondor-", dir="/var/tmp"))

    def stop() -> None:
        subprocess.run([SERVICE, "stop", folder], check=False, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    subprocess.run([SERVICE, "start", folder], check=True, timeout=900)
    return folder


def run_service(action: str) -> None:
    """An action of the script that started it."""
    subprocess.run([SERVICE, action, service()], check=True, timeout=120)


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
        patience=120.0,
    )
    _clear()


def _clear() -> None:
    """Remove what a test left, and wait for its slots: the next test needs both.

    A slot may be claimed for a job that was removed at that moment; HTCondor itself frees it after half an hour.
    """
    begun = time.monotonic()
    runner().run(["condor_rm", "-all"])
    while "Claimed" in (
        slots := runner().run(["condor_status", "-af", "Name", "State", "Activity", "JobId"]).out
    ):
        waited = time.monotonic() - begun
        assert waited < 120.0, f"{slots}{runner().run(['condor_q', '-all', '-nobatch']).out}"
        if waited > 5.0:
            runner("root").run(["condor_vacate", "-all"])
        threading.Event().wait(0.5)


HTCONDOR_KITS = [pytest.param(htcondor_kit, id="htcondor", marks=pytest.mark.engines)]
