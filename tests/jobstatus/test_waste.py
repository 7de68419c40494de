from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobstatus.kits.random_pilots import World, faults_of

from lodesman.site.jobstatus.values import Status, repair
from lodesman.site.jobstatus.waste import Estimate, RunningPayload, estimate, publish

# 8 cores, 6 used. At 1,000: one payload with 100 uncommitted core-seconds before the other's start.
STATUS = Status(6, 1_000, 2_000, 3_000, 5_000, 100, 700, can_postpone_last_job=False, priority_factor=0)


def expect(status: Status = STATUS, now: float = 1_500, **facts) -> Estimate:
    known = {"allocated": 8, "jobstart": 500} | facts
    return estimate(status, now=now, **known)


def run(
    cores: int = 2, started: float = 100, ends: float = 1_000, limit: float | None = None
) -> RunningPayload:
    return RunningPayload(cores, started, started, ends, limit)


def said(*running: RunningPayload, now: float = 500, **facts) -> Status:
    usual = {"allocated": 8, "pending_waste": 0, "slot_ends": None, "can_postpone": True, "priority": 0}
    return publish(running, now=now, **(usual | facts))


@pytest.mark.slow
def test_formulas_equal_the_count_second_by_second():
    assert faults_of(range(300)) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["this", "3.9"])
def test_formulas_equal_the_count_of_four_thousand_pilots(version):
    old = os.environ.get("LODESMAN_OLD_PYTHON") or shutil.which("python3.9")
    python = sys.executable if version == "this" else old
    words = (
        "from tests.jobstatus.kits.random_pilots import faults_of; print(faults_of(range(10_000, 14_000)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [python or "false", "-c", words], env={"PYTHONPATH": f"{root / 'src'}:{root}"}, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    if version == "3.9" and "tests/jobstatus" not in done.stderr and done.returncode:
        pytest.skip("no Python 3.9")
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"add_uncom_time": 0}, "kill"),
        ({"add_final_exp_waste": 0}, "drain"),
        ({"used_cpu": 99}, "used"),
        ({"last_job_start": 10**6}, "start"),
        ({"first_exp_job_end": 0}, "ends"),
        ({"add_uncom_time": -1}, "core-seconds"),
    ],
)
def test_the_count_finds_what_is_wrong(monkeypatch, wrong, fault):
    right = World.status
    monkeypatch.setattr(World, "status", lambda world, now: replace(right(world, now), **wrong))
    assert fault in {one.split()[1] for one in faults_of(range(100))}


def test_the_formulas_of_the_draft():
    found = expect(now=1_500)
    assert found == Estimate(1_500, 3_500, 2 * 500 + 700, 100 + 6 * 500)


def test_a_first_end_in_the_past_adds_nothing_and_is_flagged():
    found = expect(now=2_500)
    assert (found.draining_waste, found.remaining_expected, found.flags) == (700, 500, ("overdue",))
    assert expect(now=2_000).flags == ()


def test_a_last_end_in_the_past_leaves_no_time():
    assert expect(now=3_500).remaining_expected == 0
    for now, flags in ((3_000, ()), (3_001, ("overdue",))):
        assert expect(replace(STATUS, first_exp_job_end=None), now=now).flags == flags


@pytest.mark.parametrize(("now", "flags"), [(996, ()), (995, ()), (994, ("skew",)), (700, ("skew",))])
def test_a_start_in_the_future_adds_nothing(now, flags):
    found = expect(now=now)
    assert (found.kill_waste, found.flags) == (100, flags)


@pytest.mark.parametrize(
    ("key", "unknown"),
    [
        ("last_job_start", {"kill_waste"}),
        ("first_exp_job_end", {"draining_waste"}),
        ("last_exp_job_end", {"remaining_expected"}),
        ("last_max_job_end", {"remaining_max"}),
        ("add_uncom_time", {"kill_waste"}),
        ("add_final_exp_waste", {"draining_waste"}),
    ],
)
def test_what_is_not_published_leaves_its_formula_unknown_and_no_other(key, unknown):
    found = expect(replace(STATUS, **{key: None}))
    answers = "remaining_expected remaining_max draining_waste kill_waste".split()
    assert {name for name in answers if getattr(found, name) is None} == unknown


def test_without_used_cores_nothing_is_known():
    assert expect(replace(STATUS, used_cpu=None)) == Estimate(flags=("silent",))


def test_without_an_enforced_end_the_batch_systems_holds():
    assert expect(replace(STATUS, last_max_job_end=None), batch_ends=4_000).remaining_max == 2_500


def test_with_unknown_cores_draining_is_a_lower_bound():
    found = expect(allocated=None)
    assert (found.draining_waste, found.flags) == (700, ("allocated-unknown",))
    assert found.kill_waste == 3_100


def test_a_kill_loses_no_more_than_the_job_computed():
    found = expect(replace(STATUS, add_uncom_time=10**15))
    assert (found.kill_waste, found.flags) == (8 * 1_000, ("kill-clamped",))
    found = expect(replace(STATUS, last_job_start=0))
    assert (found.kill_waste, found.flags) == (100 + 6 * 1_000, ("kill-clamped",))


def test_a_drain_loses_no_more_than_all_cores_until_the_enforced_end():
    found = expect(replace(STATUS, add_final_exp_waste=10**15))
    assert (found.draining_waste, found.flags) == (8 * 3_500, ("draining-clamped",))
    found = expect(replace(STATUS, add_final_exp_waste=10**15, last_max_job_end=None), batch_ends=2_000)
    assert (found.draining_waste, found.remaining_expected) == (8 * 500, 500)


def test_no_job_stays_beyond_its_end_in_the_batch_system():
    found = expect(batch_ends=2_600)
    assert (found.remaining_expected, found.remaining_max) == (1_100, 1_100)
    assert found.flags == ("beyond-batch-end",)


def test_a_suspended_job_loses_what_it_worked_at_most():
    # It was started 1,000 s ago and was suspended for all of the last 500 and 100 before.
    found = expect(suspended=600)
    assert (found.kill_waste, found.flags) == (100 + 6 * 400, ("suspended",))


@pytest.mark.parametrize(("age", "flags"), [(None, ()), (600, ()), (601, ("stale",)), (3_600, ("stale",))])
def test_old_values_are_flagged(age, flags):
    assert expect(age=age) == replace(expect(), flags=flags)


def test_values_of_more_than_an_hour_are_as_if_not_published():
    assert expect(age=3_601) == Estimate(flags=("silent",))


def test_an_idle_pilot_loses_what_is_pending_and_leaves_at_once():
    idle = said(now=900, pending_waste=50)
    assert idle == Status(0, 900, 900, 900, 900, 50, 0, can_postpone_last_job=True, priority_factor=0)
    assert expect(idle, now=1_000) == Estimate(0, 0, 0, 50)


def test_a_negative_sum_is_nothing_and_flagged():
    # The literal start of the last job with a later commit: what foreign writers may publish.
    found = expect(replace(STATUS, add_uncom_time=-4_000))
    assert (found.kill_waste, found.flags) == (0, ("kill-negative",))
    assert expect(replace(STATUS, add_uncom_time=-1_000)).kill_waste == 2_000


def test_starts_are_rounded_down_and_ends_up():
    status = said(replace(run(cores=1, started=100.9, ends=1_000.1, limit=2_000.1), committed=200.9))
    assert (status.last_job_start, status.first_exp_job_end, status.last_max_job_end) == (200, 1_001, 2_001)


def test_the_enforced_end_is_that_of_the_slot_or_of_each_payload():
    assert said(run(limit=3_000), run(limit=2_000)).last_max_job_end == 3_000
    assert said(run(limit=3_000), run()).last_max_job_end is None
    assert said(run(limit=3_000), run(), slot_ends=2_500).last_max_job_end == 2_500
    assert said(run(), slot_ends=900).first_exp_job_end == 900


def test_a_slot_that_has_ended_is_no_end_in_the_past():
    status = said(run(), slot_ends=400, now=500.5)
    assert (status.first_exp_job_end, status.last_exp_job_end, status.last_max_job_end) == (501, 501, 501)


def test_an_estimate_that_has_passed_is_made_anew_and_stays():
    # Expected to run 900 s until 1,000: 300 more, then 600, then 1,200.
    ends = [said(run(), now=now).first_exp_job_end for now in (999, 1_000, 1_299, 1_300, 1_899, 1_900)]
    assert ends == [1_000, 1_300, 1_300, 1_900, 1_900, 3_100]
    assert said(run(started=0, ends=8_000), now=8_000).first_exp_job_end == 10_000
    assert said(run(limit=1_100), now=1_000).first_exp_job_end == 1_100


def test_more_payloads_than_cores_are_no_more_than_all():
    status = said(run(cores=6), run(cores=6, ends=1_100))
    assert (status.used_cpu, status.add_final_exp_waste) == (8, 8 * 100 - 6 * 100)


WHEN = st.floats(0, 1_000)
PAYLOADS = st.lists(
    st.builds(
        lambda cores, started, ran, rest: RunningPayload(
            cores, started, min(started + ran, 1_000), 1_000 + rest
        ),
        st.integers(1, 4),
        WHEN,
        WHEN,
        st.floats(-500, 1_000),
    ),
    min_size=1,
    max_size=4,
)


@given(PAYLOADS, st.integers(0, 300))
def test_between_seconds_no_loss_is_hidden_and_none_is_exaggerated(payloads, later):
    status = said(*payloads, allocated=16, now=1_000)
    assert repair(status, now=1_000, allocated=16, strict=True) == (status, ())
    now = 1_000 + later
    lost = sum(one.cores * (now - one.committed) for one in payloads)
    found = expect(status, now=now, allocated=16, jobstart=None)
    assert lost - 1e-6 <= found.kill_waste <= lost + status.used_cpu
