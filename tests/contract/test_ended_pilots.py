"""An ended pilot gets no more jobs, whatever was on its way, and its jobs go back."""

from __future__ import annotations

import logging

import pytest

from lodesman.base.errors import NotFound, Unauthorized
from lodesman.server.store.journal import PARKED, Change
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.pilots import (
    LATE_SECONDS,
    end_pilot,
    hash_token,
    join_pilot,
    pilots_submitted,
    prepare_pilots,
)
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState

ENDS = [PilotState.DONE, PilotState.ABORTED, PilotState.LOST]


class Together:
    """Commands of one transaction; answers what each answered, refusals too. `fails`: the database does, after them."""

    def __init__(self, *commands, fails=False):
        self.commands = commands
        self.fails = fails

    def apply(self, tx):
        found = []
        for command in self.commands:
            try:
                found.append(command.apply(tx))
            except Unauthorized as refused:
                found.append(refused)
        if self.fails:
            raise RuntimeError
        return found


def rolled_back(house, *commands):
    tx = Transaction(house.writer, house.clock)
    house.writer.begin()
    with pytest.raises(RuntimeError):
        Together(*commands, fails=True).apply(tx)
    house.writer.roll_back()
    tx.roll_back_memory()


def end(house, pilot, state=PilotState.LOST):
    return Change(end_pilot, house.live, pilot, state, "gone")


def state_of(house, pilot):
    return house.reader.execute("SELECT state FROM pilot WHERE id = ?", (pilot,)).fetchone()[0]


def tokens(house, pilot):
    rows = house.reader.execute("SELECT kind, expires_at FROM token WHERE pilot_id = ?", (pilot,))
    return sorted(rows)


def live_attempts(house):
    return house.reader.execute("SELECT count(*) FROM attempt WHERE ended_at IS NULL").fetchone()[0]


# --- claims ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("wait", [False, True])
def test_a_claim_that_comes_after_the_end_takes_no_job(house, state, wait):
    house.submit()
    pilot = house.pilot()
    house.end_pilot(pilot, state)
    with pytest.raises(Unauthorized, match="has ended"):
        house.claim(pilot, wait=wait)
    assert (house.state(1), live_attempts(house)) == ("Waiting", 0)
    assert house.live.parked.of_pilot(pilot) is None
    assert len(house.claim(house.pilot())) == 1


def test_end_and_claim_in_one_transaction(house):
    house.submit()
    pilot = house.pilot()
    ended, claimed = house.do(Together(end(house, pilot), house.claim_command(pilot)))
    assert ended == 0
    assert isinstance(claimed, Unauthorized)
    assert house.state(1) == "Waiting"


def test_claim_and_end_in_one_transaction(house):
    house.submit()
    pilot = house.pilot()
    claimed, ended = house.do(Together(house.claim_command(pilot), end(house, pilot)))
    assert (len(claimed), ended) == (1, 1)
    assert (house.state(1), live_attempts(house)) == ("Waiting", 0)


def test_a_request_that_waits_when_its_pilot_ends_is_answered_with_nothing(house):
    pilot = house.pilot()
    answers = []
    waits = house.claim_command(pilot, wait=True, answer=answers.append)
    parked, _ = house.do(Together(waits, end(house, pilot)))
    assert parked is PARKED
    assert answers == [[]]
    house.submit()
    assert house.state(1) == "Waiting"


def test_a_claim_token_of_before_the_end_is_not_answered_again(house):
    house.submit()
    pilot = house.pilot()
    house.claim(pilot, token="the same token")
    house.end_pilot(pilot)
    with pytest.raises(Unauthorized):
        house.claim(pilot, token="the same token")


def test_an_unknown_pilot_claims_nothing(house):
    house.submit()
    prepare(house, "quiet")
    assert house.live.pilots.running == set()
    pilot = house.pilot()
    assert house.live.pilots.running == {pilot}


def test_permission_to_claim_survives_a_restart(house):
    house.submit(2)
    there, gone, left = house.pilot(), house.pilot(), house.pilot()
    prepare(house, "quiet")
    house.end_pilot(gone)
    house.end_pilot(left, PilotState.DONE)
    house.restart()
    assert house.live.pilots.running == {there}
    assert len(house.claim(there)) == 1
    with pytest.raises(Unauthorized):
        house.claim(gone)


def test_a_join_and_an_end_of_a_batch_that_failed_are_none(house):
    house.submit()
    pilot = house.pilot()
    stays = house.pilot()
    prepare(house, "late")
    rolled_back(house, end(house, pilot), Change(join_pilot, house.live, "late-join", "nonce", {}))
    assert house.live.pilots.running == {pilot, stays}
    # One that had joined before stays, though its second join failed.
    rolled_back(house, Change(join_pilot, house.live, "stamp1-join", "nonce", {}))
    assert house.live.pilots.running == {pilot, stays}
    assert len(house.claim(pilot)) == 1


# --- one that had ended before -----------------------------------------------------------------------------


def left_behind(house, state):
    """A pilot that has ended and holds an attempt, a token and a request all the same, as older servers left them."""
    house.submit()
    pilot = house.pilot()
    house.claim(pilot)
    answers = []
    assert house.do(Together(house.claim_command(pilot, wait=True, answer=answers.append))) == [PARKED]
    with house.writer:
        house.writer.execute("UPDATE pilot SET state = ?, ended_at = 5 WHERE id = ?", (state.value, pilot))
    return pilot, answers


@pytest.mark.parametrize("state", [PilotState.DONE, PilotState.ABORTED])
def test_what_an_ended_pilot_left_behind_is_cleared(house, state):
    pilot, answers = left_behind(house, state)
    assert house.end_pilot(pilot) == 1
    assert (house.state(1), live_attempts(house), answers) == ("Waiting", 0, [[]])
    assert (state_of(house, pilot), tokens(house, pilot)) == (state.value, [])
    assert house.live.pilots.running == set()
    assert house.end_pilot(pilot) == 0


def test_a_lost_pilot_is_cleaned_up_and_may_still_report(house):
    pilot, _ = left_behind(house, PilotState.LOST)
    assert house.end_pilot(pilot, PilotState.ABORTED) == 1
    assert tokens(house, pilot) == [("pilot", house.clock + LATE_SECONDS)]


def test_a_second_end_neither_revokes_nor_renews_the_late_token(house):
    house.submit()
    pilot = house.pilot()
    house.claim(pilot)
    house.end_pilot(pilot)
    until = house.clock + LATE_SECONDS
    house.clock += 500
    for state in ENDS:
        assert house.end_pilot(pilot, state) == 0
    assert (state_of(house, pilot), tokens(house, pilot)) == ("Lost", [("pilot", until)])


def test_the_end_of_a_pilot_that_never_was(house):
    with pytest.raises(NotFound):
        house.end_pilot(99)


# --- refused submissions -----------------------------------------------------------------------------------


def prepare(house, stamp):
    """A pilot that was stored and of whose submission nothing was heard yet."""
    new = NewPilot(
        stamp=stamp, vo="vo", site="S1", ce="ce", queue="q", request={}, join_hash=hash_token(stamp + "-join")
    )
    return house.do(Change(prepare_pilots, house.live, [new]))[0]


def refuse(house, stamp):
    return house.do(Change(pilots_submitted, house.live, {stamp: (None, "it took too long")}))


def test_a_pilot_that_was_refused_is_aborted_and_cannot_join(house):
    pilot = prepare(house, "late")
    refuse(house, "late")
    assert (state_of(house, pilot), tokens(house, pilot)) == ("Aborted", [])
    with pytest.raises(Unauthorized):
        house.do(Change(join_pilot, house.live, "late-join", "nonce", {}))


def test_a_pilot_that_runs_is_not_ended_by_a_refusal(house, caplog):
    """The batch system took it though it did not say so in time: it joined and claimed before the refusal came."""
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    with caplog.at_level(logging.WARNING):
        refuse(house, "stamp1")
    assert [(line.stamp, line.state) for line in caplog.records] == [("stamp1", "Running")]
    assert (state_of(house, pilot), house.state(1)) == ("Running", "Matched")
    assert house.report(pilot, claimed).accepted
    assert house.state(1) == "Done"
    assert house.claim(pilot) == []


def test_a_pilot_whose_reference_is_known_is_not_ended_by_a_refusal(house):
    pilot = prepare(house, "found")
    house.do(Change(pilots_submitted, house.live, {"found": ("77", "")}))
    refuse(house, "found")
    assert state_of(house, pilot) == "Submitted"
    house.do(Change(join_pilot, house.live, "found-join", "nonce", {}))
    assert state_of(house, pilot) == "Running"


def test_a_refusal_of_one_that_has_ended_changes_nothing(house):
    pilot = house.pilot()
    house.end_pilot(pilot, PilotState.DONE)
    refuse(house, "stamp1")
    assert state_of(house, pilot) == "Done"
