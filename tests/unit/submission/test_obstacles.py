"""What stands between a key and each queue, counted; and the smallest change that would help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.matching import TaskQueueKey, eligible_offers
from lodesman.resources import load_resources
from lodesman.services.policy import Policy
from lodesman.submission import find_obstacles, never_text

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
def test_a_queue_is_eligible_if_and_only_if_nothing_speaks_against_it(make_key_of, changes, wanted):
    pool = "req1:x" if wanted else ""
    key = make_key_of(submit_pool=pool, **changes)
    found = find_obstacles(key, wanted, WORLD)
    mask = WORLD.table.eligible_mask(wanted) if wanted else 0
    offers = eligible_offers(key, WORLD.offers, mask)
    assert found.eligible == sum(1 << one.ordinal for one in offers)
    assert found.total == 5
    criteria = WORLD.table.compile(wanted)
    for offer in WORLD.offers:
        against = len(offer.reasons(key, 1 << offer.ordinal)) + len(
            WORLD.table.reasons(offer.ordinal, criteria)
        )
        assert sum(mask >> offer.ordinal & 1 for _, mask in found.planes) == against
    counts = found.counts()
    assert counts == sorted(counts, key=lambda pair: (-pair[1], pair[0]))
    assert all(0 < n <= 5 for _, n in counts)
    assert (never_text(found) == "") == bool(found.eligible)


@given(keys, requirements)
def test_the_smallest_change_is_smallest_and_helps(make_key_of, changes, wanted):
    key = make_key_of(submit_pool="req1:x" if wanted else "", **changes)
    found = find_obstacles(key, wanted, WORLD)
    remedies = found.remedies()
    if found.eligible:
        assert remedies == []
        return
    fewest = min(sum(mask >> n & 1 for _, mask in found.planes) for n in range(5))
    assert [len(one.steps) for one in remedies] == [fewest] * len(remedies)
    assert [one.queues for one in remedies] == sorted((one.queues for one in remedies), reverse=True)
    for one in remedies:
        assert len(one.reasons) == fewest
        eased, left = ease(key, wanted, one)
        if eased is not None:
            again = find_obstacles(eased, left, WORLD)
            assert again.eligible.bit_count() == one.queues


FIELDS = {"CPUTime": "norm_cpu_seconds", "Memory": "memory_mb", "NumberOfProcessors": "cores"}


def ease(key, wanted, remedy):
    """The job as the remedy would have it; None where it names no value (a platform that nobody has)."""
    changes, left = {}, dict(wanted)
    for step in remedy.steps:
        if step.criterion in FIELDS:
            changes[FIELDS[step.criterion]] = step.options[-1][0]
        elif step.criterion.startswith("Requirements."):
            name = step.criterion.removeprefix("Requirements.")
            if step.options:
                left[name] = step.options[-1][0]
            else:
                del left[name]
        else:
            return None, None
    return replace(key, **changes, **({} if left else {"submit_pool": ""})), left


@pytest.fixture(scope="module")
def make_key_of():
    def make(**changes):
        return TaskQueueKey(**{"owner": "a", "group": "g", "vo": "lab", "norm_cpu_seconds": 1, **changes})

    return make


def test_the_best_change_gains_most_queues_and_tells_the_value(make_key_of):
    found = find_obstacles(make_key_of(norm_cpu_seconds=9_000, platforms=("el9",)), {}, WORLD)
    best = found.remedies()[0]
    assert (best.text, best.queues) == ("CPUTime 9000 -> 1000", 3)
    assert best.steps[0].options == ((5_000, 1), (3_000, 2), (1_000, 3))
    assert never_text(found) == (
        "no queue of VO lab can run it: CPUTime rules out 5 of 5, Platform rules out 2 of 5; "
        "smallest change: CPUTime 9000 -> 1000 (3 of 5 queues)"
    )


def test_requirements_are_counted_one_by_one(make_key_of):
    found = find_obstacles(make_key_of(submit_pool="req1:x"), {"Disk": 30, "Nothing": 1}, WORLD)
    assert dict(found.counts()) == {"Requirements.Disk": 2, "Requirements.Nothing": 5}
    assert [one.text for one in found.remedies()] == ["Requirements.Nothing left out"]


@pytest.mark.parametrize(
    ("changes", "wanted", "text"),
    [
        ({"sites": ("S9",)}, {}, "Site -> S1 or S2 or S3"),
        ({"banned_sites": ("S1", "S2", "S3", "S4", "S5")}, {}, "BannedSite without S1 or S2 or S3"),
        ({"grid_ces": ("moon",)}, {}, "GridCE -> c"),
        ({"platforms": ("vax",)}, {}, "Platform -> el9 or el8"),
        ({"tags": ("gpu", "ssd")}, {}, "Tag without gpu, ssd"),
        ({"cores": 9}, {}, "NumberOfProcessors 9 -> 1"),
        ({}, {"Disk": 70}, "Requirements.Disk 70 -> 10"),
        (
            {"sites": ("S1",), "cores": 2},
            {"Disk": 70},
            "Site -> S2 or S3 or S4 and Requirements.Disk 70 -> 20",
        ),
    ],
)
def test_each_criterion_says_what_would_do(make_key_of, changes, wanted, text):
    key = make_key_of(submit_pool="req1:x" if wanted else "", **changes)
    assert find_obstacles(key, wanted, WORLD).remedies()[0].text == text


def test_requirements_that_cannot_be_read_any_more_rule_out_everything(make_key_of):
    found = find_obstacles(make_key_of(submit_pool="req1:x"), {"Disk": "many"}, WORLD)
    assert dict(found.counts()) == {"Requirements": 5}
    assert found.eligible == 0
    assert found.remedies()[0].text == "Requirements"


def test_a_vo_without_queues_has_no_remedy(make_key_of):
    config = load_resources([("s.toml", SITES)])
    found = find_obstacles(make_key_of(vo="lone"), {}, Policy(config).world("lone"))
    assert never_text(found) == "no queue is configured for VO lone"
    assert found.remedies() == []


def test_two_thousand_queues_are_counted(make_key_of):
    text = "".join(
        f'[site.S{n}.ce.c.queue.q]\nVO = ["lab"]\nCPUTime = {n + 1}\nSoftware = ["v{n % 50}"]\n'
        for n in range(2_000)
    )
    world = Policy(load_resources([("s.toml", text)])).world("lab")
    key = make_key_of(norm_cpu_seconds=1_999, submit_pool="req1:x")
    found = find_obstacles(key, {"Software": "v7"}, world)
    assert dict(found.counts()) == {"CPUTime": 1_998, "Requirements.Software": 1_960}
    assert found.remedies()[0].queues == 40
