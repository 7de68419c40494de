"""SubmitPools and shares when the configuration changes."""

import msgspec
from tests.contract.test_jobs_walk import parked

from lodesman.matching import GroupShare, canonical_requirements
from lodesman.resources import load_resources
from lodesman.services.policy import Policy
from lodesman.services.refresh import RefreshPools, SetShares, pool_queues
from lodesman.services.sessions import load_pools
from lodesman.services.submit import NewPool

SITES = """
[site.S1.ce.ce.queue.q]
Memory = {one}
[site.S2.ce.ce.queue.q]
Memory = {two}
"""


def policy(one, two):
    return Policy(load_resources([("sites.toml", SITES.format(one=one, two=two))]))


def with_pool(house, memory, queues):
    types = policy(1, 1).config.types
    pool = NewPool(
        id="req1:m",
        requirements=canonical_requirements({"Memory": memory}, types),
        vo="vo",
        queues=tuple(queues),
    )
    return house.submit(key=house.key(submit_pool="req1:m"), pools=[pool])


def test_pools_are_evaluated_as_things_are_now(house):
    with_pool(house, 4000, [("S1", "ce", "q")])
    assert pool_queues(house.reader, policy(4000, 2000)) == {"req1:m": [("S1", "ce", "q")]}
    assert pool_queues(house.reader, policy(2000, 8000)) == {"req1:m": [("S2", "ce", "q")]}
    assert pool_queues(house.reader, policy(2000, 2000)) == {"req1:m": []}


def test_a_queue_that_is_no_more_eligible_gets_no_job(house):
    with_pool(house, 4000, [("S1", "ce", "q")])
    pilot = house.pilot("S1")
    assert house.do(RefreshPools(house.live, {"req1:m": []})) == 1
    assert house.claim(pilot) == []


def test_a_queue_that_becomes_eligible_gets_the_job_at_once(house):
    with_pool(house, 4000, [("S1", "ce", "q")])
    _, answer = parked(house, house.pilot("S2"))
    house.do(RefreshPools(house.live, {"req1:m": [("S2", "ce", "q")]}))
    house.submit(key=house.key(submit_pool="req1:m"))
    assert len(answer()) == 1


def test_the_time_stamp_moves_even_when_nothing_changed(house):
    with_pool(house, 4000, [("S1", "ce", "q")])
    house.clock += 900
    assert house.do(RefreshPools(house.live, {"req1:m": [("S1", "ce", "q")]})) == 0
    stamp = house.reader.execute("SELECT refreshed_at FROM submit_pool").fetchone()[0]
    assert stamp == house.clock


def test_the_new_mapping_survives_a_restart(house):
    with_pool(house, 4000, [("S1", "ce", "q")])
    house.do(RefreshPools(house.live, {"req1:m": [("S2", "ce", "q")]}))
    house.restart()
    assert load_pools(house.reader).of_queue(("S2", "ce", "q")) == ("req1:m",)
    assert load_pools(house.reader).of_queue(("S1", "ce", "q")) == ()


def test_pools_that_are_not_named_keep_their_queues(house):
    with_pool(house, 4000, [("S1", "ce", "q")])
    house.do(RefreshPools(house.live, {"req1:other": [("S1", "ce", "q")]}))
    assert house.live.pools.of_queue(("S1", "ce", "q")) == ("req1:m", "req1:other")


def test_requirements_that_cannot_be_read_any_more_have_no_queue(house):
    pool = NewPool(
        id="req1:x",
        requirements=msgspec.json.encode({"memory": ["number", ["lots"]]}).decode(),
        vo="vo",
        queues=(),
    )
    house.submit(key=house.key(submit_pool="req1:x"), pools=[pool])
    assert pool_queues(house.reader, policy(1, 1)) == {"req1:x": []}


def test_new_shares_hold_from_the_next_claim_on(house):
    house.submit(200, key=house.key(group="a"))
    house.submit(200, key=house.key(group="b"))
    pilot = house.pilot(cores=1000)
    house.do(SetShares(house.live, {"a": GroupShare(share=1_000_000), "b": GroupShare(share=1)}))
    claimed = house.claim(pilot, 50)
    assert sum(c.job_id <= 200 for c in claimed) >= 48
    house.do(SetShares(house.live, {"a": GroupShare(share=1), "b": GroupShare(share=1_000_000)}))
    claimed = house.claim(pilot, 50)
    assert sum(c.job_id > 200 for c in claimed) >= 48
