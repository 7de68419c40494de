"""What holds on a real HTCondor alone: no second start, secrets, other accounts, a gateway, an engine that is away."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.contract.test_backend_contract import one
from tests.e2e.conftest import wait_until
from tests.kits.backend_kit import Kit
from tests.kits.htcondor_kit import SERVICE, htcondor_kit, runner, service

from lodesman.base.errors import BackendFault
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.htcondor import HTCondorBackend

pytestmark = [pytest.mark.e2e, pytest.mark.engines]


@pytest.fixture
def kit(tmp_path):
    yield from htcondor_kit(tmp_path)


def run(kit: Kit, *words: str, account: str = "lode") -> str:
    done = runner(account).run([f"{service()}/bin/inside", *words])
    assert done.code == 0, done
    return done.out


def test_an_evicted_pilot_never_starts_again(kit):
    pilots = kit.submit(f"echo ran >> {kit.place}/log; read line < {kit.gate()}")
    kit.running(pilots, 1)
    wait_until((kit.place / "log").exists, "the first words of the pilot", patience=kit.patience)
    run(kit, "condor_vacate_job", "-fast", one(pilots))
    status = one(kit.wait_for(pilots, NativeState.ENDED))
    assert "PeriodicRemove" in status.detail
    assert (kit.place / "log").read_text() == "ran\n"


def test_a_pilot_that_was_held_is_held_until_it_is_cancelled(kit):
    pilots = kit.submit(f"read line < {kit.gate()}", count=3)
    kit.running(pilots, 2)
    run(kit, "condor_hold", *pilots.values(), "-reason", "the disk is ü full")
    seen = kit.wait_for(pilots, NativeState.HELD)
    assert all("the disk is ü full" in status.detail and "1/0" in status.word for status in seen.values())
    assert kit.backend.loads([kit.queue])[kit.queue].held == 3
    outcomes = kit.backend.cancel(pilots)
    assert set(outcomes.values()) <= {CancelOutcome.REMOVED, CancelOutcome.ORDERED}
    kit.wait_for(pilots, NativeState.ENDED)


def test_a_pilot_that_began_and_was_held_does_not_start_again_when_it_is_released(kit):
    pilots = kit.submit(f"echo ran >> {kit.place}/log; read line < {kit.gate()}")
    kit.running(pilots, 1)
    while not (kit.place / "log").exists():  # it runs for HTCondor a moment before it does anything
        kit.advance()
    run(kit, "condor_hold", *pilots.values())
    kit.wait_for(pilots, NativeState.HELD)
    run(kit, "condor_release", *pilots.values())
    kit.wait_for(pilots, NativeState.ENDED)
    assert (kit.place / "log").read_text() == "ran\n"


def test_a_pilot_whose_time_is_over_is_removed(kit):
    pilots = kit.submit(f"read line < {kit.gate()}", wall_seconds=1)
    status = one(kit.wait_for(pilots, NativeState.ENDED))
    assert "PeriodicRemove" in status.detail
    assert status.started_at


def test_a_pilot_that_is_cancelled_is_asked_to_end(kit):
    log = kit.place / "log"
    pilots = kit.submit(f"trap 'echo asked >> {log}; exit 7' TERM; touch {log}; while :; do sleep 0.1; done")
    deadline = time.monotonic() + kit.patience
    while not log.exists():
        assert time.monotonic() < deadline
        kit.advance()
    kit.backend.cancel(pilots)
    assert one(kit.wait_for(pilots, NativeState.ENDED)).exit_code == 7
    assert log.read_text() == "asked\n"


def test_the_output_of_a_running_pilot_can_be_read(kit):
    pilots = kit.submit(f"echo so far; read line < {kit.gate()}")
    kit.running(pilots, 1)
    ((stamp, native_id),) = pilots.items()
    deadline = time.monotonic() + kit.patience
    while kit.backend.output(stamp, native_id) != b"so far\n":
        assert time.monotonic() < deadline
        kit.advance()


def test_secrets_are_in_files_of_the_account_alone_and_go_at_the_end(kit):
    spec = kit.spec("exit 0")
    pilots = kit.backend.submit(spec).accepted
    folder = f"/home/lode/.lodesman/submit/{spec.submission}"
    assert run(kit, "stat", "-c", "%a %U", folder, f"{folder}/script").split("\n")[:2] == [
        "700 lode",
        "700 lode",
    ]
    assert runner("other").run(["sh", "-c", f"cat {folder}/script"]).code
    kit.wait_for(pilots, NativeState.ENDED)
    facts = run(kit, "condor_q", "-allusers", "-long", account="other")
    assert spec.submission in facts
    assert "END-OF-PILOT" not in facts
    assert '"script"' not in facts
    kit.backend.forget(pilots)
    assert run(kit, "find", folder) == f"{folder}\n"
    deadline = time.monotonic() + kit.patience
    while spec.submission in run(kit, "condor_q", "-long"):
        assert time.monotonic() < deadline, "a forgotten pilot leaves the queue"
        kit.advance()
    assert one(kit.backend.status(pilots)).exit_code == 0, "the history of the site says how it ended"


def test_another_account_is_another_world(kit):
    other = HTCondorBackend(runner=runner("other"))
    gone = kit.submit("true", cores=64)
    kit.backend.cancel(gone)
    kit.wait_for(gone, NativeState.ENDED)
    assert gone.items() <= kit.again().census().items()
    pilots = kit.submit(f"read line < {kit.gate()}", count=3)
    kit.running(pilots, 2)
    assert {status.state for status in other.status(pilots).values()} == {NativeState.UNKNOWN}
    assert set(other.cancel(pilots).values()) == {CancelOutcome.UNKNOWN}
    assert other.census() == {}
    load = other.loads([kit.queue])[kit.queue]
    assert (load.waiting, load.running, load.others_waiting, load.others_running) == (0, 0, 1, 2)
    deadline = time.monotonic() + kit.patience
    while other.loads([kit.queue])[kit.queue].free_cores:  # the collector hears of it a little later
        assert time.monotonic() < deadline
        kit.advance()
    kit.running(pilots, 2)


def test_a_submission_that_two_make_at_once_is_made_once(kit):
    spec = kit.spec("true", count=2)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: kit.again().submit(spec), range(4)))
    accepted = [result.accepted for result in results if result.accepted]
    assert len(accepted) == 1
    assert (
        len(
            run(
                kit, "condor_q", "-af", "ProcId", "-constraint", f'LodesmanSubmission == "{spec.submission}"'
            ).split()
        )
        == 2
    )


@pytest.mark.parametrize("options", [("-append", "request_cpus = ("), ("-nosuch",)])
def test_a_refusal_leaves_nothing(kit, options):
    spec = kit.spec("true", options=options)
    (refusal,) = kit.backend.submit(spec).refused.values()
    assert (bool(refusal.reason), refusal.transient) == (True, False)
    assert spec.submission not in run(kit, "ls", "/home/lode/.lodesman/submit")
    assert kit.backend.submit(replace(spec, options=())).accepted


def test_a_queue_is_an_accounting_group(kit):
    pilots = kit.submit("true")
    facts = run(kit, "condor_q", "-af", "AcctGroup", "-constraint", f"ClusterId == {int(float(one(pilots)))}")
    assert facts == f"{kit.queue.queue}\n"


def test_options_reach_the_job(kit):
    pilots = kit.submit(
        "true", options=("-append", "+Flavour = \"a 'b' $(ProcId)\"", "-append", "priority = 7")
    )
    facts = run(
        kit,
        "condor_q",
        "-af:V",
        "Flavour",
        "JobPrio",
        "-constraint",
        f"ClusterId == {int(float(one(pilots)))}",
    )
    assert facts == "\"a 'b' 0\" 7\n"


def test_a_thousand_pilots_are_one_submission(kit):
    pilots = kit.submit("true", count=1_000, cores=64)
    assert len({native_id.partition(".")[0] for native_id in pilots.values()}) == 1
    load = kit.backend.loads([kit.queue])[kit.queue]
    assert (load.waiting, load.running) == (1_000, 0)
    assert set(kit.backend.cancel(pilots).values()) == {CancelOutcome.REMOVED}
    assert {status.state for status in kit.backend.status(pilots).values()} == {NativeState.ENDED}


def test_a_schedd_elsewhere_is_given_all_and_gives_the_output_back(kit):
    name = run(kit, "condor_status", "-schedd", "-af", "Name").strip()
    pool = run(kit, "condor_config_val", "COLLECTOR_HOST").strip()
    there = HTCondorBackend(runner=runner(), schedd=name, collector=pool)
    spec = kit.spec("echo hello; echo error >&2; exit 3", count=2)
    kit = replace(kit, backend=there)
    pilots = there.submit(spec).accepted
    assert run(kit, "ls", f"/home/lode/.lodesman/submit/{spec.submission}") == "", "the script has travelled"
    assert {status.exit_code for status in kit.wait_for(pilots, NativeState.ENDED).values()} == {3}
    assert [there.output(*pilot) for pilot in pilots.items()] == [b"hello\nerror\n"] * 2
    there.forget(pilots)
    assert [there.output(*pilot) for pilot in pilots.items()] == [None, None]


def test_an_engine_that_is_away_loses_no_pilot(kit):
    waiting = kit.submit(f"touch {kit.place}/ran", options=("-append", "hold = true"))
    kit.wait_for(waiting, NativeState.HELD)
    subprocess.run([SERVICE, "stop", service()], check=True, timeout=300)
    try:
        for call in (
            lambda: kit.backend.status(waiting),
            kit.backend.census,
            lambda: kit.backend.loads([kit.queue]),
        ):
            with pytest.raises(BackendFault):
                call()
        with pytest.raises(BackendFault):
            kit.backend.submit(kit.spec("true"))
    finally:
        subprocess.run([SERVICE, "start", service()], check=True, timeout=900)
    assert one(kit.backend.status(waiting)).state is NativeState.HELD
    run(kit, "condor_release", *waiting.values())
    kit.wait_for(waiting, NativeState.ENDED)
    assert (kit.place / "ran").exists()


@pytest.mark.thorough
def test_a_schedd_that_dies_is_no_empty_queue_and_its_pilots_go_on(kit):
    gate = kit.gate()
    pilots = kit.submit(f"read line < {gate}; exit 4")
    kit.running(pilots, 1)
    kill = (
        'for one in /proc/[0-9]*; do [ "$(cat $one/comm)" != condor_schedd ] || kill -9 ${one#/proc/}; done'
    )
    assert runner("root").run(["sh", "-c", kill]).code == 0
    with pytest.raises(BackendFault):
        kit.wait_for(pilots, NativeState.ENDED)
    deadline = time.monotonic() + kit.patience
    while True:
        try:
            seen = one(kit.backend.status(pilots))
            break
        except BackendFault:
            assert time.monotonic() < deadline
            kit.advance()
    assert seen.state is NativeState.RUNNING
    # Without a reader this waits for none: HTCondor may just be starting the job anew.
    with os.fdopen(os.open(gate, os.O_RDWR), "wb", buffering=0) as opened:
        opened.write(b"go\n")
        assert one(kit.wait_for(pilots, NativeState.ENDED)).exit_code == 4
