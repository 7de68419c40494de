"""What was measured lately: waits of pilots in their queues, and starts of jobs."""

from __future__ import annotations

import pytest

from lodesman.decide.explain.starts import JobsInPilots, StartRate
from lodesman.server.loops.traffic import JobsOfLate, PilotTraffic, StartsOfLate, _some
from lodesman.server.store.read.pilots import LivePilot, running_attempts
from lodesman.server.store.read.why import waiting_job
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.wire.nodes import QueueId

HERE = QueueId("S", "c", "q")
FULL, FREE = {"S/c/q": {"slots": 1, "others": 0}}, {"S/c/q": {"slots": 9, "others": 0}}


def pilot(number, submitted=0.0, joined=None):
    state = "Submitted" if joined is None else "Running"
    return LivePilot(number, state, "lab", HERE, "{}", "{}", submitted, submitted, joined, joined, None, 0, 0)


def test_as_many_as_there_are_slots_are_expected_the_longest_waiting_first():
    traffic = PilotTraffic()
    rows = [pilot(3), pilot(1, joined=1.0), pilot(2)]
    assert traffic.take(rows, {"S/c/q": {"slots": 2, "others": 0}}, 10.0) == {2}
    assert traffic.take(rows, FREE, 10.0) == {2, 3}
    assert traffic.take(rows, FULL, 10.0) == set()
    assert traffic.take(rows, {}, 10.0) == set()
    assert (traffic.own[HERE].running, traffic.own[HERE].waiting) == (1, 2)


def test_where_slots_are_not_known_recent_waits_tell():
    traffic = PilotTraffic()
    traffic.take([pilot(1), pilot(2)], {}, 10.0)
    assert traffic.take([pilot(1, joined=20.0), pilot(2)], {}, 20.0) == {2}
    assert traffic.take([pilot(1, joined=20.0), pilot(2)], {}, 61.0) == set(), "it waits for longer"
    slow = PilotTraffic()
    assert slow.take([pilot(1, joined=100.0), pilot(2, 90.0)], {}, 110.0) == set()


def test_pilots_that_found_a_free_slot_say_nothing_of_full_ones():
    traffic = PilotTraffic()
    traffic.take([pilot(1), pilot(2)], FREE, 1.0)
    assert traffic.take([pilot(1, joined=2.0), pilot(2)], FULL, 3.0) == set()
    # One that joins while all are taken does: its like leave soon.
    assert traffic.take([pilot(2, joined=20.0), pilot(4, 10.0), pilot(5, 10.0)], FULL, 21.0) == {4}
    assert traffic.take([pilot(2, joined=20.0), pilot(4, 80.0)], FULL, 90.0) == set(), (
        "not in the last minute"
    )


# --- starts -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def submit(base, make_key):
    def put(count, **changes):
        key = make_key(**changes)
        cohort = PreparedCohort(key=key, template="{}", expand=False, max_attempts=1, runs=((0, count),))
        base.do(Submit(base.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="", members=None, count=count,
            cohorts=(cohort,),
        )))  # fmt: skip
        return base.live.queues.index.find(key)

    return put


def start(base, tq_id, *times):
    with base.writer:
        for at in times:
            base.writer.execute(
                """INSERT INTO attempt (job_id, number, tq_id, pilot_id, claim_token, site, claimed_at)
                VALUES (1, 1, ?, 1, 't', 'S', ?)""", (tq_id, at),
            )  # fmt: skip


def test_starts_of_the_last_hour_are_counted_from_the_first_of_them(base, submit):
    one, two = submit(5), submit(5, cores=2)
    start(base, one, 10.0, 20.0, 5_000.0, 5_100.0)
    start(base, two, 5_200.0)
    found = StartsOfLate(base.db)
    found.read(5_300.0)
    assert found.of(one, 5_300.0) == StartRate(1, 300.0, 200.0)
    assert found.of(two, 5_300.0) == StartRate(0, 100.0, 100.0)
    assert found.of(("lab", "physics"), 5_300.0) == StartRate(2, 300.0, 100.0)
    assert found.of(99, 5_300.0) == found.of(None, 5_300.0) == StartRate(0, 0.0)
    start(base, one, 5_301.0)
    found.read(5_302.0)
    assert found.of(one, 5_302.0) == StartRate(2, 302.0, 1.0)
    found.read(8_700.0)
    assert found.of(one, 8_700.0).starts == 1
    found.read(9_000.0)
    assert found.of(one, 9_000.0) == StartRate(0, 0.0)


def test_time_in_which_none_of_them_waited_does_not_count(base, submit, make_key):
    """A start each ten seconds, then an idle half hour, then again: nobody was slow."""
    one = submit(5)
    found = StartsOfLate(base.db)
    found.read(5.0)
    start(base, one, 10.0, 20.0, 30.0)
    waits = [(one, make_key(), 5)]
    found.read(40.0, waits)
    assert found.of(one, 40.0) == StartRate(2, 30.0, 10.0)
    found.read(50.0, ())
    for now in (60.0, 1_000.0):
        assert found.of(one, now) == found.of(("lab", "physics"), now) == StartRate(2, 40.0, 20.0)
    found.read(1_850.0, waits)
    assert found.of(one, 1_860.0) == StartRate(2, 50.0, 30.0)
    start(base, one, 1_860.0, 1_870.0)
    found.read(1_880.0, waits)
    assert found.of(one, 1_880.0) == found.of(("lab", "physics"), 1_880.0) == StartRate(4, 70.0, 10.0)
    found.read(9_000.0, ())
    assert found._idle == found._idle_since == {}


def test_they_are_read_in_portions(base, submit, monkeypatch):
    monkeypatch.setattr("lodesman.server.loops.traffic._AT_ONCE", 2)
    one = submit(1)
    start(base, one, *range(100, 105))
    found = StartsOfLate(base.db)
    seen = []
    for _ in range(4):
        found.read(200.0)
        seen.append(found.of(one, 200.0).starts)
    assert seen == [1, 3, 4, 4]


def test_the_id_of_the_nth_job_that_waits(base, submit):
    """As claims take them: rows and members by id, without holes and what was taken."""
    tq_id = submit(5)
    submit(3)
    with base.writer:
        base.writer.execute("INSERT INTO hole VALUES ((SELECT min(id) FROM cohort), 1, 3, 'Held', '', 0, 0)")
        base.writer.execute("UPDATE cohort SET cursor = 1 WHERE base = 1")
    assert [waiting_job(base.db, tq_id, n) for n in range(6)] == [4, 5, 6, 7, 8, 1 << 53]
    assert waiting_job(base.db, 99, 0) == 1 << 53


# --- jobs that run, and that ran ----------------------------------------------------------------------------------------


def end(base, *numbers, at, outcome="Done"):
    with base.writer:
        for number in numbers:
            base.writer.execute(
                "UPDATE attempt SET ended_at = ?, outcome = ? WHERE id = ?", (at, outcome, number)
            )


class Traffic:
    """What the snapshot does at each refresh."""

    def __init__(self, base):
        self.base, self.starts, self.jobs = base, StartsOfLate(base.db), JobsOfLate(base.db)

    def read(self, now):
        attempts = running_attempts(self.base.db)
        self.jobs.read(attempts, self.starts.read(now), self.starts)
        return {who: [(one.begun, one.seconds) for one in ended] for who, ended in self.jobs._ended.items()}


def test_each_job_that_ended_is_seen_once_however_short(base, submit):
    one, two = submit(9), submit(9, cores=2)
    seen = Traffic(base)
    start(base, one, 10.0, 11.0)
    assert seen.read(12.0) == {}
    start(base, two, 13.0, 14.0, 15.0)
    end(base, 1, 3, at=16.0)
    end(base, 4, at=15.5, outcome="Released")
    found = seen.read(17.0)
    assert found[one] == [(10.0, 6.0)], "it had been seen to run"
    found = seen.read(18.0)
    assert found[two] == [(13.0, 3.0)], (
        "it began and ended between two readings; what was given back is no job"
    )
    end(base, 2, 5, at=19.0)
    found = seen.read(20.0)
    assert (found[one], found[two]) == ([(10.0, 6.0), (11.0, 8.0)], [(13.0, 3.0), (15.0, 4.0)])
    assert found["lab", "physics"] == [(10.0, 6.0), (13.0, 3.0), (11.0, 8.0), (15.0, 4.0)]
    assert seen.read(30.0) == found


def test_a_task_queue_of_which_hardly_any_ended_goes_by_its_group(base, submit, make_key):
    many, few, other = submit(20), submit(5, cores=2), submit(5, group="bio")
    seen = Traffic(base)
    start(base, many, *range(10))
    start(base, few, 10.0)
    start(base, other, 10.0)
    end(base, *range(1, 11), at=100.0)
    seen.read(100.0), seen.read(100.0)
    assert 80 < seen.jobs._lasts(few, 100.0).mean < 150
    assert seen.jobs._lasts(few, 100.0).evidence > 5
    assert seen.jobs._lasts(other, 100.0).evidence == 0.0
    there = JobsInPilots(1, {(few, 2): [10.0]})
    found = seen.jobs.slots(there, make_key(), many, now=100.0, free=0, soon=0)
    assert found.jobs == 1
    assert seen.jobs.slots(there, make_key(), many, now=100.4, free=0, soon=0) is found, (
        "it is worked out once"
    )
    assert (
        seen.jobs.slots(
            JobsInPilots(2, {(other, 1): [10.0]}), make_key(group="bio"), other, now=100.0, free=0, soon=0
        ).start(1)
        is None
    )


def test_what_limits_let_run_is_averaged(base, submit):
    """Two at a time of late; just now one."""
    one = submit(40)
    seen = Traffic(base)
    assert seen.jobs.own(one, 0.0).start(1) is None
    for number in range(20):
        start(base, one, 10.0 * (number // 2))
        end(base, number + 1, at=10.0 * (number // 2) + 10.0)
    start(base, one, 100.0)
    seen.read(101.0), seen.read(101.0)
    low, high = seen.jobs.own(one, 101.0).start(10)
    assert low < 50.0 < high < 90.0


def test_very_many_jobs_are_judged_by_some_of_them():
    assert _some([3.0, 1.0, 2.0]) == [1.0, 2.0, 3.0]
    some = _some(range(10_000))
    assert (len(some), some[0]) == (64, 0)
    assert some[-1] > 9_600
    assert len(_some(range(10_000), kinds=8)) == 8


def test_of_very_many_task_queues_the_largest_stand_for_all(base, submit, make_key):
    numbers = [submit(3, cores=cores) for cores in range(1, 31)]
    seen = Traffic(base)
    for number in numbers:
        start(base, number, 0.0, 0.0)
    end(base, *range(1, 61, 2), at=10.0)
    seen.read(10.0), seen.read(10.0)
    there = JobsInPilots(1, {(number, 1): [5.0] for number in numbers})
    found = seen.jobs.slots(there, make_key(), numbers[0], now=10.0, free=0, soon=0)
    assert found.jobs == 30
    low, high = found.start(300)
    assert low < 100.0 < high < 200.0
    assert seen.jobs.slots(there, make_key(cores=2), numbers[0], now=10.0, free=0, soon=0).jobs == 15
