"""The reconciler: suspects found by a reader in portions, checked again by key, repaired and counted."""

from __future__ import annotations

import logging
import random

import pytest
from msgspec.structs import asdict
from tests.conftest import all_suspects, query_plan

from lodesman.base.errors import Unavailable
from lodesman.server.loops import reconciler
from lodesman.server.loops.reconciler import _RECONCILE_SECONDS, Reconciler, find_suspects
from lodesman.server.store.journal import Change
from lodesman.server.writer.upkeep import reconcile
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.service import RepairCounts, Suspects

CLEAN = asdict(RepairCounts())
GHOSTS = {**CLEAN, "active_without_attempt": 1}


def spoil(house, sql, *values):
    with house.writer:
        house.writer.execute(sql, values)


def ghost(house, *, pilot=None):
    """A job that is active, and whose attempt has ended."""
    house.submit(rows=True)
    (claimed,) = house.claim(pilot or house.pilot())
    spoil(house, "UPDATE attempt SET ended_at = 5, outcome = 'Released' WHERE job_id = ?", claimed.job_id)
    return claimed


def test_a_lively_house_raises_no_doubt(house):
    """Claims whose counters and cursors are not written yet are no fault."""
    rng = random.Random(3)
    house.submit(40)
    house.submit(20, rows=True, key=house.key(norm_cpu_seconds=200))
    house.submit(15, held="nothing fits")
    pilot = house.pilot()
    for _ in range(60):
        first = rng.randint(1, 75)
        action = rng.choice(["claim", "kill", "hold", "release", "reschedule"])
        if action == "claim":
            for claimed in house.claim(pilot, rng.randint(1, 3)):
                house.report(pilot, claimed, rng.choice(["Done", "Released", "Running"]), cause="exit")
        else:
            house.control(action, first, min(75, first + rng.randint(0, 9)))
        assert all_suspects(house.reader) == Suspects(jobs=[], queues=[])


def test_a_ghost_goes_back_to_its_task_queue(house, caplog):
    claimed = ghost(house)
    assert house.state(claimed.job_id) == "Matched"
    with caplog.at_level(logging.ERROR):
        assert house.reconcile() == GHOSTS
    assert "a job was active without a live attempt" in caplog.text
    job = house.job(claimed.job_id)
    assert (job.state, job.reason) == ("Waiting", "it was active without a live attempt")
    assert house.reconcile() == CLEAN
    (again,) = house.claim(house.pilot())
    assert (again.job_id, again.attempt) == (claimed.job_id, 2)
    house.report(2, again, "Done")
    assert house.state(claimed.job_id) == "Done"
    assert house.reconcile() == CLEAN


@pytest.mark.parametrize(
    ("outcome", "cause", "state"),
    [("Done", "ok", "Done"), ("Failed", "exit", "Failed"), ("Released", "pilot-lost", "Waiting")],
)
def test_a_ghost_goes_where_the_end_of_its_attempt_sends_it(house, outcome, cause, state):
    claimed = ghost(house)
    spoil(house, "UPDATE attempt SET outcome = ?, cause = ?", outcome, cause)
    assert house.reconcile() == GHOSTS
    assert house.state(claimed.job_id) == state
    assert house.reconcile() == CLEAN


def test_a_ghost_without_attempts_left_has_failed(house):
    house.submit(max_attempts=1)
    (claimed,) = house.claim(house.pilot())
    spoil(house, "UPDATE attempt SET ended_at = 5, outcome = 'Released'")
    assert house.reconcile() == GHOSTS
    assert house.state(claimed.job_id) == "Failed"


def test_a_ghost_whose_attempt_is_gone_can_be_claimed_and_shown(house):
    claimed = ghost(house)
    spoil(house, "DELETE FROM attempt")
    assert house.reconcile() == GHOSTS
    assert house.events(claimed.job_id) == ["Waiting", "Matched", "Waiting"]
    (again,) = house.claim(house.pilot())
    assert house.job(again.job_id).pilot == 2
    assert house.reconcile() == CLEAN


def test_a_job_that_moved_on_meanwhile_is_left_alone(house):
    house.submit(2, rows=True)
    pilot = house.pilot()
    claimed = house.claim(pilot, 2)
    old = Suspects(jobs=[one.job_id for one in claimed] + [77], queues=[1, 99])
    house.report(pilot, claimed[0], "Done")
    assert asdict(house.do(Change(reconcile, house.live, old))) == CLEAN
    assert [house.state(one.job_id) for one in claimed] == ["Done", "Matched"]


def test_a_waiting_job_in_no_task_queue_is_found_again(house):
    house.submit(3, rows=True)
    pilot = house.pilot()
    house.claim(pilot, 3)
    house.submit(2, rows=True)
    spoil(house, "UPDATE job SET queued = NULL WHERE id = 4")
    spoil(house, "UPDATE task_queue_count SET waiting = 1")
    house.restart()
    assert all_suspects(house.reader) == Suspects(jobs=[4], queues=[])
    found = house.reconcile()
    assert (found["waiting_without_queue"], found["wrong_counters"]) == (1, 1)
    assert house.reconcile() == CLEAN
    assert {one.job_id for one in house.claim(pilot, 5)} == {4, 5}


def test_a_counter_that_is_wrong_either_way(house):
    for cpu in (100, 200, 300):
        house.submit(5, key=house.key(norm_cpu_seconds=cpu))
    spoil(
        house, "UPDATE task_queue_count SET waiting = CASE tq_id WHEN 1 THEN 9 WHEN 2 THEN 2 ELSE waiting END"
    )
    house.restart()
    assert all_suspects(house.reader).queues == [1, 2]
    assert house.reconcile() == {**CLEAN, "wrong_counters": 2}
    assert [house.live.queues.index.waiting(n) for n in (1, 2, 3)] == [5, 5, 5]
    assert house.reconcile() == CLEAN


def test_portions_leave_nothing_out(house, monkeypatch):
    monkeypatch.setattr(reconciler, "_JOBS_AT_ONCE", 4)
    monkeypatch.setattr(reconciler, "_QUEUES_AT_ONCE", 2)
    monkeypatch.setattr(reconciler, "_SUSPECTS_AT_ONCE", 3)
    for cpu in range(1, 8):
        house.submit(3, rows=True, key=house.key(norm_cpu_seconds=cpu))
    spoil(house, "UPDATE job SET state = 'Running'")
    assert all_suspects(house.reader) == Suspects(jobs=list(range(1, 22)), queues=list(range(1, 8)))
    assert max(len(found.jobs) for found in find_suspects(house.reader)) <= 3
    house.restart()
    assert house.reconcile()["active_without_attempt"] == 21
    assert house.reconcile() == CLEAN
    assert house.counts() == {"Waiting": 21}


class Posts:
    """The hot process; every find_suspects at the clock takes 10 ms."""

    def __init__(self, house):
        self.house, self.posted, self.at = house, [], 0.0

    def __call__(self, call, body):
        self.posted.append((call, body))
        if call is inner_calls.RECONCILE:
            return self.house.do(Change(reconcile, self.house.live, body))
        return Nothing()

    def ticker(self):
        self.at += 0.01
        return self.at


def reconciler_of(house, posts):
    return Reconciler(house.reader, posts, ticker=posts.ticker)


def test_a_run_comes_at_once_and_then_at_intervals(house):
    posts = Posts(house)
    mine = reconciler_of(house, posts)
    claimed = ghost(house)
    while not posts.posted or posts.posted[-1][0] is not inner_calls.FORGET_IDLE:
        mine.tick()
    assert posts.posted[0] == (inner_calls.RECONCILE, Suspects(jobs=[claimed.job_id]))
    assert mine.repaired["active_without_attempt"] == 1
    del posts.posted[:]
    mine.tick()
    assert posts.posted == []
    posts.at += _RECONCILE_SECONDS
    while len(posts.posted) < 2:
        mine.tick()
    assert posts.posted == [(inner_calls.CHECK_LIMITS, Nothing()), (inner_calls.FORGET_IDLE, Nothing())]


def test_a_tick_works_for_a_little_while(house, monkeypatch):
    monkeypatch.setattr(reconciler, "_JOBS_AT_ONCE", 1)
    house.submit(40, rows=True)
    posts = Posts(house)
    mine = reconciler_of(house, posts)
    ticks = 0
    while not posts.posted:
        mine.tick()
        ticks += 1
        assert ticks < 100
    assert ticks > 5


def test_an_interrupted_run_starts_again_later(house):
    ghost(house)

    def away(name, body):
        raise Unavailable("away")

    posts = Posts(house)
    mine = Reconciler(house.reader, away, ticker=posts.ticker)
    with pytest.raises(Unavailable):
        mine.tick()
    mine.tick()
    mine.post = posts
    posts.at += _RECONCILE_SECONDS
    mine.tick()
    assert mine.repaired["active_without_attempt"] == 1


@pytest.mark.sqlite
def test_no_portion_reads_all_jobs(house):
    house.submit(3)
    plan = query_plan(house.reader, lambda: all_suspects(house.reader))
    assert plan
    # Of attempts only those that live.
    scans = {step.split()[1] for step in plan if step.startswith("SCAN") and "attempt_live" not in step}
    assert not scans & {"job", "j", "attempt", "a", "cohort", "c", "hole", "h"}


@pytest.mark.sqlite
def test_the_writer_reads_single_keys_only(house):
    """However many rows there are: claims wait for the writer."""
    house.submit(3_000, rows=True)
    claimed = ghost(house, pilot=house.pilot())
    steps = 0

    def count():
        nonlocal steps
        steps += 1
        return False

    house.writer.connection.set_progress_handler(count, 100)
    found = house.do(Change(reconcile, house.live, Suspects(jobs=[claimed.job_id])))
    house.writer.connection.set_progress_handler(None)
    assert asdict(found) == GHOSTS
    assert steps < 30
