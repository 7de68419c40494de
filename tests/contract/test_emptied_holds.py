"""A held task queue that was empty at a refresh: jobs that join before the refresh is applied stay Held."""

from __future__ import annotations

import pytest

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.store.journal import Change
from lodesman.server.store.statement import ANY
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.submit_pools import judge_queues
from lodesman.wire.service import QueueVerdicts

SLOW = Policy(load_resources([("sites.toml", "[site.S1.ce.ce.queue.q]\nCPUTime = 10\n")]))
FAST = Policy(load_resources([("sites.toml", "[site.S1.ce.ce.queue.q]\nCPUTime = 1000\n")]))


@pytest.fixture
def emptied(house):
    """A held task queue whose jobs were killed: its number."""
    first = house.submit(2).first
    house.refresh(SLOW)
    assert house.counts() == {"Held": 2}
    house.control("kill", first, first + 1)
    assert list(house.live.queues.held) == [1]
    return 1


def word(house, tq_id, reason=""):
    """The result of a refresh whose snapshot is from when the task queue was empty."""
    return Change(
        judge_queues,
        house.live,
        QueueVerdicts(number=house.live.pools.last_pass.id, release=[(tq_id, reason)]),
    )


def holds(house):
    return [row[0] for row in house.reader.execute("SELECT tq_id FROM task_queue_hold")]


def test_an_empty_task_queue_is_released(house, emptied):
    assert house.do(word(house, emptied)) == {"held": 0, "released": 0}
    assert (house.live.queues.held, holds(house)) == ({}, [])


@pytest.mark.parametrize("rows", [False, True])
def test_a_job_that_joined_between_snapshot_and_command_stays_held(house, emptied, rows):
    job = house.submit(3, rows=rows).first
    assert house.do(word(house, emptied)) == {"held": 0, "released": 0}
    assert house.counts() == {"Killed": 2, "Held": 3}
    assert house.job(job).held_by == "impossible"
    assert "CPUTime" in house.job(job).reason
    assert (list(house.live.queues.held), holds(house)) == ([emptied], [emptied])
    assert house.claim(house.pilot()) == []
    assert set(house.reconcile().values()) == {0}


def test_the_next_refresh_judges_the_jobs_that_joined(house, emptied):
    house.submit(3)
    house.do(word(house, emptied))
    house.refresh(SLOW)
    assert house.counts()["Held"] == 3
    house.refresh(FAST)
    assert house.counts()["Waiting"] == 3
    assert len(house.claim(house.pilot(), 9)) == 3


def test_a_job_that_comes_back_between_snapshot_and_command_stays_held_too(house, emptied):
    house.control("reschedule", 1)
    house.do(word(house, emptied))
    assert house.state(1) == "Held"


def test_a_queue_that_can_run_it_releases_all_its_jobs(house, emptied):
    house.submit(3)
    assert house.do(word(house, emptied, "S1/ce/q can run it now")) == {"held": 0, "released": 3}
    assert house.counts() == {"Killed": 2, "Waiting": 3}


def test_one_that_is_not_held_is_left_alone(house):
    house.submit()
    for reason in ("", "S1/ce/q can run it now"):
        assert house.do(word(house, 1, reason)) == {"held": 0, "released": 0}
    assert (house.counts(), holds(house)) == ({"Waiting": 1}, [])


def test_a_release_of_a_batch_that_failed_is_none(house, emptied):
    tx = Transaction(house.writer, house.clock)
    reason = house.live.queues.held[emptied]
    house.writer.begin()
    word(house, emptied).apply(tx)
    with pytest.raises(Exception, match="nothing"):
        tx.write("SELECT nothing", rows=ANY)
    house.writer.roll_back()
    tx.roll_back_memory()
    assert house.live.queues.held == {emptied: reason}
    job = house.submit().first
    assert house.state(job) == "Held"
