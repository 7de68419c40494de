"""`AtMost`: no more jobs of a submission are taken at once, whatever becomes of them, of their pilots and of the server."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from tests.contract.test_bookings import fails

from lodesman.languages.jobs.parents import ParentRange
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import live_attempts, taken_jobs
from lodesman.server.store.task_queues import keys_by_id
from lodesman.server.writer.bound import bind
from lodesman.server.writer.order import WaitRule
from lodesman.server.writer.quotas import QuotaRules, check_limits
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.wire.vocabulary import Waking


def submit(house, count=20, at_most=3, **more):
    """An array; the id of its first job."""
    return house.submit(count, key=house.key(at_most=at_most, **more)).first


def batch(house, *at_most):
    """Jobs of their own in one submission, each with its `AtMost` (0: none) and a task queue of its own; the first id."""
    cohorts = tuple(
        PreparedCohort(
            key=house.key(at_most=most, cores=1 + n % 4), template="{}", expand=False, max_attempts=3, runs=((n, n + 1),)
        )
        for n, most in enumerate(at_most)
    )  # fmt: skip
    return house.do(Submit(house.live, PreparedSubmission(
        owner="ann", group="g", vo="vo", name="n", form="json", record="{}", members=None, count=len(at_most),
        cohorts=cohorts,
    ))).first  # fmt: skip


def wait(house, answers, site):
    """Let a claim of a new pilot wait."""
    house.journal.post(
        house.claim_command(house.pilot(site), wait=True, answer=answers.append), answers.append
    )


def taken(house):
    """How many jobs of each submission with `AtMost` live by the database, held against the writer's memory."""
    stored = dict(taken_jobs(house.reader))
    caps = house.live.queues.index.caps
    assert {number: caps.taken(number) for number in stored} == stored
    return stored


def test_no_claim_takes_more_and_an_end_lets_the_next_start(house):
    first = submit(house, 5)
    one, other = house.pilot(), house.pilot("S2")
    claimed = house.claim(one, 8)
    assert [job.job_id for job in claimed] == [first, first + 1, first + 2]
    assert house.claim(other, 8) == []
    house.report(one, claimed[1])
    assert [job.job_id for job in house.claim(other, 8)] == [first + 3]
    assert taken(house) == {1: 3}
    for job in (claimed[0], claimed[2]):
        house.report(one, job, "Failed", cause="exit", exit_code=1)
    assert [job.job_id for job in house.claim(one, 8)] == [first + 4]
    assert taken(house) == {1: 2}


def test_each_submission_counts_for_itself_and_others_for_nothing(house):
    for _ in range(2):
        submit(house, 5, 2)
    house.submit(3)
    assert len(house.claim(house.pilot(), 16)) == 7
    assert taken(house) == {1: 2, 2: 2}


def test_jobs_of_a_batch_with_task_queues_of_their_own_count_together(house):
    first = batch(house, 2, 2, 2, 0, 2, 2)
    pilot = house.pilot()
    claimed = house.claim(pilot, 8)
    assert (len(claimed), first + 3 in [one.job_id for one in claimed]) == (3, True)
    assert taken(house) == {1: 2}
    house.report(pilot, next(one for one in claimed if one.job_id != first + 3))
    assert len(house.claim(pilot, 8)) == 1


def test_it_is_the_same_after_a_restart(house):
    submit(house)
    pilot = house.pilot()
    claimed = house.claim(pilot, 2)
    house.restart()
    assert (len(house.claim(pilot, 8)), taken(house)) == (1, {1: 3})
    house.restart()
    assert house.claim(pilot, 8) == []
    house.report(pilot, claimed[0])
    assert (len(house.claim(pilot, 8)), taken(house)) == (1, {1: 3})


def test_a_batch_that_fails_takes_and_frees_nothing(house):
    submit(house)
    pilot = house.pilot()
    fails(house, house.claim_command(pilot, 8))
    assert taken(house) == {}
    claimed = house.claim(pilot, 3)

    class Ends:
        def apply(self, tx):
            house.live.bookings.ended(tx, pilot, (claimed[0].job_id, claimed[0].attempt))

    fails(house, Ends())
    assert (taken(house), house.claim(pilot, 8)) == ({1: 3}, [])


def test_a_job_that_is_killed_counts_until_its_payload_has_stopped(house):
    first = submit(house, 4, 1)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot, 8)
    house.control("kill", first)
    assert (house.state(first), house.claim(pilot, 8)) == ("Killed", [])
    house.report(pilot, claimed, "Killed", cause="killed")
    assert [one.job_id for one in house.claim(pilot, 8)] == [first + 1]


def test_a_lost_pilot_frees_its_jobs_and_a_late_result_takes_nothing(house):
    first = submit(house, 4, 2)
    pilot, other = house.pilot(), house.pilot("S2")
    claimed = house.claim(pilot, 8)
    house.report(pilot, claimed[0], "Running")
    house.silence(pilot)
    assert (house.state(first), house.claim(other, 8)) == ("Stalled", [])
    house.end_pilot(pilot)
    assert len(house.claim(other, 1)) == 1
    house.report(pilot, claimed[1])
    assert taken(house) == {1: 1}
    assert (len(house.claim(other, 8)), taken(house)) == (1, {1: 2})


def test_claims_that_wait_are_served_as_jobs_end_and_no_more_of_them(house):
    submit(house, 9, 2)
    pilot, answers = house.pilot(), []
    claimed = house.claim(pilot, 8)
    for n in range(4):
        wait(house, answers, f"S{n % 3 + 1}")
    assert answers == []
    house.report(pilot, claimed[0])
    assert [len(one) for one in answers] == [1]
    house.report(pilot, claimed[1])
    assert [len(one) for one in answers] == [1, 1]
    assert taken(house) == {1: 2}


@pytest.mark.parametrize(("count", "ahead"), [(1, 9), (0, 9), (2, 9), (9, 9)])
def test_jobs_ahead_are_taken(house, count, ahead):
    first = submit(house, 9, 2)
    pilot, other = house.pilot(), house.pilot("S2")
    claimed = house.claim(pilot, count, ahead=ahead, subtracts=True)
    assert ([one.job_id for one in claimed], taken(house)) == ([first, first + 1], {1: 2})
    assert house.claim(other, 8, ahead=9, subtracts=True) == []
    house.report(pilot, claimed[0])
    assert [one.job_id for one in house.claim(other, 0, ahead=9, subtracts=True)] == [first + 2]
    assert taken(house) == {1: 2}


def test_a_job_ahead_that_is_given_back_lets_the_next_start(house):
    first = submit(house, 9, 2)
    pilot, answers = house.pilot(), []
    claimed = house.claim(pilot, 1, ahead=9, subtracts=True)
    wait(house, answers, "S2")
    assert answers == []
    house.report(pilot, claimed[1], "Released", cause="returned")
    assert ([[one.job_id for one in claim] for claim in answers], taken(house)) == ([[first + 1]], {1: 2})


def test_a_job_ahead_that_is_killed_counts_until_it_is_given_back(house):
    first = submit(house, 9, 2)
    pilot = house.pilot()
    claimed = house.claim(pilot, 1, ahead=9, subtracts=True)
    house.control("kill", first + 1)
    assert (house.claim(house.pilot("S2"), 8), taken(house)) == ([], {1: 2})
    house.report(pilot, claimed[1], "Released", cause="returned")
    assert (house.state(first + 1), taken(house)) == ("Killed", {1: 1})
    assert [one.job_id for one in house.claim(house.pilot("S2"), 8)] == [first + 2]


def test_jobs_ahead_of_a_lost_pilot_are_free_for_others(house):
    first = submit(house, 9, 2)
    pilot = house.pilot()
    house.claim(pilot, 1, ahead=9, subtracts=True)
    house.end_pilot(pilot)
    assert taken(house) == {}
    assert [one.job_id for one in house.claim(house.pilot(), 8)] == [first, first + 1]


def test_a_submission_wakes_as_many_waiting_claims_as_may_start(house):
    answers = []
    for n in range(32):
        wait(house, answers, f"S{n % 3 + 1}")
    submit(house, 50, 10)
    assert ([len(one) for one in answers], taken(house)) == ([1] * 10, {1: 10})


def test_the_director_is_woken_where_no_claim_waits(house):
    heard = []
    house.live.announce = heard.append
    submit(house, 3, 1)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot, 8)
    del heard[:]
    house.report(pilot, claimed)
    assert heard == [Waking.JOBS]


def test_a_pilot_is_bound_to_a_job_only_while_one_may_start(house):
    submit(house, 3, 1)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot, 8)
    (number,) = (tq_id for tq_id, _, _ in house.live.queues.index.queues())
    new = type("New", (), {"tq_id": number, "site": "S1", "ce": "ce", "queue": "q"})
    assert house.do(Change(bind, house.live, 99, new, {})) is None
    house.report(pilot, claimed)
    assert house.live.queues.index.is_open(number)


def test_jobs_that_wait_for_jobs_keep_it(house):
    parent = house.submit().first
    key = house.key(waits_for_jobs=True, at_most=1)
    house.submit(3, key=key, waits=[WaitRule(0, 3, [], [ParentRange(parent, parent)], False)])
    pilot = house.pilot()
    (claimed,) = house.claim(pilot, 8)
    house.report(pilot, claimed)
    assert (len(house.claim(pilot, 8)), taken(house)) == (1, {2: 1})


def test_a_count_that_is_wrong_is_found_and_mended(house, caplog):
    rules = QuotaRules(house.live, [], None)
    submit(house, 9, 2)
    pilot = house.pilot()
    house.claim(pilot, 8)
    assert house.do(Change(check_limits, rules))
    assert caplog.messages == []
    index = house.live.queues.index
    index.uncount_attempt(house.key(at_most=2, submission=1), None)
    assert house.do(Change(check_limits, rules))
    assert caplog.messages == ["submissions with AtMost counted other jobs than live"]
    assert (house.claim(pilot, 8), taken(house)) == ([], {1: 2})


def test_the_database_says_which_submissions_have_what(house):
    submit(house, 5, 2)
    house.submit(2)
    house.claim(house.pilot(), 8)
    assert taken_jobs(house.reader) == {1: 2}
    keys = keys_by_id(house.reader, {one.tq_id for one in live_attempts(house.reader)})
    assert sorted((one.at_most, one.submission) for one in keys.values()) == [(0, 0), (2, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_it_holds_at_each_moment_of_a_long_day(house, seed):
    """Claims, also of jobs ahead, ends, jobs given back, kills, lost pilots and restarts, at random."""
    rng = random.Random(seed)
    allowed = {n: rng.choice((1, 2, 5)) for n in (1, 2, 3)}
    arrays = [submit(house, 30, most, cores=1) for most in allowed.values()]
    pilots = [house.pilot(f"S{n % 3 + 1}") for n in range(5)]
    running = []
    ends = [*pairwise([*arrays, 91])]
    for _ in range(120):
        deed = rng.choice(
            (
                "claim",
                "claim",
                "end",
                "end",
                "fail",
                "return",
                "kill",
                "hold",
                "lose",
                "restart",
                "reschedule",
            )
        )
        if deed == "claim":
            pilot = rng.choice(pilots)
            claimed = house.claim(pilot, rng.randint(0, 6), ahead=rng.choice((0, 3, 9)))
            running += [(pilot, one) for one in claimed]
        elif deed in ("end", "fail", "return") and running:
            pilot, one = running.pop(rng.randrange(len(running)))
            state = {"end": ("Done", "ok"), "fail": ("Failed", "exit"), "return": ("Released", "returned")}[
                deed
            ]
            house.report(pilot, one, state[0], cause=state[1], exit_code=0 if deed == "end" else 1)
        elif deed in ("kill", "hold", "reschedule"):
            start, stop = rng.choice(ends)
            at = rng.randrange(start, stop)
            house.control(deed, at, min(stop - 1, at + 3))
            house.control("release", start, stop - 1)
        elif deed == "lose":
            place = rng.randrange(len(pilots))
            house.end_pilot(pilots[place])
            running = [one for one in running if one[0] != pilots[place]]
            pilots[place] = house.pilot()
        elif deed == "restart":
            house.restart()
        found = taken(house)
        assert all(found.get(number, 0) <= most for number, most in allowed.items()), (deed, found)
    assert not any(house.reconcile().values())
