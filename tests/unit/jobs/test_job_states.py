"""The table of job states: complete, and without a state that nothing leads out of by mistake."""

from __future__ import annotations

from lodesman.jobs import ACTIVE, MOVES, TERMINAL, JobState, may_move


def test_every_state_has_its_moves_and_none_to_itself():
    assert set(MOVES) == set(JobState)
    assert all(state not in moves for state, moves in MOVES.items())


def test_only_deleted_is_the_very_end():
    assert [state for state, moves in MOVES.items() if not moves] == [JobState.DELETED]


def test_every_state_can_be_reached_from_a_submission():
    reached, new = set(), {JobState.SUBMITTING}
    while new:
        reached |= new
        new = {after for state in new for after in MOVES[state]} - reached
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
