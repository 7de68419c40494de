"""What every batch backend must do, run on each of them.

A new backend joins with a kit: how to make it, its queue, and how to drive it on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodesman.batch.backend import (
    PILOT_FILE,
    Backend,
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotCopy,
    PilotSpec,
)
from lodesman.batch.local import LocalBackend
from lodesman.resources import QueueId

pytestmark = pytest.mark.e2e

PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """One backend under test: a queue with two slots, the same system seen by a new process, and a push."""

    backend: Backend
    queue: QueueId
    again: Callable[[], Backend]
    advance: Callable[[], object]

    def submit(self, *stamps: str, script: str) -> dict[str, str]:
        """Pilots that run a line of shell; their own file is $1."""
        spec = PilotSpec(queue=self.queue, command=("/bin/sh", "-c", script, "sh", PILOT_FILE))
        copies = [PilotCopy(stamp=stamp, pilot_file=f"file of {stamp}".encode()) for stamp in stamps]
        result = self.backend.submit(spec, copies)
        assert result.refused == {}
        return dict(result.accepted)

    def wait_for(self, native_ids: Sequence[str], state: NativeState) -> dict[str, NativeStatus]:
        """Until all of these are in the state."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.advance()
            seen = self.backend.status(native_ids)
            if all(status.state is state for status in seen.values()):
                return seen
            assert time.monotonic() < deadline, seen
            threading.Event().wait(0.01)


def local_kit(root: Path) -> Iterator[Kit]:
    queue = QueueId("Contract.Site", "localhost", "queue")
    backend = LocalBackend(root, {queue: 2}, grace_seconds=5.0)
    yield Kit(
        backend=backend,
        queue=queue,
        again=lambda: LocalBackend(root, {queue: 2}, grace_seconds=5.0),
        advance=backend.tick,
    )
    assert backend.stop_all(grace_seconds=0.0, deadline_seconds=PATIENCE) == ()


@pytest.fixture(params=[local_kit], ids=["local"])
def kit(request, tmp_path):
    yield from request.param(tmp_path / "backend")


@pytest.fixture
def gate(tmp_path):
    """A FIFO: pilots that read it run until the test ends."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def test_each_copy_gets_its_own_id(kit):
    ids = kit.submit("a", "b", "c", script="true")
    assert sorted(ids) == ["a", "b", "c"]
    assert len(set(ids.values())) == 3
    assert all(isinstance(native_id, str) and native_id for native_id in ids.values())


def test_exit_codes_come_back(kit):
    good, bad = kit.submit("good", script="exit 0"), kit.submit("bad", script="exit 42")
    seen = kit.wait_for([good["good"], bad["bad"]], NativeState.ENDED)
    assert seen[good["good"]].exit_code == 0
    assert seen[bad["bad"]].exit_code == 42


def test_an_end_is_final(kit):
    ids = kit.submit("a", script="exit 1")
    first = kit.wait_for([ids["a"]], NativeState.ENDED)[ids["a"]]
    kit.advance()
    again = kit.backend.status([ids["a"]])[ids["a"]]
    assert (again.state, again.exit_code, again.detail) == (first.state, first.exit_code, first.detail)
    assert again.observed_at >= first.observed_at


def test_an_observation_has_its_time(kit):
    before = time.time()
    status = kit.backend.status(["no-such-pilot"])["no-such-pilot"]
    assert before - 1 <= status.observed_at <= time.time() + 1


def test_not_listed_is_unknown(kit):
    ids = kit.submit("a", script="true")
    seen = kit.backend.status([ids["a"], "no-such-pilot"])
    assert set(seen) == {ids["a"], "no-such-pilot"}
    assert seen["no-such-pilot"].state is NativeState.UNKNOWN
    assert seen["no-such-pilot"].exit_code is None


def test_asking_about_nothing(kit):
    assert kit.backend.status([]) == {}
    assert kit.backend.cancel([]) == {}
    assert kit.backend.census([]) == {}
    result = kit.backend.submit(PilotSpec(queue=kit.queue, command=("true",)), [])
    assert (result.accepted, result.refused) == ({}, {})


def test_only_the_pilot_can_read_its_file(kit, tmp_path):
    out = tmp_path / "out"
    script = f'cat "$1" > {out}.part; stat -c %a "$1" >> {out}.part; env >> {out}.part; mv {out}.part {out}'
    ids = kit.submit("a", script=script)
    kit.wait_for([ids["a"]], NativeState.ENDED)
    text = out.read_text()
    assert text.startswith("file of a600\n")
    assert text.count("file of a") == 1


def test_the_environment_reaches_the_pilot(kit, tmp_path):
    out = tmp_path / "out"
    environment = {"LODE_TEST": "with blank, 'quote' and\nline ü"}
    command = ("/bin/sh", "-c", f'printf %s "$LODE_TEST" > {out}')
    spec = PilotSpec(queue=kit.queue, command=command, environment=environment)
    result = kit.backend.submit(spec, [PilotCopy(stamp="a", pilot_file=b"")])
    kit.wait_for(list(result.accepted.values()), NativeState.ENDED)
    assert out.read_text() == environment["LODE_TEST"]


def test_more_pilots_than_slots_wait(kit, gate):
    ids = kit.submit("a", "b", "c", "d", script=f"read line < {gate}")
    kit.wait_for([ids["a"], ids["b"]], NativeState.RUNNING)
    seen = kit.backend.status(list(ids.values()))
    assert [seen[ids[stamp]].state for stamp in "cd"] == [NativeState.WAITING] * 2
    load = kit.backend.load(kit.queue)
    assert (load.waiting, load.running) == (2, 2)


def test_the_load_of_an_idle_queue_is_zero(kit):
    ids = kit.submit("a", script="true")
    kit.wait_for([ids["a"]], NativeState.ENDED)
    load = kit.backend.load(kit.queue)
    assert (load.waiting, load.running) == (0, 0)


def test_cancelling(kit, gate, tmp_path):
    ids = kit.submit("a", "b", "c", script=f"echo ran > {tmp_path}/ran-$$; read line < {gate}")
    kit.wait_for([ids["a"], ids["b"]], NativeState.RUNNING)
    asked = [ids["c"], ids["a"], "no-such-pilot"]
    assert kit.backend.cancel(asked) == {
        ids["c"]: CancelOutcome.REMOVED,
        ids["a"]: CancelOutcome.ORDERED,
        "no-such-pilot": CancelOutcome.UNKNOWN,
    }
    kit.wait_for([ids["a"], ids["c"]], NativeState.ENDED)
    assert kit.backend.status([ids["b"]])[ids["b"]].state is NativeState.RUNNING
    assert len(list(tmp_path.glob("ran-*"))) <= 2, "what was cancelled while it waited never runs"


def test_cancelling_twice_and_after_the_end(kit, gate):
    ids = kit.submit("a", script=f"read line < {gate}")
    kit.wait_for([ids["a"]], NativeState.RUNNING)
    kit.backend.cancel([ids["a"]])
    assert kit.backend.cancel([ids["a"]])[ids["a"]] in {CancelOutcome.ORDERED, CancelOutcome.ENDED}
    kit.wait_for([ids["a"]], NativeState.ENDED)
    assert kit.backend.cancel([ids["a"]]) == {ids["a"]: CancelOutcome.ENDED}


def test_pilots_are_found_by_stamp(kit, gate):
    ids = kit.submit("a", "b", "c", script=f"read line < {gate}")
    again = kit.again()
    assert again.census(["a", "c", "never"]) == {"a": ids["a"], "c": ids["c"]}
    assert ids.items() <= again.census().items()


def test_ids_are_good_in_another_process(kit, gate):
    ids = kit.submit("a", "b", "c", script=f"read line < {gate}")
    kit.wait_for([ids["a"], ids["b"]], NativeState.RUNNING)
    again = kit.again()
    states = {native_id: status.state for native_id, status in again.status(list(ids.values())).items()}
    assert states == {
        ids["a"]: NativeState.RUNNING,
        ids["b"]: NativeState.RUNNING,
        ids["c"]: NativeState.WAITING,
    }
    assert again.cancel([ids["c"], ids["a"]])[ids["c"]] is CancelOutcome.REMOVED
    kit.wait_for([ids["a"], ids["c"]], NativeState.ENDED)


def test_a_stamp_never_runs_twice(kit, tmp_path):
    log = tmp_path / "log"
    ids = kit.submit("a", script=f"echo ran >> {log}")
    spec = PilotSpec(queue=kit.queue, command=("/bin/sh", "-c", f"echo again >> {log}"))
    for backend in (kit.backend, kit.again()):
        backend.submit(spec, [PilotCopy(stamp="a", pilot_file=b"")])
    kit.wait_for([ids["a"]], NativeState.ENDED)
    kit.advance()
    assert log.read_text() == "ran\n"


def test_a_command_that_does_not_exist_ends(kit):
    spec = PilotSpec(queue=kit.queue, command=("/no/such/program",))
    result = kit.backend.submit(spec, [PilotCopy(stamp="a", pilot_file=b"")])
    seen = kit.wait_for(list(result.accepted.values()), NativeState.ENDED)
    assert all(status.exit_code not in {0, None} for status in seen.values())


def test_one_bad_copy_does_not_stop_the_others(kit):
    spec = PilotSpec(queue=kit.queue, command=("/bin/true",))
    result = kit.backend.submit(
        spec, [PilotCopy(stamp=stamp, pilot_file=b"") for stamp in ("a", "../b", "c")]
    )
    assert sorted(result.accepted) == ["a", "c"]
    assert not result.refused["../b"].transient
    kit.wait_for(list(result.accepted.values()), NativeState.ENDED)
