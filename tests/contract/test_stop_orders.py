"""Orders to stop a running payload: stored with kill or reschedule, removed with the attempt, safe from any restart."""

import pytest
from tests.conftest import query_plan

from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import stop_orders
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.jobs import submissions_between
from lodesman.server.writer.control import Control
from lodesman.server.writer.pilots import end_pilot
from lodesman.wire.vocabulary import PilotState


def running(house, **more):
    """A job that runs: (pilot, what it claimed)."""
    house.submit(**more)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Running", cause="")
    return pilot, claimed


# --- orders outlive the server ----------------------------------------------------------------------------


def test_a_kill_reaches_the_pilot_after_a_restart(house):
    pilot, claimed = running(house)
    house.control("kill", 1, reason="wrong input")
    house.restart()
    assert house.live.pilots.stop_orders == {pilot: {(1, 1): "wrong input"}}
    assert house.control("reschedule", 1).refused == 1
    assert house.report(pilot, claimed, "Failed", cause="killed").accepted
    assert house.live.pilots.stop_orders == {pilot: {}}
    assert house.control("reschedule", 1).changed == 1
    house.restart()
    assert house.live.pilots.stop_orders == {}
    assert [(c.job_id, c.attempt) for c in house.claim(pilot)] == [(1, 2)]


def test_a_reschedule_reaches_the_pilot_after_a_restart_and_is_carried_out(house):
    pilot, claimed = running(house)
    assert house.control("reschedule", 1, reason="new calibration").changed == 1
    house.restart()
    assert house.live.pilots.stop_orders == {pilot: {(1, 1): "rescheduled: new calibration"}}
    house.report(pilot, claimed, "Failed", cause="killed")
    assert (house.state(1), house.job(1).reason) == ("Waiting", "rescheduled: new calibration")


def test_an_order_without_a_reason_is_one_after_a_restart_too(house):
    pilot, _ = running(house)
    house.control("kill", 1, reason="")
    house.restart()
    assert house.live.pilots.stop_orders == {pilot: {(1, 1): "kill"}}


def test_only_orders_for_live_attempts_are_loaded(house):
    ended, claimed = running(house)
    house.control("kill", 1)
    house.report(ended, claimed, "Failed", cause="killed")
    waiting, _ = running(house)
    lost, _ = running(house)
    house.control("kill", 3)
    house.end_pilot(lost)
    assert lost not in house.live.pilots.stop_orders
    house.restart()
    assert house.live.pilots.stop_orders == {}
    assert house.state(2) == "Running"
    house.control("kill", 2)
    house.restart()
    assert set(house.live.pilots.stop_orders) == {waiting}


@pytest.mark.sqlite
def test_orders_are_found_among_the_live_attempts_alone(house):
    assert "attempt_live" in str(query_plan(house.reader, lambda: stop_orders(house.reader)))


class Broken:
    """A command of a batch that fails in the database after another."""

    def __init__(self, command):
        self.command = command

    def apply(self, tx):
        self.command.apply(tx)
        raise RuntimeError


def rolled_back(house, command):
    tx = Transaction(house.writer, house.clock)
    house.writer.begin()
    with pytest.raises(RuntimeError):
        Broken(command).apply(tx)
    house.writer.roll_back()
    tx.roll_back_memory()


def test_an_order_of_a_batch_that_failed_is_none_and_one_that_stood_stands(house):
    pilot, _ = running(house)
    house.control("reschedule", 1, reason="again")
    before = {pilot: {(1, 1): "rescheduled: again"}}
    rolled_back(house, Control(house.live, "kill", (range(1, 2),), "no", lambda *_: True))
    assert house.live.pilots.stop_orders == before
    rolled_back(house, Change(end_pilot, house.live, pilot, PilotState.LOST, "gone"))
    assert house.live.pilots.stop_orders == before
    assert house.state(1) == "Running"


# --- reschedule while it runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "cause"),
    [("Failed", "killed"), ("Done", "ok"), ("Failed", "exit"), ("Released", "pilot-shutdown")],
)
def test_a_running_job_that_is_rescheduled_runs_again_however_its_attempt_ends(house, state, cause):
    pilot, claimed = running(house, max_attempts=1)
    assert house.control("reschedule", 1, reason="").changed == 1
    assert house.state(1) == "Running"
    house.report(pilot, claimed, state, cause=cause)
    assert (house.state(1), house.job(1).reason) == ("Waiting", "rescheduled")
    assert [(c.job_id, c.attempt) for c in house.claim(pilot)] == [(1, 2)]
    assert house.events(1) == ["Waiting", "Matched", "Running", "Rescheduled", "Waiting", "Matched"]


def test_a_job_that_is_rescheduled_and_whose_pilot_is_lost_runs_again(house):
    pilot, claimed = running(house, max_attempts=1)
    house.control("reschedule", 1)
    house.end_pilot(pilot, cause="lease-expired")
    assert house.state(1) == "Waiting"
    # The success of the attempt that was to be stopped is not what its owner wants.
    assert house.report(pilot, claimed).accepted is False
    assert house.state(1) == "Waiting"


def test_to_reschedule_twice_is_refused_with_a_clear_word(house):
    running(house)
    house.control("reschedule", 1)
    out = house.control("reschedule", 1)
    assert (out.changed, out.refused) == (0, 1)
    assert "being stopped already" in out.examples[0].reason
    assert house.events(1).count("Rescheduled") == 1


def test_the_last_word_counts(house):
    pilot, claimed = running(house)
    house.control("reschedule", 1, reason="again")
    assert house.control("kill", 1, reason="no, not again").changed == 1
    assert house.live.pilots.stop_orders[pilot] == {(1, 1): "no, not again"}
    house.restart()
    assert house.live.pilots.stop_orders[pilot] == {(1, 1): "no, not again"}
    house.report(pilot, claimed, "Failed", cause="killed")
    assert house.state(1) == "Killed"


def test_a_job_that_was_only_claimed_is_rescheduled_too(house):
    house.submit(2)
    pilot = house.pilot()
    first, second = house.claim(pilot, 2)
    assert house.control("reschedule", 1, 2).changed == 2
    house.report(pilot, first, "Failed", cause="killed")
    house.report(pilot, second, "Failed", cause="killed")
    assert house.counts() == {"Waiting": 2}


# --- finding what a range means ---------------------------------------------------------------------------


def bases_between(house, first, last):
    return [one.base for one in submissions_between(Transaction(house.writer, 0.0), first, last)]


@pytest.mark.sqlite
def test_submissions_of_a_range_are_found_without_reading_all_older_ones(house):
    found = str(query_plan(house.writer, lambda: bases_between(house, 5, 9)))
    assert "base>? AND base<?" in found
    assert "SCAN submission" not in found


@pytest.mark.parametrize(
    ("first", "last", "bases"),
    [(1, 1, [1]), (3, 3, [1]), (4, 4, [4]), (2, 4, [1, 4]), (5, 8, [5]), (3, 5, [1, 4, 5]), (1, 99, [1, 4, 5]),
     (9, 99, []), (0, 0, [])],
)  # fmt: skip
def test_a_range_finds_the_submissions_that_reach_into_it(house, first, last, bases):
    for count in (3, 1, 4):
        house.submit(count)
    assert bases_between(house, first, last) == bases


def test_a_gap_that_purging_left_belongs_to_no_submission(house):
    for count in (3, 1, 4):
        house.submit(count)
    with house.writer:
        house.writer.execute("DELETE FROM submission WHERE base = 4")
    assert bases_between(house, 4, 4) == []
    assert bases_between(house, 2, 6) == [1, 5]
