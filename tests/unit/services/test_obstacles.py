"""What stands between a key and each queue, counted; and the smallest change that would help."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.matching import TaskQueueKey, eligible_offers
from lodesman.resources import load_resources
from lodesman.services.obstacles import find_obstacles
from lodesman.services.policy import Policy

SITES = "".join(
    f"""
[site.S{n}]
VO = ["lab"]
Platform = "{"el9" if n % 2 else "el8"}"
Disk = {n * 10}
[site.S{n}.ce.c.queue.q]
CPUTime = {n * 1_000}
Memory = {n * 500}
NumberOfProcessors = {n}
"""
    for n in range(1, 6)
)
WORLD = Policy(load_resources([("s.toml", '[job_description]\nDisk = "number"\n' + SITES)])).world("lab")

keys = st.fixed_dictionaries(
    {},
    optional={
        "norm_cpu_seconds": st.integers(1, 7_000),
        "memory_mb": st.integers(0, 3_500),
        "cores": st.integers(1, 7),
        "platforms": st.sampled_from([(), ("el8",), ("el9",), ("vax",)]),
        "sites": st.sets(st.sampled_from(["S1", "S2", "S3", "S9"])).map(lambda found: tuple(sorted(found))),
    },
)
requirements = st.fixed_dictionaries({}, optional={"Disk": st.integers(0, 70), "Nothing": st.just(1)})


@given(keys, requirements)
def test_the_counts_and_the_eligible_queues_are_the_matcher_s(make_key_of, changes, wanted):
    pool = "req1:x" if wanted else ""
    key = make_key_of(submit_pool=pool, **changes)
    found = find_obstacles(key, wanted, WORLD)
    mask = WORLD.table.eligible_mask(wanted) if wanted else 0
    assert [one.queue for one in found.eligible] == [
        one.queue for one in eligible_offers(key, WORLD.offers, mask)
    ]
    assert found.total == 5
    assert list(found.counts) == sorted(found.counts, key=lambda pair: (-pair[1], pair[0]))
    assert all(0 < n <= 5 for _, n in found.counts)
    if found.eligible:
        assert found.nearest == ()
        assert all(n < 5 for _, n in found.counts)
    else:
        assert found.nearest
        fewest = {len(one["change"]) for one in found.nearest}
        assert len(fewest) == 1
        for one in found.nearest:
            assert len(one["example"]["reasons"]) == len(one["change"])


@pytest.fixture(scope="module")
def make_key_of():
    def make(**changes):
        return TaskQueueKey(**{"owner": "a", "group": "g", "vo": "lab", "norm_cpu_seconds": 1, **changes})

    return make


def test_the_nearest_is_the_one_that_gains_most_queues(make_key_of):
    found = find_obstacles(make_key_of(norm_cpu_seconds=9_000, platforms=("el9",)), {}, WORLD)
    assert found.nearest[0]["queues"] == 3
    assert len(found.nearest[0]["change"]) == 1


def test_requirements_are_counted_one_by_one(make_key_of):
    found = find_obstacles(make_key_of(submit_pool="req1:x"), {"Disk": 30, "Nothing": 1}, WORLD)
    assert dict(found.counts) == {"Requirements.Disk": 2, "Requirements.Nothing": 5}
    assert found.nearest[0]["change"] == ["Requirements.Nothing"]
