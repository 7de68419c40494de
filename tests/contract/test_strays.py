"""Stray attempts: they live while their jobs name others or none, or their pilots have ended. No number is given twice."""

from __future__ import annotations

import logging

import pytest
from tests.contract.conftest import QUEUES
from tests.contract.test_reconciler import CLEAN, spoil

from lodesman.base.errors import Conflict
from lodesman.server.store.journal import Change
from lodesman.server.store.read.jobs import attempts_of_job
from lodesman.server.store.read.upkeep import stray_attempts
from lodesman.server.writer.quotas import QuotaRules, check_limits
from lodesman.server.writer.upkeep import reconcile
from lodesman.wire.service import RepairCounts, Suspects
from lodesman.wire.vocabulary import PilotState

FORGET = """UPDATE job SET state = 'Waiting', attempt = 0, last_attempt = NULL, pilot_id = NULL,
last_event = (SELECT min(id) FROM event WHERE job_id = job.id) WHERE id = ?"""
NAMES = ("attempts_without_job", "attempts_not_named", "attempts_of_ended_pilots")


def forgotten(house, *, started=False, count=1, at_most=0):
    """Jobs of one pilot that wait, and whose attempts live all the same: what was claimed."""
    house.submit(count, rows=True, key=house.key(at_most=at_most))
    pilot = house.pilot()
    claimed = house.claim(pilot, count)
    for one in claimed:
        if started:
            house.report(pilot, one, "Running", cause="")
        spoil(house, FORGET, one.job_id)
    return pilot, claimed


def begin(house):
    """As a server begins; what it mended, by kind."""
    house.restart(*QUEUES)
    found = house.reconcile()
    assert house.reconcile() == CLEAN
    assert stray_attempts(house.reader, 9) == []
    rules = QuotaRules(house.live, [], None)
    assert house.do(Change(check_limits, rules))
    assert {name: house.live.repaired[name] for name in found} == found
    live = house.reader.execute("SELECT pilot_id, job_id, number FROM attempt WHERE ended_at IS NULL")
    held = {(pilot, *name) for pilot, some in house.live.pilots.held.items() for name in some}
    assert held == {tuple(row) for row in live}
    return {name: found[name] for name in NAMES if found[name]}


def numbers(house, job_id):
    return [(one.number, one.outcome) for one in attempts_of_job(house.reader, house.job(job_id))]


@pytest.mark.parametrize("started", [False, True])
def test_a_job_goes_on_with_the_attempt_that_its_pilot_has(house, started, caplog):
    pilot, (claimed,) = forgotten(house, started=started)
    with caplog.at_level(logging.ERROR):
        assert begin(house) == {"attempts_not_named": 1}
    assert "an attempt lived that its job did not name" in caplog.text
    assert "counter" not in caplog.text, "what is known to be wrong is no news"
    assert house.state(1) == ("Running" if started else "Matched")
    assert house.claim(house.pilot()) == []
    assert house.report(pilot, claimed, exit_code=0).accepted
    assert (house.state(1), numbers(house, 1)) == ("Done", [(1, "Done")])
    assert house.events(1)[-2:] == ["Running" if started else "Matched", "Done"]


@pytest.mark.parametrize("at_most", [0, 1])
@pytest.mark.parametrize("ended", ["Done", "Lost", "gone"])
def test_a_job_whose_pilot_has_ended_is_held_and_runs_again_only_if_a_user_says_so(house, ended, at_most):
    pilot, _ = forgotten(house, at_most=at_most)
    if ended == "gone":
        spoil(house, "DELETE FROM pilot WHERE id = ?", pilot)
    else:
        spoil(house, "UPDATE pilot SET state = ?, ended_at = 5 WHERE id = ?", ended, pilot)
    assert begin(house) == {"attempts_not_named": 1}
    assert (house.state(1), house.job(1).reason[:45]) == (
        "Held",
        "a fault of the server lost the result of atte",
    )
    assert house.claim(house.pilot()) == []
    house.control("release", 1)
    (again,) = house.claim(house.pilot())
    assert (again.job_id, again.attempt) == (1, 2)
    assert numbers(house, 1) == [(1, "Released"), (2, None)]
    most = house.reader.only("SELECT max_attempts FROM job")[0]
    assert most == 4, "the attempt was no fault of the job"


def test_a_result_that_a_lost_pilot_brings_after_all_counts(house):
    pilot, (claimed,) = forgotten(house)
    spoil(house, "UPDATE pilot SET state = 'Lost', ended_at = 5")
    begin(house)
    assert house.report(pilot, claimed, exit_code=0).accepted
    assert (house.state(1), numbers(house, 1)) == ("Done", [(1, "Done")])


@pytest.mark.parametrize("state", ["Held", "Killed", "Deleted"])
def test_what_was_done_to_the_job_meanwhile_stays(house, state):
    forgotten(house)
    spoil(house, "UPDATE job SET state = ?, reason = 'by hand'", state)
    assert begin(house) == {"attempts_not_named": 1}
    assert (house.state(1), numbers(house, 1)) == (state, [(1, "Released")])
    if state == "Held":
        house.control("release", 1)
        assert [one.attempt for one in house.claim(house.pilot())] == [2]


def test_a_number_that_was_given_out_twice_stays_with_the_job(house):
    """As it was handed out again in old versions: the job names the second attempt of that number."""
    first, (claimed,) = forgotten(house)
    house.submit(rows=True)
    other = house.pilot()
    spoil(house, "DELETE FROM job WHERE id = 2")
    spoil(house, "UPDATE job SET id = 2 WHERE id = 1")
    house.restart()
    (again,) = house.claim(other)
    assert (again.job_id, again.attempt) == (2, 1)
    spoil(house, "UPDATE attempt SET job_id = 2")
    assert begin(house) == {"attempts_not_named": 1}
    assert house.report(other, again, exit_code=0).accepted
    assert (house.state(2), numbers(house, 2)) == ("Done", [(1, "Done")])
    assert house.end_pilot(first) == 0
    assert claimed.attempt == 1


def test_an_attempt_whose_job_was_purged_goes(house):
    pilot, _ = forgotten(house)
    spoil(house, "DELETE FROM job")
    assert begin(house) == {"attempts_without_job": 1}
    assert house.reader.only("SELECT count(*) FROM attempt")[0] == 0
    assert house.end_pilot(pilot) == 0


def test_an_attempt_of_a_pilot_that_has_ended_goes_back(house):
    house.submit(3)
    pilot = house.pilot()
    house.claim(pilot, 3)
    house.end_pilot(house.pilot())
    spoil(house, "UPDATE pilot SET state = 'Lost', ended_at = 5 WHERE id = ?", pilot)
    assert begin(house) == {"attempts_of_ended_pilots": 3}
    assert house.counts() == {"Waiting": 3}
    assert [one.attempt for one in house.claim(house.pilot(), 3)] == [2, 2, 2]


@pytest.mark.parametrize("jobs_are_there", [True, False])
def test_a_pilot_with_stray_attempts_can_end(house, jobs_are_there):
    """Else it would be ended for ever, and its tokens be good."""
    pilot, _ = forgotten(house, count=3)
    if not jobs_are_there:
        spoil(house, "DELETE FROM job WHERE id < 3")
    house.restart()
    assert house.end_pilot(pilot, PilotState.DONE) == 3
    assert house.reader.only("SELECT count(*) FROM attempt WHERE ended_at IS NULL")[0] == 0
    assert house.reader.only("SELECT state FROM pilot")[0] == "Done"
    assert house.counts() == ({"Held": 3} if jobs_are_there else {"Held": 1})
    assert house.live.repaired["attempts_not_named"] == (3 if jobs_are_there else 1)
    assert house.reconcile() == CLEAN


def test_a_server_starts_though_job_and_task_queue_were_purged(house):
    """Limits cannot count an attempt of which nothing is known any more."""
    forgotten(house)
    spoil(house, "DELETE FROM job")
    spoil(house, "DELETE FROM task_queue")
    assert begin(house) == {"attempts_without_job": 1}


@pytest.mark.parametrize(
    ("alive", "state"), [((1, 2), "Matched"), ((2,), "Matched"), ((1,), "Held"), ((), "Held")]
)
def test_of_two_strays_of_one_job_the_last_number_counts(house, alive, state):
    pilot, _ = forgotten(house)
    other = house.pilot()
    assert (pilot, other) == (1, 2)
    columns = "tq_id, claim_token, site, claimed_at"
    spoil(
        house,
        f"INSERT INTO attempt (id, job_id, number, pilot_id, {columns}) SELECT 2, 1, 2, 2, {columns} FROM attempt",
    )
    for number in {1, 2} - {*alive}:
        spoil(house, "UPDATE pilot SET state = 'Lost', ended_at = 5 WHERE id = ?", number)
    assert begin(house) == {"attempts_not_named": 2}
    job = house.job(1)
    assert (job.state, job.attempt) == (state, 2)
    live = house.reader.only("SELECT count(*) FROM attempt WHERE ended_at IS NULL")[0]
    assert live == (1 if state == "Matched" else 0)


@pytest.mark.parametrize("lives", [False, True])
def test_a_held_job_keeps_its_hold_and_loses_its_attempt(house, lives):
    house.submit(rows=True)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    spoil(house, "UPDATE job SET state = 'Held', reason = 'by hand'")
    if not lives:
        spoil(house, "UPDATE pilot SET state = 'Lost', ended_at = 5")
    assert begin(house) == {"attempts_not_named": 1}
    assert (house.state(1), house.job(1).reason) == ("Held", "by hand")
    assert house.report(pilot, claimed, exit_code=0).accepted, "a late result counts"


@pytest.mark.sqlite
def test_many_strays_are_mended_in_a_moment(house):
    """The jobs of a task queue are counted once for all of them."""
    forgotten(house, count=8)
    house.submit(3)
    counts = []
    house.writer.connection.trace_v2(1, lambda event: counts.append("sum(n) AS jobs" in event["sql"]))
    house.do(Change(reconcile, house.live, Suspects(attempts=list(range(1, 9)))))
    house.writer.connection.trace_v2(0, None)
    assert sum(counts) == 1


def test_nothing_that_is_right_is_mended(house):
    house.submit(4, rows=True)
    pilot = house.pilot()
    first, second, third, _ = house.claim(pilot, 4)
    house.report(pilot, first, "Running", cause="")
    house.control("kill", second.job_id)
    house.control("reschedule", third.job_id)
    live = [row[0] for row in house.reader.execute("SELECT id FROM attempt WHERE ended_at IS NULL")]
    assert (len(live), stray_attempts(house.reader, 9)) == (4, [])
    before = list(house.reader.execute("SELECT * FROM attempt"))
    assert house.do(Change(reconcile, house.live, Suspects(attempts=[*live, 77]))) == RepairCounts()
    assert list(house.reader.execute("SELECT * FROM attempt")) == before


def test_a_pilot_whose_end_fails_has_not_ended(house, monkeypatch):
    """A refusal in the midst of it is a fault: nothing of it is stored."""
    house.submit()
    pilot = house.pilot()
    house.claim(pilot)

    def refuse(*_, **__):
        raise Conflict("Job 1 cannot become Waiting.")

    monkeypatch.setattr("lodesman.server.writer.strays.end_attempt", refuse)
    with pytest.raises(Exception, match="Its log says why"):
        house.end_pilot(pilot)
    assert house.reader.only("SELECT state, ended_at FROM pilot") == ("Running", None)
    assert pilot in house.live.pilots.running
    monkeypatch.undo()
    assert house.end_pilot(pilot) == 1
