"""What a request may draw from now, counted, is what the reasons say; and so is what refuses the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.criteria import CRITERIA, explain
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.decide.matching.shares import GroupShare
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.matching.task_queue import TaskQueueKey


def some(letters, size):
    return st.sets(st.sampled_from(letters), max_size=size).map(lambda found: tuple(sorted(found)))


KEYS = st.builds(
    TaskQueueKey,
    owner=st.sampled_from("ab"),
    group=st.sampled_from("gh"),
    vo=st.sampled_from("vw"),
    job_type=st.sampled_from(["User", "MC"]),
    job_class=st.sampled_from(["", "", "app"]),
    variant=st.sampled_from(["v1", "default"]),
    sites=some("AB", 2),
    banned_sites=some("AB", 1),
    grid_ces=some(["c1", "c2"], 1),
    platforms=some("pq", 2),
    tags=some("tu", 2),
    pilot_type=st.sampled_from(["", PRIVATE]),
    submission_pools=some("12", 1),
    submit_pool=st.sampled_from(["", "x", "y"]),
    cores=st.sampled_from([1, 2, 4]),
    memory_mb=st.sampled_from([0, 100, 2_000]),
    norm_cpu_seconds=st.sampled_from([1, 60, 3_600]),
)
REQUESTS = st.builds(
    ResourceRequest,
    vo=st.sampled_from("vw"),
    groups=st.none() | some("gh", 2),
    owner=st.sampled_from(["", "", "a"]),
    pilot_type=st.sampled_from(["", PRIVATE]),
    site=st.sampled_from(["", "A", ANY]),
    ce=st.sampled_from(["", "c1", ANY]),
    platforms=st.sampled_from([(), ("p",), (ANY,)]),
    tags=some(["t", "u", ANY], 2),
    required_tags=some("tu", 1),
    job_types=st.none() | some(["User", "MC"], 2),
    job_classes=st.none() | some(["NO_JC", "ANY_JC", "app", "app.v1"], 2),
    submit_pools=some("xy", 2),
    submission_pool=st.sampled_from(["", "1"]),
    cores=st.sampled_from([0, 1, 4]),
    memory_mb=st.sampled_from([0, 100, 4_000]),
    norm_cpu_seconds=st.sampled_from([0, 60, 7_200]),
)
WORLDS = st.lists(
    st.tuples(KEYS, st.integers(0, 2), st.sampled_from(["", "quota"])),
    max_size=8,
    unique_by=lambda one: one[0],
)


def filled(world):
    matcher = Matcher()
    for tq_id, (key, waiting, limit) in enumerate(world):
        matcher.index.put(tq_id, key, waiting, now=0.0)
        if limit:
            matcher.index.block(tq_id, limit)
    return matcher


@given(WORLDS, st.lists(REQUESTS, min_size=1, max_size=2), st.sampled_from([0.0, 500.0]))
def test_eligible_are_those_without_a_reason(world, requests, share):
    matcher = filled(world)
    matcher.lottery.set_shares({"g": GroupShare(share=share)})
    for request in requests:
        told = matcher.chances(request)
        fitting = [number for number, (key, *_) in enumerate(world) if not explain(key, request)]
        free = [tq_id for tq_id in fitting if matcher.index.is_open(tq_id)]
        assert told.eligible == len(free) == len(matcher.eligible(request))
        by_group: dict[str, int] = {}
        for tq_id in free:
            by_group[world[tq_id][0].group] = by_group.get(world[tq_id][0].group, 0) + 1
        assert dict((*told.groups, *told.without_share)) == by_group
        assert ("g" in dict(told.without_share)) == ("g" in by_group and not share)
        only_blocked = [tq_id for tq_id in fitting if world[tq_id][1] and world[tq_id][2]]
        assert dict(told.blocked) == ({"quota": len(only_blocked)} if only_blocked else {})
        open_now = [key.vo for key, waiting, limit in world if waiting and not limit]
        assert told.of_vo == open_now.count(request.vo)
        assert told.of_vo + told.elsewhere == len(open_now)


@given(st.lists(KEYS, max_size=7), REQUESTS)
def test_what_each_criterion_refuses_is_what_it_gives_a_reason_for(keys, request):
    table = KeyTable(dict(enumerate(keys)))
    lost = {criterion.name: mask for criterion, mask in table.lost(table.full, request)}
    assert all(lost.values())
    for tq_id, key in enumerate(keys):
        told = {name for name, mask in lost.items() if mask >> table.bit(tq_id) & 1}
        assert told == {one.name for one in CRITERIA if not one.holds(key, request)}
        assert len(told) == len(explain(key, request))


def test_only_the_requested_task_queues_are_reported_as_lost():
    key = TaskQueueKey(owner="a", group="g", vo="v", sites=("A",))
    table = KeyTable({1: key, 2: replace(key, sites=("B",)), 3: replace(key, sites=("C",))})
    here = ResourceRequest(vo="v", site="A", norm_cpu_seconds=10**9)
    asked = 1 << table.bit(1) | 1 << table.bit(2)
    ((criterion, mask),) = table.lost(asked, here)
    assert (criterion.name, mask) == ("site", 1 << table.bit(2))


@pytest.mark.parametrize(("vo", "eligible"), [("v", 2), ("w", 0)])
def test_looking_takes_nothing(vo, eligible):
    key = TaskQueueKey(owner="a", group="g", vo="v")
    matcher = filled([(key, 1, ""), (replace(key, owner="b"), 3, "")])
    here = ResourceRequest(vo=vo, norm_cpu_seconds=10**9)
    for _ in range(3):
        assert matcher.chances(here).eligible == eligible
    assert [waiting for _, _, waiting in matcher.index.queues()] == [1, 3]
