"""How old a snapshot may be, and what is said of the director meanwhile."""

from __future__ import annotations

import pytest

from lodesman.decide.explain.facts import DirectorState, SnapshotFacts
from lodesman.server.loops.left_out import StepPass
from lodesman.server.loops.snapshot import SnapshotKeeper

RECORD = '{"row_fields": ["tq_id", "asked", "cap"], "rows": [], "asks": [], "no_pool": [], "plan": {}, "rooms": {}}'


@pytest.fixture
def keeper(base):
    """A keeper whose refreshes take 5 seconds, as under hundreds of thousands of task queues."""
    found = SnapshotKeeper(base.db)
    found.iterate = lambda at: base.writer.execute(
        "INSERT INTO director_iteration (at, plan) VALUES (?, ?)", (at, RECORD)
    )
    found.iterate(1_000.0)
    found.refresh(1_000.0)
    found._cost = 5.0
    return found


@pytest.mark.parametrize("rest", [1.0, 5.0])
def test_an_expensive_snapshot_is_read_anew_before_it_is_a_minute_old(keeper, rest):
    keeper.refresh(1_040.0, rest=rest)
    assert keeper.snapshot.at == 1_000.0
    keeper.refresh(1_051.0, rest=rest)
    assert keeper.snapshot.at == 1_051.0


@pytest.mark.parametrize("cost", [0.01, 0.05, 0.2])
def test_with_ten_thousand_task_queues_it_is_never_older_than_five_seconds(keeper, cost):
    """If anything changed; also after a refresh that cost ten times the usual, since an iteration was read."""
    keeper._cost = cost
    keeper.iterate(1_001.0)
    keeper.refresh(1_004.5)
    assert keeper.snapshot.at == 1_004.5


def test_a_refresh_that_takes_minutes_rests_as_long(keeper):
    keeper._cost = 100.0
    keeper.refresh(1_099.0)
    assert keeper.snapshot.at == 1_000.0


def test_a_director_that_decides_is_never_said_to_be_idle(keeper):
    keeper.fresh_seconds = 20.0
    keeper.snapshot = keeper._read(1_000.0, StepPass("", {}))
    keeper.iterate(1_030.0)
    keeper.refresh(1_040.0)
    facts = SnapshotFacts(snapshot=keeper.snapshot, now=1_040.0)
    assert facts.decision is not None
    assert facts.decided_age == 40.0, "of the iteration that is shown"
    late = SnapshotFacts(snapshot=keeper.snapshot, now=1_060.0)
    assert late.decision is None
    assert late.undecided().endswith("for 30 s")


def test_the_age_of_the_look_is_told_apart_from_that_of_the_decision(keeper):
    """A director that has nothing to decide stores nothing, and is at work all the same."""
    keeper.ask_director = lambda: DirectorState(iterated_at=1_050.0)
    keeper.refresh(1_051.0)
    facts = SnapshotFacts(snapshot=keeper.snapshot, now=1_052.0)
    assert (facts.decided_age, facts.iterated_age) == (52.0, 2.0)
