"""What a pilot may match: its queue's configuration, what its node says, what is free, the pools it serves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.services.pool_map import PoolMap
from lodesman.services.sessions import UNLIMITED, Free, PilotSession
from lodesman.store.pilots import PilotRow, PilotState

QUEUE = ("North", "cn", "short")


def row(**request) -> PilotRow:
    return PilotRow(
        1, "stamp", PilotState.RUNNING, "lab", "ann", "physics", "private", "Local", 5, *QUEUE, "{}",
        json.dumps(request), "{}", "native", 0.0, 0.0, 0.0, 0.0, None, 0, "", 0,
    )  # fmt: skip


def session(node=None, **request) -> PilotSession:
    return PilotSession(row(**request), node or {}, now=0.0)


FREE = Free(4, 2_000, 1_000)


def test_configuration_comes_before_the_node():
    found = session(
        {"platform": "vax", "cores": 64, "memory_mb": 9}, platforms=["el9", "el8"], cores=8, memory_mb=500
    )
    assert found.offer == {
        "platforms": ("el9", "el8"), "tags": (), "required_tags": (), "job_types": None, "cores": 8, "memory_mb": 500,
        "norm_cpu_seconds": UNLIMITED,
    }  # fmt: skip


def test_what_is_not_configured_the_node_says():
    found = session({"platform": "vax", "cores": 64, "memory_mb": 9})
    assert (found.offer["platforms"], found.offer["cores"], found.offer["memory_mb"]) == (("vax",), 64, 9)


def test_what_nobody_says_is_one_core_and_unlimited_memory():
    assert (session().offer["cores"], session().offer["memory_mb"]) == (1, UNLIMITED)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(["platform", "cores", "memory_mb", "norm_cpu_seconds", "tags"]), values)
)
def test_whatever_a_node_says_a_request_can_be_made(node):
    found = session(node)
    request = found.request(FREE, PoolMap([]))
    hash(request)
    assert 1 <= found.offer["cores"] <= UNLIMITED
    assert 1 <= found.offer["memory_mb"] <= UNLIMITED
    assert all(isinstance(one, str) for one in request.platforms)


@given(cores=st.integers(0, 100), memory=st.integers(0, 10_000), cpu=st.integers(0, 10_000))
def test_no_more_is_offered_than_is_free_and_than_the_queue_has(cores, memory, cpu):
    found = session(cores=8, memory_mb=5_000, norm_cpu_seconds=5_000)
    request = found.request(Free(cores, memory, cpu), PoolMap([]))
    assert request.cores == min(cores, 8)
    assert request.memory_mb == min(memory, 5_000)
    assert request.norm_cpu_seconds <= min(cpu, 5_000)
    assert cpu - request.norm_cpu_seconds < 60 or request.norm_cpu_seconds == 5_000


def test_the_request_is_made_once_per_free_minute():
    found, pools = session(cores=8), PoolMap([])
    first = found.request(Free(4, 100, 600), pools)
    assert found.request(Free(4, 100, 659), pools) is first
    assert found.request(Free(4, 100, 660), pools) is not first
    for cores in range(100):
        found.request(Free(cores, 100, 600), pools)
    assert len(found._cache) < 50


def test_a_private_pilot_presents_its_owner_and_its_one_group():
    request = session().request(FREE, PoolMap([]))
    assert (request.owner, request.groups, request.pilot_type) == ("ann", ("physics",), "private")
    assert (request.site, request.ce, request.queue, request.submission_pool) == (*QUEUE, "Local")


def test_pools_are_served_as_soon_as_they_are_known():
    found, pools = session(), PoolMap([("req1:a", *QUEUE)])
    assert found.request(FREE, pools).submit_pools == ("req1:a",)
    pools.add("req1:b", [QUEUE, ("South", "cs", "long")])
    assert found.request(FREE, pools).submit_pools == ("req1:a", "req1:b")


def test_as_long_as_a_queue_serves_the_same_pools_the_request_is_the_same():
    found, pools = session(), PoolMap([("req1:a", *QUEUE)])
    first = found.request(FREE, pools)
    pools.add("req1:b", [("South", "cs", "long")])
    assert found.request(FREE, pools) is first
    pools.remove(["req1:b"])
    assert found.request(FREE, pools) == first
    pools.remove(["req1:a"])
    assert found.request(FREE, pools).submit_pools == ()


@pytest.mark.parametrize("drain", [0, 1])
def test_a_drain_survives_a_restart(drain):
    values = [getattr(row(), name) for name in PilotRow.__slots__]
    values[PilotRow.__slots__.index("drain")] = drain
    assert PilotSession(PilotRow(*values), {}, now=0.0).drain is bool(drain)
