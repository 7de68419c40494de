"""What only Slurm does, on a real one: arrays, outages, numbers that are given out again, and many pilots."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.kits.backend_kit import Kit
from tests.kits.shell_pilots import shell_spec
from tests.kits.slurm_kit import environment, service, slurm_kit, started_slurm

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.slurm import SlurmBackend

pytestmark = [pytest.mark.e2e, pytest.mark.engines]


def queue(partition: str) -> QueueId:
    return QueueId("Contract.Site", "slurm", partition)


def on(kit: Kit, partition: str) -> Kit:
    return replace(kit, queue=queue(partition))


@pytest.fixture
def kit(tmp_path):
    yield from slurm_kit(tmp_path / "backend")


@pytest.fixture(params=["", pytest.param("accounting", marks=pytest.mark.thorough)])
def own(request, tmp_path):
    """A Slurm of its own, and a backend with outputs."""
    with started_slurm(*filter(None, [request.param])) as folder:
        backend = SlurmBackend(Here(environment=environment(folder)), folder=str(tmp_path / "output"))
        kit = Kit(
            backend=backend,
            queue=queue("pilots"),
            place=tmp_path,
            again=lambda: backend,
            advance=lambda: time.sleep(0.05),
        )
        yield kit, folder, bool(request.param)


def states(kit, pilots) -> list[str]:
    return [status.state.value for status in kit.backend.status(pilots).values()]


def test_cancelling_some_leaves_the_rest_of_an_array_waiting(kit):
    pilots = on(kit, "down").submit("true", count=6)
    some = dict(list(pilots.items())[1:4])
    assert set(kit.backend.cancel(some).values()) == {CancelOutcome.REMOVED}
    assert states(kit, pilots) == ["waiting", "ended", "ended", "ended", "waiting", "waiting"]
    assert kit.backend.loads([queue("down")])[queue("down")].waiting == 3
    assert set(kit.backend.cancel(pilots).values()) == {CancelOutcome.REMOVED, CancelOutcome.ENDED}
    assert states(kit, pilots) == ["ended"] * 6


def test_an_array_that_a_person_cancels_ends_whole(kit):
    pilots = on(kit, "down").submit("true", count=4)
    kit.backend.runner.run(["scancel", next(iter(pilots.values())).partition("_")[0]])
    assert states(kit, pilots) == ["ended"] * 4


def test_a_pilot_that_never_starts_is_held(kit):
    pilots = kit.submit("true", wall_seconds=3 * 86_400, count=2)  # the partition allows one day
    kit.wait_for(pilots, NativeState.HELD)
    status = kit.backend.status(pilots)[next(iter(pilots))]
    assert re.search(r"PENDING \(Partition(TimeLimit|Config)\)", status.word)
    assert "Partition" in status.detail
    load = kit.backend.loads([kit.queue])[kit.queue]
    assert (load.waiting, load.running, load.held) == (0, 0, 2)
    assert set(kit.backend.cancel(pilots).values()) == {CancelOutcome.REMOVED}


def test_a_partition_that_is_down_makes_pilots_wait(kit):
    pilots = on(kit, "down").submit("true")
    kit.advance()
    assert states(kit, pilots) == ["waiting"]


@pytest.mark.parametrize(("partition", "transient"), [("nosuch", False), ("closed", True)])
def test_what_slurm_refuses_can_be_submitted_again(kit, partition, transient):
    spec = on(kit, partition).spec("true", count=2)
    for _ in range(2):
        result = kit.backend.submit(spec)
        assert {one.transient for one in result.refused.values()} == {transient}
        assert "submitted before" not in next(iter(result.refused.values())).reason
    assert kit.backend.submit(replace(spec, queue=kit.queue)).accepted


def test_whether_a_pilot_could_ever_run(kit):
    assert kit.backend.check(kit.spec("true")).possible
    never = kit.backend.check(replace(kit.spec("true", cores=1000), program=b"", pilot_file=b""))
    assert never.possible is False
    assert "not available" in never.detail
    assert not never.final
    nowhere = kit.backend.check(on(kit, "nosuch").spec("true"))
    assert (nowhere.possible, nowhere.final) == (False, True)


def test_a_node_that_is_down_is_refused_for_now_in_the_words_of_one_that_never_was(own):
    kit, _, _ = own
    run = kit.backend.runner.run
    node = run(["sinfo", "--noheader", "--Node", "--format=%N"]).out.split()[0]
    run(["scontrol", "update", f"NodeName={node}", "State=down", "Reason=test"])
    check = kit.backend.check(kit.spec("true"))
    assert (check.possible, check.final) == (False, False)
    assert "not available" in check.detail
    run(["scontrol", "update", f"NodeName={node}", "State=resume"])
    for _ in range(600):  # until the node has said that it is there
        if kit.backend.check(kit.spec("true")).possible:
            break
        kit.advance()
    assert kit.backend.check(kit.spec("true")).possible


def test_one_of_many_who_submit_at_once_does(kit):
    spec = kit.spec(f"echo ran >> {kit.place}/log")
    together = threading.Barrier(4)

    def submit(_) -> int:
        together.wait(60)
        return len(kit.again().submit(spec).accepted)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(submit, range(4))) == [0, 0, 0, 1]
    found = {stamp: one for stamp, one in kit.backend.census().items() if stamp in spec.stamps().values()}
    kit.wait_for(found, NativeState.ENDED)
    assert (kit.place / "log").read_text() == "ran\n"


class Deaf:
    """A runner whose submissions arrive, and whose answers do not."""

    def __init__(self, runner) -> None:
        self.runner = runner

    def run(self, words, **more):
        done = self.runner.run(words, **more)
        if "sbatch" in words:
            raise BackendFault("sbatch did not end within 60 s.", transient=True)
        return done


def test_a_submission_whose_answer_is_lost_is_found(kit):
    spec = kit.spec(f"read line < {kit.gate()}", count=3)
    lossy = SlurmBackend(Deaf(kit.backend.runner), folder=kit.backend.folder)
    with pytest.raises(BackendFault):
        lossy.submit(spec)
    found = kit.backend.census()
    assert set(spec.stamps().values()) <= found.keys()
    assert kit.backend.submit(spec).accepted == {}


def test_outputs_are_for_this_account_alone(kit, tmp_path):
    pilots = kit.submit("echo hello")
    kit.wait_for(pilots, NativeState.ENDED)
    (file,) = (tmp_path / "backend" / "output").glob("*/*")
    assert [path.stat().st_mode & 0o077 for path in (file.parent, file.parent.parent)] == [0, 0]
    kit.backend.forget(pilots)
    assert list((tmp_path / "backend" / "output").iterdir()) == []


def test_to_forget_one_pilot_does_no_harm_to_those_that_wait(kit):
    gate = kit.gate()
    pilots = kit.submit(f'[ "$2" = 1 ] || read line < {gate}', count=4)
    first = {stamp: native_id for stamp, native_id in pilots.items() if stamp.endswith("-1")}
    kit.wait_for(first, NativeState.ENDED)
    kit.backend.forget(first)
    with gate.open("r+b", buffering=0) as writer:
        writer.write(b"go\n" * 3)
        seen = kit.wait_for(pilots, NativeState.ENDED)
    assert {status.exit_code for status in seen.values()} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's slurmd can ask for an account's environment")
def test_pilots_have_a_home_and_a_path_of_their_node(kit):
    out = kit.place / "out"
    kit.wait_for(kit.submit(f'printf "%s\\n" "$HOME" "$PATH" > {out}'), NativeState.ENDED)
    home, path = out.read_text().splitlines()
    assert home.startswith("/")
    assert "/bin" in path


def test_an_outage_changes_nothing(own):
    kit, folder, _ = own
    pilots = kit.submit(f"read line < {kit.gate()}", count=3)
    kit.running(pilots, 2)
    spec = kit.spec("true")
    service("outage", folder)
    with ThreadPoolExecutor() as pool:  # Slurm tries for a while, each time
        asked = [
            pool.submit(kit.backend.status, pilots),
            pool.submit(kit.backend.cancel, pilots),
            pool.submit(kit.backend.loads, [kit.queue]),
            pool.submit(kit.backend.census),
        ]
        refused, check = pool.submit(kit.backend.submit, spec), pool.submit(kit.backend.check, spec)
    for one in asked:
        fault = one.exception()
        assert isinstance(fault, BackendFault)
        assert fault.data["transient"]
    assert all(one.transient for one in refused.result().refused.values())
    assert check.result().possible is None
    service("start", folder)
    kit.running(pilots, 2)
    assert sorted(states(kit, pilots)) == ["running", "running", "waiting"]
    assert kit.backend.submit(spec).accepted


@pytest.mark.thorough
def test_a_controller_that_forgot_all(own):
    kit, folder, accounting = own
    ended = kit.submit("exit 3", count=2)
    kit.wait_for(ended, NativeState.ENDED)
    while accounting and kit.backend.runner.run(["sacct", "-nX"]).out.count("FAILED") < 2:
        kit.advance()  # it is informed a little later
    service("stop", folder)
    shutil.rmtree(folder / "state")
    (folder / "state").mkdir()
    service("start", folder)
    seen = kit.backend.status(ended)
    expected = (NativeState.ENDED, 3) if accounting else (NativeState.UNKNOWN, None)
    assert {(status.state, status.exit_code) for status in seen.values()} == {expected}
    again = kit.submit(f"read line < {kit.gate()}", count=2)
    kit.running(again, 2)
    assert set(again.values()) == set(ended.values()), "its numbers begin anew"
    # The accounting shows the newest job of a number as soon as it knows of it.
    known = {CancelOutcome.UNKNOWN, CancelOutcome.ENDED} if accounting else {CancelOutcome.UNKNOWN}
    assert set(kit.backend.cancel(ended).values()) <= known
    assert kit.running(again, 2) == list(again)


class Counting:
    """A runner that remembers which programs ran."""

    def __init__(self, runner) -> None:
        self.runner = runner
        self.programs: list[str] = []

    def run(self, words, **more):
        self.programs.append({"env": words[2:], "sh": words[5:]}.get(words[0], words)[0])
        return self.runner.run(words, **more)


@pytest.mark.slow
@pytest.mark.thorough
def test_many_pilots(kit):
    runner = Counting(kit.backend.runner)
    backend = SlurmBackend(runner, folder=kit.backend.folder)
    pilots: dict[str, str] = {}
    for number in range(10):
        spec = shell_spec(queue("down"), f"many{number}", "true", count=1000)
        pilots |= backend.submit(spec).accepted
    assert len(pilots) == 10_000
    assert runner.programs.count("sbatch") == 10
    runner.programs.clear()
    seen = backend.status(pilots)
    assert {status.state for status in seen.values()} == {NativeState.WAITING}
    assert runner.programs == ["squeue"]
    assert backend.loads([queue("down")])[queue("down")].waiting == 10_000
    some = dict(list(pilots.items())[:300])
    assert set(backend.cancel(some).values()) == {CancelOutcome.REMOVED}
    arrays = {native_id.partition("_")[0] for native_id in pilots.values()}
    kit.backend.runner.run(["scancel", *arrays])
