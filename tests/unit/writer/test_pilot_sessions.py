"""What a pilot may match: its queue's configuration, what its node says, what is free, the pools it serves."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.unit.writer.conftest import Pools

from lodesman.decide.resources import QueueId
from lodesman.server.store.read.pilots import PilotRow
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.sessions import (
    UNLIMITED,
    ConfiguredOffer,
    FreeResources,
    PilotSession,
    is_silent,
    presented_by,
)
from lodesman.wire.vocabulary import PilotState

QUEUE = QueueId("North", "cn", "short")


def row(node=None, **request) -> PilotRow:
    return PilotRow(
        1, "stamp", PilotState.RUNNING, "lab", "ann", "physics", "private", "Local", *QUEUE, "native", "", 0,
        5, 0.0, 0.0, 0.0, 0.0, None, 0, "local", "", None, None, None, json.dumps(request),
        msgspec.json.encode(node or {}).decode(),
    )  # fmt: skip


def session(node=None, **request) -> PilotSession:
    return PilotSession(row(node, **request), now=0.0)


FREE = FreeResources(4, 2_000, 1_000)


def amounts(found):
    offer = found.offer
    return offer.platforms, offer.cores, offer.memory_mb


def test_configuration_comes_before_the_node_which_may_have_less():
    node = {"platform": "vax", "cores": 64, "memory_mb": 900}
    found = session(node, platforms=["el9", "el8"], cores=8, memory_mb=500)
    assert amounts(found) == (("el9", "el8"), 8, 500)
    assert found.offer.norm_cpu_seconds == UNLIMITED
    assert amounts(session(node, platforms=["el9"], cores=80, memory_mb=5_000)) == (("el9",), 64, 900)


def test_a_node_cannot_add_what_its_queue_does_not_declare():
    """Submission and `why` call it never: no pilot may be given it."""
    node = {"platform": "vax", "cores": 64, "memory_mb": 900}
    assert amounts(session(node, platforms=[], cores=1, memory_mb=0)) == ((), 1, 0)


def test_any_memory_is_what_the_node_has():
    assert session({"memory_mb": 900}, memory_mb=UNLIMITED).offer.memory_mb == 900
    assert session({}, memory_mb=UNLIMITED).offer.memory_mb == UNLIMITED


def test_of_a_pilot_that_was_sent_to_no_known_queue_the_node_says_all():
    assert amounts(session({"platform": "vax", "cores": 64, "memory_mb": 9})) == (("vax",), 64, 9)


def test_undeclared_is_one_core_and_unlimited_memory():
    assert amounts(session()) == ((), 1, UNLIMITED)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["platform", "cores", "memory_mb", "norm_cpu_seconds", "tags", "life_s", "cpu_scaling_factor"]
        ),
        values,
    )
)
def test_whatever_a_node_says_a_request_can_be_made(node):
    found = session(node)
    request = found.request(FREE, PoolMap())
    hash(request)
    assert 1 <= found.offer.cores <= UNLIMITED
    assert 1 <= found.offer.memory_mb <= UNLIMITED
    assert 0 <= found.whole(10.0**9).norm_cpu_seconds <= UNLIMITED
    assert all(isinstance(one, str) for one in request.platforms)


@given(cores=st.integers(0, 100), memory=st.integers(0, 10_000), cpu=st.integers(0, 10_000))
def test_no_more_is_offered_than_is_free_and_than_the_queue_has(cores, memory, cpu):
    found = session(cores=8, memory_mb=5_000, norm_cpu_seconds=5_000)
    request = found.request(FreeResources(cores, memory, cpu), PoolMap())
    assert request.cores == min(cores, 8)
    assert request.memory_mb == min(memory, 5_000)
    assert request.norm_cpu_seconds <= min(cpu, 5_000)
    assert cpu - request.norm_cpu_seconds < 60 or request.norm_cpu_seconds == 5_000


def test_the_request_is_made_once_per_free_minute():
    found, pools = session(cores=8), PoolMap()
    first = found.request(FreeResources(4, 100, 600), pools)
    assert found.request(FreeResources(4, 100, 659), pools) is first
    assert found.request(FreeResources(4, 100, 660), pools) is not first
    for cores in range(100):
        found.request(FreeResources(cores, 100, 600), pools)
    assert len(found._made[1]) < 50


def test_a_private_pilot_presents_its_owner_and_its_one_group():
    request = session().request(FREE, PoolMap())
    assert (request.owner, request.groups, request.pilot_type) == ("ann", ("physics",), "private")
    assert (request.site, request.ce, request.queue, request.submission_pool) == (*QUEUE, "Local")


def test_pools_are_served_as_soon_as_they_are_known():
    found, pools = session(), Pools([("req1:a", *QUEUE)])
    assert found.request(FREE, pools).submit_pools == ("req1:a",)
    pools.add("req1:b", [QUEUE, ("South", "cs", "long")])
    assert found.request(FREE, pools).submit_pools == ("req1:a", "req1:b")


def test_as_long_as_a_queue_serves_the_same_pools_the_request_is_the_same():
    found, pools = session(), Pools([("req1:a", *QUEUE)])
    first = found.request(FREE, pools)
    pools.add("req1:b", [("South", "cs", "long")])
    assert found.request(FREE, pools) is first
    pools.put({"req1:b": None})
    assert found.request(FREE, pools) == first
    pools.put({"req1:a": None})
    assert found.request(FREE, pools).submit_pools == ()


@pytest.mark.parametrize("drain", [0, 1])
def test_a_drain_survives_a_restart(drain):
    assert PilotSession(structs.replace(row(), drain=drain), now=0.0).drain is bool(drain)


# --- what is left of its life ----------------------------------------------------------------------------

MORTAL = {"life_s": 1_000.0, "cpu_scaling_factor": 2.0}


def joined(node, at=0.0, **request) -> PilotSession:
    return PilotSession(structs.replace(row(node, **request), joined_at=at), now=0.0)


@pytest.mark.parametrize(
    ("now", "left"), [(0.0, 2_000), (100.0, 1_800), (1_000.0, 0), (9_000.0, 0), (-50.0, 2_100)]
)
def test_what_is_left_of_a_life_gets_less(now, left):
    assert joined(MORTAL).whole(now).norm_cpu_seconds == left


@pytest.mark.parametrize(
    ("node", "left"),
    [
        ({}, UNLIMITED),
        ({"life_s": None}, UNLIMITED),
        ({"life_s": "long"}, UNLIMITED),
        ({"life_s": True}, UNLIMITED),
        ({"life_s": -1}, UNLIMITED),
        ({"life_s": 10**400}, UNLIMITED - 100),
        ({"life_s": 1_000}, 900),
        ({"life_s": 1_000, "cpu_scaling_factor": "fast"}, 900),
    ],
)
def test_a_life_without_a_reported_end_has_none(node, left):
    assert joined(node).whole(100.0).norm_cpu_seconds == left


def test_no_more_is_left_than_the_queue_allows():
    found = joined(MORTAL, norm_cpu_seconds=700)
    assert [found.whole(now).norm_cpu_seconds for now in (0.0, 600.0, 700.0)] == [700, 700, 600]


def test_before_it_joins_a_pilot_has_all_its_life_before_it():
    found = PilotSession(structs.replace(row(MORTAL, norm_cpu_seconds=700), joined_at=None), now=0.0)
    assert found.whole(10.0**6).norm_cpu_seconds == 700


@given(
    now=st.floats(0.0, 2_000.0), scaling=st.sampled_from([0.5, 1.0, 3.0]), limit=st.sampled_from([500, UNLIMITED]),
    cores=st.integers(1, 8), memory_mb=st.integers(0, 4_000),
)  # fmt: skip
def test_claim_why_and_director_present_the_same(now, scaling, limit, cores, memory_mb):
    """An idle pilot that says what it has left, a book that reckons it, and a director that reads it."""
    node = {"cores": 4, "memory_mb": 2_000, "life_s": 1_000.0, "cpu_scaling_factor": scaling}
    found = joined(
        node, vo="lab", groups=["physics"], owner="ann", pilot_type="private", submission_pool="Local",
        platforms=[], cores=cores, memory_mb=memory_mb, norm_cpu_seconds=limit,
    )  # fmt: skip
    left = int(max(0.0, 1_000.0 - now) * scaling)
    by_claim = found.request(FreeResources(4, 2_000, left), PoolMap())
    by_book = found.request(found.whole(now), PoolMap())
    stored = row(
        vo="lab", groups=["physics"], owner="ann", pilot_type="private", submission_pool="Local",
        platforms=[], cores=cores, memory_mb=memory_mb, norm_cpu_seconds=limit,
    )  # fmt: skip
    by_director = presented_by(stored.request, json.dumps(node), QUEUE, joined_at=0.0, now=now)
    assert by_claim == by_book == by_director


@pytest.mark.parametrize(("seen", "silent"), [(None, False), (1_000.0, False), (700.0, False), (699.0, True)])
def test_a_pilot_without_a_heartbeat_for_five_minutes_is_silent(seen, silent):
    assert is_silent(seen, 1_000.0) == silent


# --- a queue that changes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({}, (("el8",), 2, 1_000)),
        ({"platform": "el9", "cores": 16, "memory_mb": 64_000}, (("el9",), 16, 64_000)),
        ({"platform": "el9", "cores": 1}, (("el9",), 1, 1_000)),
        ({"platform": "", "cores": 0, "memory_mb": -1}, (("el8",), 2, 1_000)),
        ({"platform": ["x"], "cores": "many", "memory_mb": True}, (("el8",), 2, 1_000)),
    ],
)
def test_what_a_described_node_reports_counts_where_it_reports_something(node, found):
    there = session(node, platforms=["el8"], cores=2, memory_mb=1_000, described=True)
    assert amounts(there) == found
    there.offer_anew(ConfiguredOffer(platforms=("el7",), cores=2, memory_mb=1_000))
    changed = ("el7",) if found[0] == ("el8",) else found[0]
    assert amounts(there) == (changed, *found[1:])


def test_a_changed_queue_changes_the_next_request_and_can_be_put_back():
    found, pools = session({"cores": 4}, cores=8, memory_mb=500, tags=["a"]), PoolMap()
    before = found.request(FREE, pools)
    made = found.offer_anew(
        ConfiguredOffer(platforms=(), cores=8, memory_mb=400, tags=("b",), norm_cpu_seconds=60)
    )
    now = found.request(FREE, pools)
    assert (now.tags, now.memory_mb, now.norm_cpu_seconds, now.cores) == (("b",), 400, 60, 4)
    assert (now.owner, now.groups, now.pilot_type) == (before.owner, before.groups, before.pilot_type)
    found.put_back(made)
    assert found.request(FREE, pools) is before


def test_a_queue_that_is_as_it_was_changes_nothing():
    found = session({"cores": 4}, platforms=[], cores=8, memory_mb=500, norm_cpu_seconds=60)
    assert (
        found.offer_anew(ConfiguredOffer(platforms=(), cores=8, memory_mb=500, norm_cpu_seconds=60)) is None
    )
