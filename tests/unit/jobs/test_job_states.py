"""The table of job states: complete, and without a state that nothing leads out of by mistake."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from lodesman.languages.jobs.spec import _MOVES, ACTIVE, TERMINAL, may_move
from lodesman.server.config import ServerFile
from lodesman.wire.vocabulary import JobState

ADR = Path(__file__).parents[3] / "docs" / "adr" / "0026-states-a-job-can-be-in.md"


def test_every_state_has_its_moves_and_none_to_itself():
    assert set(_MOVES) == set(JobState)
    assert all(state not in moves for state, moves in _MOVES.items())


def test_only_deleted_is_the_very_end():
    assert [state for state, moves in _MOVES.items() if not moves] == [JobState.DELETED]


def test_every_state_can_be_reached_from_a_submission():
    reached, new = set(), {JobState.WAITING, JobState.HELD}
    while new:
        reached |= new
        new = {after for state in new for after in _MOVES[state]} - reached
    assert reached == set(JobState)


def test_states_that_end_and_states_on_a_node_do_not_overlap():
    assert not TERMINAL & ACTIVE
    for state in ACTIVE:
        assert any(may_move(state, end) for end in TERMINAL)


def test_a_claim_and_its_way_back():
    assert may_move(JobState.WAITING, JobState.MATCHED)
    assert may_move(JobState.MATCHED, JobState.WAITING)
    assert not may_move(JobState.DONE, JobState.RUNNING)
    assert not may_move(JobState.DELETED, JobState.WAITING)
    assert JobState("Held") is JobState.HELD


# --- every state has an owner and a timer: the table of ADR 0026 -------------------------------------------


def owners():
    """State -> (owner, timer), as the decision record lists them."""
    text = ADR.read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return {JobState(state): (owner, timer) for state, owner, timer in rows[2:]}


def test_every_state_that_is_not_the_end_has_an_owner_and_a_timer():
    assert set(owners()) == set(JobState) - TERMINAL
    assert all(owner and timer for owner, timer in owners().values())


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL))
def test_the_timer_of_a_state_is_a_setting_that_exists(state):
    names = re.findall(r"`(\w+)\.(\w+)`", owners()[state][1])
    assert names
    sections = {one.name: one.type for one in msgspec.structs.fields(ServerFile)}
    for section, option in names:
        if (section, option) != ("director", "PollingTime"):  # a table of the seed's words
            assert option in {one.name for one in msgspec.structs.fields(sections[section])}


def test_what_a_pilot_has_is_timed_by_its_lease():
    for state in ACTIVE:
        assert "`pilots.lease_seconds`" in owners()[state][1]
        assert may_move(state, JobState.WAITING)


@pytest.mark.parametrize("word", ["Submitting", "Received", "Checking", "Staging", "Completed"])
def test_there_is_no_state_that_no_job_is_ever_in(word):
    with pytest.raises(ValueError, match=word):
        JobState(word)


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        _MOVES[JobState.DONE] = frozenset()  # type: ignore[index]
