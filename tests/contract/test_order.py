"""Jobs that wait for other jobs: they start when those have ended, are held or killed if one fails, and lose nothing."""

import random

import pytest
from tests.contract.conftest import NOTHING
from tests.contract.test_forget import dangling, forget_all, later, run_one
from tests.contract.test_stop_orders import rolled_back

from lodesman.base.errors import InvalidJob, TooLarge
from lodesman.languages.jobs import JobSpec
from lodesman.languages.jobs.parents import ParentRange
from lodesman.server.store.journal import Change
from lodesman.server.store.order import dependencies
from lodesman.server.writer import order
from lodesman.server.writer.order import free_forgotten
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit


def settled(house):
    """What is left to do at the ends of batches is done, and all counts are right."""
    while house.live.order.due or house.live.order.settling:
        house.do(NOTHING)
    assert not any(house.reconcile().values())


@pytest.fixture(autouse=True)
def right_in_the_end(house):
    yield
    settled(house)
    assert len(house.live.order) == house.reader.only("SELECT count(*) FROM dependency")[0]


def states(house, first, last):
    settled(house)
    return [house.state(job) for job in range(first, last + 1)]


def claimed(house, pilot, count=9):
    return [one.job_id for one in house.claim(pilot, count)]


@pytest.mark.parametrize("ok", [False, True])
def test_a_job_starts_when_those_before_it_have_ended(house, ok):
    house.submit(count=2)
    child, pilot = house.after(1, 2, ok=ok), house.pilot()
    first, second = house.claim(pilot, 9)
    assert (first.job_id, second.job_id, house.state(child)) == (1, 2, "Waiting")
    house.report(pilot, first)
    assert not house.claim(pilot)
    house.report(pilot, second)
    assert claimed(house, pilot) == [child]
    assert dependencies(house.reader) == []
    assert house.events(child)[:2] == ["Waiting", "Waiting"]


def test_a_parked_pilot_is_woken_by_the_end_of_the_last_parent(house):
    house.submit()
    child, pilot, other = house.after(1), house.pilot(), house.pilot()
    (parent,) = house.claim(pilot)
    got = []
    house.journal.post(house.claim_command(other, wait=True, answer=got.append), got.append)
    house.do(NOTHING)
    assert got == []
    house.report(pilot, parent)
    house.do(NOTHING)  # answers of claims that waited come last
    assert [one.job_id for one in got[0]] == [child]


def test_parents_that_have_ended_already_are_not_waited_for(house):
    house.submit(count=2)
    pilot = house.pilot()
    run_one(house, pilot), run_one(house, pilot)
    child = house.after((1, 2))
    assert claimed(house, pilot) == [child]


@pytest.mark.parametrize(("cancel", "state"), [(False, "Held"), (True, "Killed")])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("end", ["fail", "kill", "kill-running", "delete"])
def test_a_parent_that_fails_holds_or_cancels(house, cancel, state, rows, end):
    house.submit(count=3)
    child, pilot = house.after((1, 3), count=4, rows=rows, cancel=cancel), house.pilot()
    if end == "fail":
        run_one(house, pilot, state="Failed", cause="exit", exit_code=4)
        words = "job 1, which it waited for, is Failed: exit code 4"
    elif end == "kill-running":
        house.claim(pilot)
        house.control("kill", 1)
        words = "job 1, which it waited for, is Killed: because"
    else:
        house.control(end, 2)
        words = (
            f"job 2, which it waited for, is {end.capitalize()}{'d' if end == 'delete' else 'ed'}: because"
        )
    assert states(house, child, child + 3) == [state] * 4
    assert {house.job(child + n).reason for n in range(4)} == {words}
    if not cancel:
        house.control("release", child, child + 3)
        assert set(states(house, child, child + 3)) == {"Waiting"}
        assert child in claimed(house, pilot)


def test_after_goes_by_any_end(house):
    house.submit(count=3)
    child, pilot = house.after((1, 3), ok=False), house.pilot()
    run_one(house, pilot, state="Failed", cause="exit", exit_code=4)
    house.control("kill", 2, 3)
    assert claimed(house, pilot) == [child]


def test_what_is_deleted_after_it_was_done_was_done(house):
    house.submit(count=2)
    child, pilot = house.after((1, 2)), house.pilot()
    first, second = house.claim(pilot, 2)
    house.report(pilot, second)
    house.control("delete", 2)
    house.report(pilot, first)
    assert claimed(house, pilot) == [child]


def test_what_failed_and_was_rescheduled_in_time_counts_by_its_last_end(house):
    """After a failure nobody waits any more: what is rescheduled later frees nothing by itself."""
    house.submit()
    child, pilot = house.after(1), house.pilot()
    run_one(house, pilot, state="Failed", cause="exit", exit_code=4)
    house.control("reschedule", 1)
    run_one(house, pilot)
    assert states(house, child, child) == ["Held"]
    house.control("release", child)
    assert claimed(house, pilot) == [child]


def test_jobs_after_jobs_after_jobs(house):
    house.submit(count=2)
    second = house.after((1, 2), count=2)
    third, fourth, pilot = house.after(second, second + 1), house.after(second, cancel=True), house.pilot()
    assert claimed(house, pilot) == [1, 2]
    house.control("kill", second)
    assert states(house, second, fourth) == ["Killed", "Waiting", "Held", "Killed"]
    assert house.job(fourth).reason.startswith(f"job {second}, which it waited for")
    assert third == second + 2


@pytest.mark.parametrize("rows", [False, True])
def test_each_member_waits_for_its_own(house, rows):
    house.submit(count=100)
    child, pilot = house.after((1, 100), by_index=True, count=100, rows=rows), house.pilot(cores=128)
    order_ = list(range(1, 101))
    random.Random(3).shuffle(order_)
    house.control("kill", 41, 50)
    assert states(house, child + 39, child + 50) == ["Waiting", *["Held"] * 10, "Waiting"]
    assert house.job(child + 44).reason.startswith("job 4")
    parents = {}
    while len(parents) < 90:
        parents |= {one.job_id: one for one in house.claim(pilot, 8)}
    done = [n for n in order_ if n in parents]
    for n in done[:60]:
        house.report(pilot, parents[n])
    found = []
    while more := claimed(house, pilot, 8):
        found += more
    assert sorted(found) == sorted(child + n - 1 for n in done[:60])
    for n in done[60:]:
        house.report(pilot, parents[n])
    while more := claimed(house, pilot, 8):
        found += more
    assert len(found) == len(set(found)) == 90
    settled(house)
    assert dependencies(house.reader) == []
    if not rows:  # holes and runs do not pile up
        assert house.reader.only("SELECT count(*) FROM cohort")[0] < 20
        assert house.reader.only("SELECT count(*) FROM hole")[0] < 20


def test_a_large_array_waits_by_index_without_rows(house):
    house.submit(count=1_000_000)
    child = house.after((1, 1_000_000), by_index=True, count=1_000_000)
    assert house.reader.only("SELECT count(*) FROM job")[0] == 0
    assert house.reader.only("SELECT count(*) FROM dependency")[0] == 1
    pilot = house.pilot()
    for one in house.claim(pilot, 8):
        house.report(pilot, one)
    house.control("kill", 500_001, 1_000_000)
    settled(house)
    assert house.counts() == {"Waiting": 999_992, "Done": 8, "Killed": 500_000, "Held": 500_000}
    assert house.state(child) == "Waiting"
    assert house.state(child + 999_999) == "Held"
    house.restart()
    settled(house)
    assert min(claimed(house, pilot, 8)) == 9


def test_what_was_held_by_hand_stays_held_when_its_parents_end(house):
    house.submit()
    child, pilot = house.after(1, count=4), house.pilot()
    house.control("hold", child)
    house.control("kill", child + 1)
    run_one(house, pilot)
    assert states(house, child, child + 3) == ["Held", "Killed", "Waiting", "Waiting"]
    assert claimed(house, pilot) == [child + 2, child + 3]
    house.control("release", child)
    house.control("reschedule", child + 1)
    assert claimed(house, pilot) == [child, child + 1]


@pytest.mark.parametrize("rows", [False, True])
def test_many_jobs_are_freed_in_portions(house, monkeypatch, rows):
    monkeypatch.setattr("lodesman.server.writer.control.MOST_ROWS", 10)
    monkeypatch.setattr(order, "_MOST_ROWS", 10)
    house.submit(count=35, rows=rows)
    child, pilot = house.after((1, 35), count=45, rows=rows), house.pilot(cores=128)
    parents = []
    while more := house.claim(pilot, 8):
        parents += more
    for one in parents:
        house.report(pilot, one)
    settled(house)
    found = []
    while more := claimed(house, pilot, 8):
        found += more
    assert found == list(range(child, child + 45))


def test_only_jobs_that_exist_already_and_are_ones_own_are_waited_for(house):
    house.submit(count=2)
    house.submit(key=house.key(owner="bob"))
    for wrong in ((1, 3), (2, 9), (4, 4), (99, 99)):
        with pytest.raises(InvalidJob, match="not found"):
            house.after(wrong)
    assert house.after((1, 2)) == 4
    assert house.reader.only("SELECT count(*) FROM submission")[0] == 3


def test_what_cannot_be_waited_for_by_index_is_refused():
    for spec in (
        JobSpec(executable="x", after_ok=("1-3:index",)),
        JobSpec(executable="x", after_ok=("1-2:index",), after=("7",)),
        JobSpec(executable="x", after=("1-2:index", "7-8:index")),
    ):
        with pytest.raises(InvalidJob):
            order.waits_of(spec, range(2))
    found = order.waits_of(JobSpec(executable="x", after=("5-6:index",)), range(2))
    assert found.after == [ParentRange(5, 6, True)]


def test_too_many_submissions_are_refused(house, monkeypatch):
    monkeypatch.setattr(order, "MOST_PARENTS", 3)
    for _ in range(5):
        house.submit()
    with pytest.raises(TooLarge, match="submissions"):
        house.after((1, 5))
    assert house.after((1, 3)) == 6


def test_a_batch_that_fails_leaves_everything_as_it_was(house):
    house.submit(count=2)
    child, pilot = house.after((1, 2)), house.pilot()
    first, second = house.claim(pilot, 2)
    house.report(pilot, first)
    rolled_back(house, Submit(house.live, PreparedSubmission(
        owner="ann", group="g", vo="vo", name="", form="json", record="", members=None, count=1,
        cohorts=(PreparedCohort(key=house.key(waits_for_jobs=True), template="{}", expand=False, max_attempts=3,
                                runs=((0, 1),)),),
        waits=(order.WaitRule(0, 1, [], [ParentRange(2, 2)], False),),
    )))  # fmt: skip
    assert len(house.live.order) == 1
    house.report(pilot, second)
    assert claimed(house, pilot) == [child]


ENDED = ("Done", "Failed", "Killed", "Deleted")


class Walk:
    """Jobs in any order, and of each that waits for others which these are."""

    def __init__(self, house, seed):
        self.house, self.rng = house, random.Random(seed)
        self.pilot, self.live = house.pilot(cores=64), {}
        self.jobs, self.of = [], {}

    def submit(self):
        found = self.house.submit(self.rng.randint(1, 3))
        self.jobs += range(found.first, found.first + found.count)

    def depend(self):
        of = sorted(self.rng.sample(self.jobs, min(len(self.jobs), 2)))
        ok, count = self.rng.random() < 0.5, self.rng.randint(1, 3)
        child = self.house.after(*of, ok=ok, count=count, rows=self.rng.random() < 0.5)
        self.of |= {child + n: (of, ok) for n in range(count)}
        self.jobs += range(child, child + count)

    def act(self):
        self.house.control(self.rng.choice(["kill", "hold", "release"]), self.rng.choice(self.jobs))

    def run(self):
        for one in self.house.claim(self.pilot, 2):
            self.live[one.job_id] = one
            assert all(self.house.state(parent) in ENDED for parent in self.of.get(one.job_id, ((), True))[0])
        for job in [*self.live]:
            if self.rng.random() < 0.6:
                end = ("Done", "ok") if self.rng.random() < 0.8 else ("Failed", "exit")
                self.house.report(self.pilot, self.live.pop(job), end[0], cause=end[1])

    def check(self):
        """What waits in a task queue of its kind has a parent that has not ended, and none that has failed."""
        for child, (of, ok) in self.of.items():
            job, ends = self.house.job(child), [self.house.state(one) for one in of]
            if job.state == "Waiting":
                waits = self.house.live.queues.index.key(job.task_queue).waits_for_jobs
                assert waits == (not all(end in ENDED for end in ends)), (child, of, ends)
                assert not (ok and waits and {"Failed", "Killed"} & set(ends)), (child, of, ends)


@pytest.mark.parametrize(
    "seed",
    [0, 1, *(pytest.param(seed, marks=(pytest.mark.slow, pytest.mark.stores)) for seed in range(2, 6))],
)
def test_any_walk_with_restarts_frees_exactly_what_may_start(house, seed):
    walk = Walk(house, seed)
    walk.submit()
    for _ in range(40):
        walk.rng.choice([walk.submit, walk.depend, walk.act, walk.house.restart, walk.run, walk.run])()
        settled(house)
        walk.check()


def test_a_batch_in_which_each_job_waits_for_its_own(house):
    house.submit(count=40, rows=True)
    waits = [order.WaitRule(n, n + 1, [], [ParentRange(n + 1, n + 1)], True) for n in range(40)]
    child, pilot = house.submit(40, rows=True, waits=waits).first, house.pilot()
    run_one(house, pilot)
    house.control("kill", 2)
    assert states(house, child, child + 2) == ["Waiting", "Killed", "Waiting"]
    assert len(house.live.order) == 38


@pytest.mark.parametrize("rows", [False, True])
def test_the_reconciler_frees_what_waits_for_nothing(house, rows):
    house.submit()
    child, other = house.after(1, count=3, rows=rows), house.after(1)
    house.writer.change("DELETE FROM dependency WHERE job_id = ?", (child,))
    house.restart()
    assert house.do(Change(free_forgotten, house.live)) == 3
    assert claimed(house, house.pilot()) == [1, child, child + 1, child + 2]
    assert house.do(Change(free_forgotten, house.live)) == 0
    assert house.state(other) == "Waiting"


@pytest.mark.parametrize("seed", range(6))
def test_the_reconciler_frees_nothing_that_waits_or_has_ended(house, seed, caplog):
    """Members that were moved to rows and runs of their own leave holes, which are no jobs that wait for none."""
    rng = random.Random(seed)
    house.submit(count=2)
    child, pilot = house.after((1, 1), count=5), house.pilot()
    house.after(2)  # so that something goes on waiting for jobs
    failed = rng.randrange(9)
    for n in range(9):
        if n == failed:
            run_one(house, pilot, state="Failed", cause="exit", exit_code=4)
        at = child + rng.randrange(5)
        house.control(rng.choice(["hold", "release", "kill", "reschedule"]), at, rng.choice([at, child + 4]))
        settled(house)
        assert house.do(Change(free_forgotten, house.live)) == 0
    assert "jobs waited for none" not in caplog.text


@pytest.mark.parametrize("by_index", [False, True])
def test_a_parent_ends_whose_children_were_purged(house, by_index):
    """They were killed long ago: nothing waits for it any more."""
    house.submit(count=2)
    child, pilot = house.after((1, 2), count=2, by_index=by_index), house.pilot()
    house.control("kill", child, child + 1)
    settled(house)
    later(house, 91)
    forget_all(house, keep=90)
    assert (len(house.live.order), dependencies(house.reader)) == (0, [])
    for one in house.claim(pilot, 2):
        assert house.report(pilot, one, exit_code=0).accepted
    assert states(house, 1, 2) == ["Done", "Done"]
    assert house.journal.faults == 0


def test_nothing_is_left_when_all_is_purged(house):
    house.submit(count=2)
    child, pilot = house.after((1, 2), by_index=True, count=2), house.pilot()
    for _ in range(2):
        run_one(house, pilot)
    for _ in range(2):
        run_one(house, pilot)
    other = house.after(child)
    house.control("delete", other)
    house.end_pilot(pilot)
    later(house, 91)
    forget_all(house, keep=90)
    assert dangling(house) == {}
    assert house.reader.only("SELECT count(*) FROM job")[0] == 0
    assert house.reader.only("SELECT count(*) FROM dependency")[0] == 0
