"""Task queues that the index drops while they are empty: the claims of their jobs still count."""

from tests.conftest import all_suspects

from lodesman.server.store.journal import Change
from lodesman.server.writer.upkeep import forget_idle_queues, reconcile
from lodesman.wire.service import Suspects

LONG = 100_000.0


def write_claims(house):
    """Any command that writes down what follows from claims."""
    house.do(Change(reconcile, house.live, Suspects()))


def test_a_task_queue_that_claims_emptied_has_a_zero_count_when_it_is_dropped(house):
    house.submit(3)
    pilot = house.pilot()
    assert len(house.claim(pilot, 3)) == 3
    house.clock += LONG
    house.do(Change(forget_idle_queues, house.live))
    assert not house.live.queues.index.has(1)
    write_claims(house)
    found = all_suspects(house.reader)
    assert (found.jobs, found.queues) == ([], [])
    house.restart()
    assert house.live.queues.index.has(1) is False
    assert house.counts() == {"Matched": 3}


def test_a_job_that_comes_back_to_a_dropped_task_queue_is_its_only_one(house):
    house.submit(3)
    pilot = house.pilot()
    first, *_ = house.claim(pilot, 3)
    house.clock += LONG
    house.do(Change(forget_idle_queues, house.live))
    write_claims(house)
    house.report(pilot, first, "Released", cause="pilot-shutdown")
    assert house.live.queues.index.waiting(1) == 1
    house.restart()
    assert house.live.queues.index.waiting(1) == 1
    assert [one.job_id for one in house.claim(house.pilot(), 9)] == [first.job_id]
    assert set(house.reconcile().values()) == {0}


def test_a_queue_that_is_not_empty_stays(house):
    house.submit(3)
    house.claim(house.pilot(), 2)
    house.clock += LONG
    house.do(Change(forget_idle_queues, house.live))
    assert house.live.queues.index.waiting(1) == 1
