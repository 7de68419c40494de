"""Kill, hold, release, reschedule, delete: on rows, on members, on slices; and an array is like its jobs."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.server.writer.control import Control
from lodesman.wire.jobs import NotChanged
from lodesman.wire.service import RepairCounts

CLEAN = asdict(RepairCounts())


def test_a_slice_of_an_array_is_killed_at_once(house):
    house.submit(1_000_000)
    out = house.control("kill", 11, 999_990)
    assert (out.changed, out.refused) == (999_980, 0)
    assert house.counts() == {"Waiting": 20, "Killed": 999_980}
    assert house.reader.execute("SELECT count(*) FROM job").fetchone() == (0,)
    pilot = house.pilot()
    ids = [c.job_id for c in house.claim(pilot, 50)]
    assert ids == [*range(1, 11), *range(999_991, 1_000_001)]


def test_held_members_wait_no_more_and_come_back(house):
    house.submit(10)
    house.control("hold", 3, 5, reason="wait for data")
    assert (house.state(4), house.job(4).reason) == ("Held", "wait for data")
    pilot = house.pilot()
    assert [c.job_id for c in house.claim(pilot, 4)] == [1, 2, 6, 7]
    assert house.control("release", 1, 10).changed == 3
    assert house.counts() == {"Waiting": 6, "Matched": 4}
    assert sorted(c.job_id for c in house.claim(pilot, 10)) == [3, 4, 5, 8, 9, 10]
    assert house.reconcile() == CLEAN


def test_part_of_a_hole_can_be_released(house):
    house.submit(10)
    house.control("hold", 1, 10)
    assert house.control("release", 4, 6).changed == 3
    assert house.counts() == {"Waiting": 3, "Held": 7}
    assert house.state(5) == "Waiting"
    assert house.state(7) == "Held"
    assert house.control("kill", 1, 10).changed == 10
    assert house.counts() == {"Killed": 10}


def test_a_hole_that_changes_has_the_time_and_reason_of_its_new_state(house):
    house.submit(6)
    house.clock = 2_000.0
    house.control("hold", 1, 6, reason="wait for data")
    house.clock = 3_000.0
    house.control("kill", 3, 4, reason="no data came")
    house.clock = 4_000.0
    house.control("delete", 4, reason="")
    told = [(house.state(n), house.job(n).since, house.job(n).reason) for n in range(2, 6)]
    held = ("Held", 2_000.0, "wait for data")
    assert told == [held, ("Killed", 3_000.0, "no data came"), ("Deleted", 4_000.0, ""), held]


def test_killed_members_can_be_rescheduled(house):
    house.submit(3)
    house.control("kill", 1, 3)
    assert house.control("reschedule", 2).changed == 1
    assert [c.job_id for c in house.claim(house.pilot(), 5)] == [2]


def test_a_running_job_is_killed_and_its_pilot_gets_a_stop_order(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Running", cause="")
    assert house.control("kill", 1, reason="wrong input").changed == 1
    assert house.state(1) == "Killed"
    assert house.live.pilots.stop_orders[pilot] == {(1, 1): "wrong input"}
    assert house.report(pilot, claimed, "Failed", cause="killed").accepted
    assert house.live.pilots.stop_orders[pilot] == {}
    assert house.state(1) == "Killed"
    assert house.reconcile() == CLEAN


def test_a_running_job_is_not_held(house):
    house.submit()
    house.claim(house.pilot())
    out = house.control("hold", 1)
    assert (out.changed, out.refused) == (0, 1)
    assert out.examples == [NotChanged(1, "it is Matched")]


def test_a_failed_job_is_rescheduled(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Failed", cause="exit", exit_code=1)
    assert house.control("reschedule", 1).changed == 1
    assert [(c.job_id, c.attempt) for c in house.claim(pilot)] == [(1, 2)]


def test_deleted_jobs_are_out_of_the_way(house):
    house.submit(3)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed)
    assert house.control("delete", 1, 3).changed == 3
    assert house.counts() == {"Deleted": 3}
    assert house.control("release", 1, 3).refused == 3


def test_only_what_the_rule_allows_is_touched(house):
    house.submit(2, key=house.key(owner="ann"))
    house.submit(2, key=house.key(owner="bob"))
    out = house.control("kill", 1, 4, may=lambda owner, group, vo: owner == "bob")
    assert out.changed == 2
    assert house.counts() == {"Waiting": 2, "Killed": 2}
    with pytest.raises(NotFound, match="may not see it"):
        house.control("kill", 1, may=lambda *_: False)


def test_actions_that_do_not_exist(house):
    house.submit()
    with pytest.raises(InvalidRequest):
        house.control("explode", 1)


def test_a_killed_job_is_not_waiting_after_a_restart(house):
    house.submit(5)
    house.submit(2, rows=True)
    house.control("kill", 2, 3)
    house.control("hold", 6)
    house.restart()
    assert [c.job_id for c in house.claim(house.pilot(), 9)] == [1, 4, 5, 7]


def test_events_of_a_member_include_those_of_its_slice(house):
    house.submit(10)
    house.control("hold", 3, 5, reason="x")
    house.control("release", 4)
    pilot = house.pilot()
    house.claim(pilot, 10)
    assert house.events(1) == ["Submitted", "Matched"]
    assert house.events(4) == ["Submitted", "Held", "Waiting", "Matched"]
    assert house.events(5) == ["Submitted", "Held"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "kill", "hold", "release", "reschedule", "done", "fail", "lose", "late"]),
        st.integers(1, 8),
        st.integers(1, 8),
    ),
    max_size=14,
)


def act(house, step, pilots, held):
    """One step of the game on a house; what a user sees of it."""
    action, first, last = step
    first, last = min(first, last), max(first, last)
    if action == "claim":
        pilot = pilots[first % len(pilots)]
        found = house.claim(pilot, last - first + 1)
        held.extend((pilot, claimed) for claimed in found)
        return sorted(c.job_id for c in found)
    if action in ("done", "fail", "late"):
        if not held:
            return None
        pilot, claimed = held[first % len(held)]
        state, cause = ("Failed", "exit") if action == "fail" else ("Done", "ok")
        return house.report(pilot, claimed, state, cause=cause)
    if action == "lose":
        ended = house.end_pilot(pilots[first % len(pilots)])
        pilots[first % len(pilots)] = house.pilot()
        return ended
    out = house.control(action, first, last)
    return out.changed, out.refused


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_every_operation_gives_the_same_on_an_array_as_on_single_jobs(tmp_path_factory, house_of, steps):
    seen = []
    for rows in (False, True):
        house = house_of(tmp_path_factory.mktemp("game"))
        house.live.rng = random.Random(1)
        house.submit(8, rows=rows)
        pilots, held = [house.pilot(), house.pilot()], []
        answers = [act(house, step, pilots, held) for step in steps]
        states = [house.state(job_id) for job_id in range(1, 9)]
        faults = house.reconcile()
        waiting = house.live.queues.index.waiting(1) if house.live.queues.index.has(1) else 0
        counts = house.counts()
        house.close()
        assert faults == CLEAN
        assert counts.get("Waiting", 0) == states.count("Waiting") == waiting
        assert sum(counts.values()) == 8
        seen.append((answers, states))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("action", ["release", "kill"])
@pytest.mark.parametrize("single", [6, 9, 2])
def test_a_range_and_a_single_job_of_one_hole(house, action, single):
    """What the range leaves of the hole is read before the single job is changed."""
    house.submit(12)
    house.control("hold", 1, 12)
    ranges = (
        (range(3, 6), range(single, single + 1)) if single > 5 else (range(single, single + 1), range(3, 6))
    )
    out = house.do(Control(house.live, action, ranges, "because", lambda *_: True))
    assert (out.changed, out.refused) == (4, 0)
    assert house.counts() == {"Held": 8, "Waiting" if action == "release" else "Killed": 4}
    house.control("release", 1, 12)
    claimed = {one.job_id for one in house.claim(house.pilot(), 12)}
    assert claimed == {*range(1, 13)} - (set() if action == "release" else {3, 4, 5, single})
    assert house.reconcile() == CLEAN
