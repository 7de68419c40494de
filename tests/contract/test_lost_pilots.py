"""A pilot that hangs, with the real local backend and a real database: it is gone after its lease ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.kits.shell_pilots import same, send

from lodesman.base.processes import living_processes
from lodesman.server.engines.backend import NativeState
from lodesman.server.engines.local import LocalBackend
from lodesman.server.loops.cancelling import _AGAIN_SECONDS
from lodesman.server.loops.census import BackendWatch
from lodesman.server.store.journal import Change
from lodesman.server.writer.pilots import end_pilot, hash_token, join_pilot, pilots_submitted, prepare_pilots
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState

PLACE = ("S", "c", "q")
PATIENCE = 60.0
# A pilot with a payload that would run for long; it says where it is when all is there.
PILOT = """
import os, subprocess, sys, time
payload = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("pids", "w").write(f"{os.getpid()} {payload.pid}")
os.rename("pids", "there")
time.sleep(600)
"""


def wait_until(happened, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        threading.Event().wait(0.01)
    return found


@pytest.fixture
def backend(tmp_path):
    found = LocalBackend(tmp_path / "pilots", {PLACE: 1}, grace_seconds=0.3, cgroups=False)
    yield found
    found.stop_all(grace_seconds=0.1)


@pytest.fixture
def census(house, backend):
    return BackendWatch("local", backend, db=house.reader, post=lambda *_: None, note=lambda *_: None)


@pytest.fixture
def pilot(house, backend, tmp_path):
    """A pilot that joined and runs a payload: its number, and the processes."""
    stamp = f"hangs_{os.urandom(4).hex()}-1"
    (number,) = house.do(Change(prepare_pilots, house.live, [NewPilot(
        stamp=stamp, vo="vo", site="S", ce="c", queue="q", request={}, join_hash=hash_token("join"),
    )]))  # fmt: skip
    accepted = send(backend, PLACE, stamp, code=PILOT).accepted
    house.do(Change(pilots_submitted, house.live, {stamp: (accepted[stamp], "")}))
    house.do(Change(join_pilot, house.live, "join", "nonce", {}))
    there = Path(tmp_path / "pilots" / stamp / "work" / "there")
    wait_until(there.exists, "the pilot")
    pids = [int(pid) for pid in there.read_text().split()]
    return number, stamp, pids


@pytest.mark.slow
@pytest.mark.stores
def test_a_pilot_that_hangs_is_gone_after_its_lease_ended(house, backend, census, pilot):
    number, stamp, pids = pilot
    os.kill(pids[0], signal.SIGSTOP)
    census.tick(house.clock)
    assert backend.status(same(stamp))[stamp].state is NativeState.RUNNING
    house.do(Change(end_pilot, house.live, number, PilotState.LOST, "its lease ended", cause="lease-expired"))
    census.tick(house.clock + 10)
    wait_until(lambda: not set(pids) & set(living_processes()), "the end of pilot and payload")
    wait_until(lambda: backend.status(same(stamp))[stamp].state is NativeState.ENDED, "the record of its end")
    assert backend.loads([PLACE])[PLACE].running == 0  # its slot is free
    assert census._lost_pilots.tick(house.clock + 10 + _AGAIN_SECONDS) == 0
