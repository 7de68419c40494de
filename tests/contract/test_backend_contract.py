"""What every batch backend must do, run on each of them.

A new backend joins with a kit (`tests.kits.backend_kit`). The pilots' scripts read and write in `Kit.place`, a
folder that the account of the pilots can use.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from tests.kits.gridengine_kit import GRIDENGINE_KITS
from tests.kits.htcondor_kit import HTCONDOR_KITS
from tests.kits.local_kit import local_kit
from tests.kits.shell_pilots import shell_spec
from tests.kits.slurm_kit import SLURM_KITS

from lodesman.server.engines.backend import CancelOutcome, NativeState, stamp_of

pytestmark = pytest.mark.e2e

# Kits of engines that have to be there are marked: pytest.param(slurm_kit, id="slurm", marks=pytest.mark.engines)
KITS = [pytest.param(local_kit, id="local"), *GRIDENGINE_KITS, *HTCONDOR_KITS, *SLURM_KITS]


@pytest.fixture(params=KITS)
def kit(request, tmp_path):
    yield from request.param(tmp_path / "backend")


def one(found: Mapping[str, object]) -> object:
    """The only value."""
    (value,) = found.values()
    return value


def test_each_copy_gets_its_own_id(kit):
    spec = kit.spec("true", count=3)
    accepted = kit.backend.submit(spec).accepted
    assert sorted(accepted) == [stamp_of(spec.submission, number) for number in (1, 2, 3)]
    assert len(set(accepted.values())) == 3
    assert all(isinstance(native_id, str) and native_id for native_id in accepted.values())


def test_each_copy_knows_its_number(kit):
    kit.wait_for(kit.submit(f'touch "{kit.place}/copy-$2"', count=3), NativeState.ENDED)
    assert sorted(path.name for path in kit.place.iterdir()) == ["copy-1", "copy-2", "copy-3"]


def test_exit_codes_come_back(kit):
    good, bad = kit.submit("exit 0"), kit.submit("exit 42")
    seen = kit.wait_for(good | bad, NativeState.ENDED)
    assert [seen[stamp].exit_code for stamp in (*good, *bad)] == [0, 42]


def test_an_end_is_final(kit):
    pilots = kit.submit("exit 1")
    first = one(kit.wait_for(pilots, NativeState.ENDED))
    kit.advance()
    again = one(kit.backend.status(pilots))
    assert (again.state, again.exit_code, again.detail) == (first.state, first.exit_code, first.detail)
    assert again.observed_at >= first.observed_at


def test_an_end_has_its_host_and_its_times(kit):
    before = time.time()
    status = one(kit.wait_for(kit.submit("true"), NativeState.ENDED))
    assert status.host
    assert status.word
    assert before - 2 <= status.started_at <= status.ended_at <= time.time() + 2


def test_an_observation_has_its_time(kit):
    before = time.time()
    status = one(kit.backend.status({"nosuchpilot-1": "4000000"}))
    assert before - 1 <= status.observed_at <= time.time() + 1


def test_not_listed_is_unknown(kit):
    pilots = kit.submit("true")
    seen = kit.backend.status(pilots | {"nosuchpilot-1": "4000000"})
    assert set(seen) == {*pilots, "nosuchpilot-1"}
    assert seen["nosuchpilot-1"].state is NativeState.UNKNOWN
    assert seen["nosuchpilot-1"].exit_code is None


def test_a_native_id_of_another_pilot_is_unknown(kit):
    pilots = kit.submit(f"read line < {kit.gate()}")
    kit.running(pilots, 1)
    other = {"another-1": one(pilots)}
    assert one(kit.backend.status(other)).state is NativeState.UNKNOWN
    assert one(kit.backend.cancel(other)) is CancelOutcome.UNKNOWN
    assert kit.running(pilots, 1) == list(pilots)


def test_asking_about_nothing(kit):
    assert kit.backend.status({}) == {}
    assert kit.backend.cancel({}) == {}
    assert kit.backend.loads([]) == {}
    kit.backend.forget({})
    result = kit.backend.submit(kit.spec("true", count=0))
    assert (result.accepted, result.refused) == ({}, {})


def test_only_the_pilot_can_read_its_file(kit):
    out = kit.place / "out"
    script = (
        f'cat "$1" > {out}.part; stat -c " %a" "$1" >> {out}.part; env >> {out}.part; mv {out}.part {out}'
    )
    spec = kit.spec(script)
    kit.wait_for(kit.backend.submit(spec).accepted, NativeState.ENDED)
    text = out.read_text()
    assert text.startswith(spec.pilot_file.decode() + " 600\n")
    assert text.count('"script"') == 1


def test_the_environment_reaches_the_pilot(kit):
    environment = {"LODE_TEST": "with blank, 'quote' and\nline ü"}
    out = kit.place / "out"
    kit.wait_for(kit.submit(f'printf %s "$LODE_TEST" > {out}', environment=environment), NativeState.ENDED)
    assert out.read_text() == environment["LODE_TEST"]


def test_no_variable_of_the_server_is_in_a_pilot(kit, monkeypatch):
    monkeypatch.setenv("LODE_SECRET_OF_THE_SERVER", "hush")
    out = kit.place / "out"
    kit.wait_for(kit.submit(f"env > {out}"), NativeState.ENDED)
    assert "LODE_SECRET_OF_THE_SERVER" not in out.read_text()


def test_more_pilots_than_slots_wait(kit):
    pilots = kit.submit(f"read line < {kit.gate()}", count=4)
    running = kit.running(pilots, 2)
    seen = kit.backend.status(pilots)
    assert {seen[stamp].state for stamp in pilots if stamp not in running} == {NativeState.WAITING}
    load = kit.backend.loads([kit.queue])[kit.queue]
    assert (load.waiting, load.running, load.held) == (2, 2, 0)


def test_the_load_of_an_idle_queue_is_zero(kit):
    kit.wait_for(kit.submit("true"), NativeState.ENDED)
    load = kit.backend.loads([kit.queue])[kit.queue]
    assert (load.waiting, load.running, load.held) == (0, 0, 0)


def test_cancelling(kit):
    pilots = kit.submit(f"touch {kit.place}/ran-$2; read line < {kit.gate()}", count=3)
    first, second = kit.running(pilots, 2)
    (third,) = pilots.keys() - {first, second}
    asked = {third: pilots[third], first: pilots[first], "nosuchpilot-1": "4000000"}
    assert kit.backend.cancel(asked) == {
        third: CancelOutcome.REMOVED,
        first: CancelOutcome.ORDERED,
        "nosuchpilot-1": CancelOutcome.UNKNOWN,
    }
    kit.wait_for({stamp: pilots[stamp] for stamp in (first, third)}, NativeState.ENDED)
    assert one(kit.backend.status({second: pilots[second]})).state is NativeState.RUNNING
    assert len(list(kit.place.glob("ran-*"))) <= 2, "what was cancelled while it waited never runs"


def test_cancelling_twice_and_after_the_end(kit):
    pilots = kit.submit(f"read line < {kit.gate()}")
    kit.running(pilots, 1)
    kit.backend.cancel(pilots)
    # Of one that has ended there may be no record yet.
    again = one(kit.backend.cancel(pilots))
    assert again in {CancelOutcome.ORDERED, CancelOutcome.ENDED, CancelOutcome.UNKNOWN}
    kit.wait_for(pilots, NativeState.ENDED)
    assert one(kit.backend.cancel(pilots)) is CancelOutcome.ENDED


def test_pilots_are_found_by_stamp(kit):
    pilots = kit.submit(f"read line < {kit.gate()}", count=3)
    assert pilots.items() <= kit.again().census().items()


def test_ids_are_good_in_another_process(kit):
    pilots = kit.submit(f"read line < {kit.gate()}", count=3)
    running = kit.running(pilots, 2)
    (waiting,) = pilots.keys() - set(running)
    again = kit.again()
    states = {stamp: status.state for stamp, status in again.status(pilots).items()}
    assert states == dict.fromkeys(running, NativeState.RUNNING) | {waiting: NativeState.WAITING}
    ordered = {stamp: pilots[stamp] for stamp in (waiting, running[0])}
    assert again.cancel(ordered)[waiting] is CancelOutcome.REMOVED
    kit.wait_for(ordered, NativeState.ENDED)


def test_a_submission_never_runs_twice(kit):
    log = kit.place / "log"
    spec = kit.spec(f"echo ran >> {log}")
    pilots = kit.backend.submit(spec).accepted
    for backend in (kit.backend, kit.again()):
        assert list(backend.submit(spec).refused) == list(pilots)
    kit.wait_for(pilots, NativeState.ENDED)
    kit.advance()
    assert log.read_text() == "ran\n"


def test_a_python_that_does_not_exist_is_passed_over_or_ends(kit):
    status = one(kit.wait_for(kit.submit("exit 3", python="/no/such/python"), NativeState.ENDED))
    assert status.exit_code not in {0, None}


def test_the_end_of_the_output_is_kept(kit):
    pilots = kit.submit("echo first; seq 100000; printf '\\0%s\\n' 'last of all'; echo error >&2; exit 1")
    kit.wait_for(pilots, NativeState.ENDED)
    ((stamp, native_id),) = pilots.items()
    output = kit.backend.output(stamp, native_id)
    assert len(output) == 64 << 10
    assert b"\0last of all\n" in output
    assert b"error" in output
    assert b"first" not in output


def test_there_is_no_output_of_a_pilot_that_never_began(kit):
    assert kit.backend.output("nosuchpilot-1", "4000000") is None


def test_what_is_forgotten_is_gone(kit):
    pilots = kit.submit("echo hello")
    kit.wait_for(pilots, NativeState.ENDED)
    ((stamp, native_id),) = pilots.items()
    assert b"hello" in kit.backend.output(stamp, native_id)
    kit.backend.forget(pilots)
    assert kit.backend.output(stamp, native_id) is None
    kit.backend.forget(pilots)


def test_a_pilot_that_runs_is_not_forgotten(kit):
    pilots = kit.submit(f"read line < {kit.gate()}")
    kit.running(pilots, 1)
    kit.backend.forget(pilots)
    assert kit.running(pilots, 1) == list(pilots)


def test_a_pilot_that_fits_can_run(kit):
    assert kit.backend.check(kit.spec("true")).possible is not False


def test_a_bad_submission_is_refused_for_good(kit):
    spec = shell_spec(kit.queue, "../b", "true", count=2)
    result = kit.backend.submit(spec)
    assert (dict(result.accepted), len(result.refused)) == ({}, 2)
    assert not any(refusal.transient for refusal in result.refused.values())
