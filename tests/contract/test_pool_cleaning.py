"""SubmitPools that no job needs are removed after a grace time, and made again by a job that needs one after all."""

import pytest

from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import spelled_requirements, submit_pool_id
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.server.store.journal import Change
from lodesman.server.store.submit_pools import list_pools, pass_requests, stored_pools
from lodesman.server.writer.submit import NewPool
from lodesman.server.writer.submit_pools import clean_pools
from lodesman.wire.service import PoolCleaning

S1 = ("S1", "ce", "q")
POLICY = Policy(load_resources([("s.toml", "[site.S1.ce.ce.queue.q]\nMemory = 4000\nCPUTime = 1000\n")]))
TYPES = POLICY.config.types
POOL = submit_pool_id(compile_requirements({"Memory": 4000}, TYPES), "vo")
GRACE = 3_600.0


def new_pool(memory=4000):
    wanted = {"Memory": memory}
    return NewPool(
        id=submit_pool_id(compile_requirements(wanted, TYPES), "vo"), vo="vo",
        requirements=spelled_requirements(compile_requirements(wanted, TYPES)),
        queues=0b1,
    )  # fmt: skip


def submit(house, count=1, **more):
    return house.submit(count, key=house.key(submit_pool=POOL), pools=[new_pool()], **more).first


def told(house):
    """(queues, time of the last refresh) of the only pool, as shown."""
    (row,) = list_pools(house.reader, "").pools
    return row.queues, row.refreshed_at


def pools(house):
    return [row.id for row in stored_pools(house.reader)]


@pytest.fixture
def later(house):
    """Let time pass and refresh twice: once to mark an unused pool, once to remove it."""
    keeper = house.keeper(POLICY, grace=GRACE)
    keeper.tick(POLICY, house.clock)

    def pass_time(seconds=GRACE):
        keeper.clean(house.clock)
        house.clock += seconds
        keeper.clean(house.clock)
        return pools(house)

    return pass_time


def finish(house, first, count=1):
    pilot = house.pilot()
    for claimed in house.claim(pilot, count):
        house.report(pilot, claimed)
    return {house.state(first + n) for n in range(count)} == {"Done"}


def test_a_pool_without_jobs_goes_after_the_grace_time(house, later):
    first = submit(house, 3)
    assert finish(house, first, 3)
    assert later(GRACE - 1) == [POOL]
    assert later(1) == []
    assert house.live.pools.of_queue(S1).pools == ()
    house.restart()
    assert house.live.pools.of_queue(S1).pools == ()


def test_pools_that_jobs_need_stay(house, later):
    waiting = submit(house, 2)
    assert later() == [POOL]
    (running,) = house.claim(house.pilot())
    house.control("kill", waiting + 1)
    assert later() == [POOL]
    house.report(1, running, "Released", cause="pilot-lost")
    house.control("hold", waiting)
    assert later() == [POOL]
    house.control("kill", waiting)
    assert later() == []


def test_pools_of_members_that_a_person_holds_stay(house, later):
    first = submit(house, 3)
    house.control("hold", first, first + 2)
    assert later() == [POOL]
    house.control("release", first, first + 2)
    assert later() == [POOL]


def test_pools_of_jobs_that_nothing_can_run_stay(house, later):
    submit(house, 2)
    house.refresh(Policy(load_resources([("s.toml", "[site.S1.ce.ce.queue.q]\nMemory = 1\n")])))
    assert house.counts() == {"Held": 2}
    assert later() == [POOL]


def test_a_job_that_comes_in_time_keeps_the_pool(house, later):
    assert finish(house, submit(house))
    assert later(GRACE / 2) == [POOL]
    submit(house)
    assert stored_pools(house.reader).__next__().unused_since is None
    assert later() == [POOL]


def test_a_pool_is_not_removed_if_it_is_used_after_the_check(house):
    assert finish(house, submit(house))
    keeper = house.keeper(POLICY, grace=GRACE)
    keeper.clean(house.clock)
    house.clock += 2 * GRACE
    stale = PoolCleaning(remove=[POOL], unused_before=house.clock - GRACE)
    job = submit(house)
    assert house.do(Change(clean_pools, house.live, stale)) == 0
    assert pools(house) == [POOL]
    assert [claimed.job_id for claimed in house.claim(house.pilot())] == [job]


def test_a_mark_that_comes_too_late_is_taken_back(house, later):
    submit(house)
    house.do(Change(clean_pools, house.live, PoolCleaning(mark=[POOL])))
    assert later(10 * GRACE) == [POOL]


@pytest.mark.parametrize("count", [1, 3], ids=["row", "array"])
def test_a_rescheduled_job_makes_its_pool_again(house, later, count):
    first = submit(house, count)
    house.control("kill", first, first + count - 1)
    assert later() == []
    house.control("reschedule", first, first + count - 1)
    assert pools(house) == [POOL]
    assert pass_requests(house.reader).is_due
    assert house.claim(house.pilot(), 5) == []
    assert told(house) == (None, None)  # its queues are not evaluated yet
    keeper = house.keeper(POLICY)
    keeper._version, keeper._at = POLICY.version, house.clock
    assert keeper.tick(POLICY, house.clock) == "request"
    assert not pass_requests(house.reader).is_due
    assert told(house) == (1, house.clock)
    stored = next(stored_pools(house.reader))
    assert stored.requirements == new_pool().requirements
    assert stored.vo == "vo"
    assert len(house.claim(house.pilot(), 5)) == count


def test_a_job_that_is_submitted_anew_makes_its_pool_again(house, later):
    assert finish(house, submit(house))
    assert later() == []
    job = submit(house)
    assert [claimed.job_id for claimed in house.claim(house.pilot())] == [job]
    assert pools(house) == [POOL]


def test_a_pool_that_was_made_again_is_evaluated_by_the_next_job_already(house, later):
    first = submit(house)
    house.control("kill", first)
    later()
    house.control("reschedule", first)
    house.clock += 5
    submit(house)
    assert told(house) == (1, house.clock)
    house.restart()
    assert len(house.claim(house.pilot(), 5)) == 2


def test_a_pool_that_no_queue_serves_is_known_to_be_so(house, later):
    first = submit(house)
    house.control("kill", first)
    later()
    house.control("reschedule", first)
    house.refresh(Policy(load_resources([("s.toml", "[site.S1.ce.ce.queue.q]\nMemory = 1\n")])))
    assert told(house) == (0, house.clock)


def test_a_failed_job_that_comes_back_after_a_restart_finds_its_requirements(house, later):
    first = submit(house)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Failed", cause="exit", exit_code=1)
    assert later() == []
    house.restart()
    house.control("reschedule", first)
    house.refresh(POLICY)
    assert [claimed.job_id for claimed in house.claim(house.pilot())] == [first]


def test_a_removal_that_is_rolled_back_leaves_the_pool_served(house, later):
    assert finish(house, submit(house))
    house.keeper(POLICY, grace=GRACE).clean(house.clock)
    house.clock += 2 * GRACE

    class Fault:
        def apply(self, tx):
            clean_pools(tx, house.live, PoolCleaning(remove=[POOL], unused_before=house.clock))
            assert house.live.pools.of_queue(S1).pools == ()
            raise ZeroDivisionError

    with pytest.raises(Exception, match="nothing was stored"):
        house.do(Fault())
    assert pools(house) == [POOL]
    assert house.live.pools.of_queue(S1).pools == (POOL,)


@pytest.mark.slow
@pytest.mark.stores
def test_many_pools_go_in_parts(house):
    keeper = house.keeper(POLICY, grace=0.0)
    for number in range(450):
        pool = new_pool(number + 1)
        job = house.submit(key=house.key(submit_pool=pool.id), pools=[pool]).first
        house.control("kill", job)
    house.submit(key=house.key(submit_pool=POOL), pools=[new_pool()])
    assert keeper.clean(house.clock) == 0
    house.clock += 1
    assert keeper.clean(house.clock) == 450
    assert pools(house) == [POOL]
    assert house.live.pools.of_queue(S1).pools == (POOL,)
