"""What a stored iteration of the director says: rooms by masks, task queues that no pool took, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.decide.explain.facts import Snapshot, SnapshotFacts, fresh_seconds
from lodesman.decide.explain.last_iteration import _GATES, RecordedIteration
from lodesman.decide.matching.offers import CAUSES
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.wire.nodes import QueueId

QUEUES = 6
SITES = "".join(
    f'[site.S{n}]\nVO = ["lab"]\n[site.S{n}.ce.c.queue.q]\nCPUTime = 100\n' for n in range(QUEUES)
)
FIELDS = ["tq_id", "asked", "cap"]


@pytest.fixture(scope="module")
def world():
    return Policy(load_resources([("s.toml", SITES)])).vo_config("lab")


def queue(number):
    return (f"S{number}", "c", "q")


def record(rooms=None, rows=(), no_pool=()):
    return {
        "row_fields": FIELDS, "rows": [list(row) for row in rows], "asks": [], "rooms": rooms or {}, "plan": {},
        "no_pool": [{"tq_id": n, "asked": 1, "tries": [["Nowhere", "unknown"]]} for n in no_pool],
    }  # fmt: skip


bites = st.sampled_from([[], [["breaker", 5, 0, 0, "it failed"]], [["max-total", 5, 0, 0, "full"]]])
rooms = st.dictionaries(
    st.integers(0, QUEUES - 1), st.tuples(st.integers(0, 3), bites), max_size=QUEUES
)  # the director did not consider the omitted ones


@given(rooms, st.integers(0, 2**QUEUES - 1))
def test_masks_agree_with_each_queue(world, found, mask):
    told = {
        str(QueueId(*queue(n))): {"wanted": 1, "room": room, "clamps": clamps}
        for n, (room, clamps) in found.items()
    }
    iteration = RecordedIteration(1, 5.0, record(told))
    masks = iteration.capacity(world)
    chosen = [n for n in range(QUEUES) if mask >> n & 1]
    assert masks.open == sum(1 << n for n, (room, _) in found.items() if room)
    assert masks.pilots(mask) == sum(found.get(n, (0, []))[0] for n in chosen)
    shut: dict[tuple[str, str], int] = {}
    for n in chosen:
        if not masks.open >> n & 1:
            gate = iteration.gate(queue(n))
            shut[gate] = shut.get(gate, 0) | 1 << n
    assert dict(masks.gates(mask, [], 0.0)) == shut
    sizes = [one.bit_count() for _, one in masks.gates(mask, [], 0.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert iteration.capacity(world) is masks


@given(
    st.dictionaries(
        st.integers(0, QUEUES - 1),
        st.tuples(
            st.one_of(st.none(), st.integers(-1, 3)), st.integers(0, 9), st.sampled_from(["slurm", "local"])
        ),
    ),
    st.integers(0, 2**QUEUES - 1),
)
def test_the_oldest_load_of_some_queues_is_that_of_the_oldest_of_them(world, found, mask):
    """Queues without one, or whose batch system reported none, have none."""
    told = {
        str(QueueId(*queue(n))): {
            "wanted": 1, "room": 0, "clamps": [], **({"load": [*found[n][:1], 0, *found[n][1:]]} if n in found else {}),
        }
        for n in range(QUEUES)
    }  # fmt: skip
    fields = {"load_fields": ["waiting", "running", "observed_at", "told_by"]}
    capacity = RecordedIteration(1, 5.0, {**record(told), **fields}).capacity(world)
    seen = [
        (at, told_by)
        for n, (waiting, at, told_by) in found.items()
        if mask >> n & 1 and waiting is not None and waiting >= 0
    ]
    assert capacity.oldest_load(mask) == min(seen, default=None)
    assert RecordedIteration(1, 5.0, record(told)).capacity(world).oldest_load(mask) is None


SHARED = """
[site.W]
VO = ["lab", "other"]
[site.W.ce.c.queue.q]
[site.W.ce.c.queue.q.vo.lab]
{lines}
"""
W = ("W", "c", "q")


@pytest.mark.parametrize(
    ("lines", "gate"),
    [
        ("Backend = 'manual'", ("no-backend", "pilots there are started manually")),
        ("Backend = 'moon'", ("no-backend", "there is no backend 'moon' here")),
        ("Slots = 0", ("max-total", "Slots is 0")),
        ("MaxTotalJobs = 0", ("max-total", "MaxTotalJobs is 0")),
        ("MaxWaitingJobs = 0", ("max-waiting", "MaxWaitingJobs is 0")),
        ("Slots = 1", None),
    ],
)
def test_room_that_is_there_for_another_vo_is_none_for_one_to_which_no_pilot_is_sent(lines, gate):
    """A queue is one to the director; what it sends there is the other VO's."""
    policy = Policy(load_resources([("s.toml", SHARED.format(lines=lines))]))
    told = {str(QueueId(*W)): {"wanted": 3, "room": 3, "clamps": []}}
    iteration = RecordedIteration(1, 5.0, record(told))
    found = iteration.capacity(policy.vo_config("lab"))
    assert (found.open, found.pilots(1), found.gates(1, [], 0.0)) == (
        (1, 3, []) if gate is None else (0, 0, [(gate, 1)])
    )
    other = iteration.capacity(policy.vo_config("other"))
    assert (other.open, other.pilots(1), other.gates(1, [], 0.0)) == (1, 3, [])
    assert set(_GATES) == set(CAUSES)


def test_a_task_queue_that_no_pool_took_stays_so_until_pilots_are_asked_for_it_again():
    first = RecordedIteration(1, 5.0, record(rows=[(1, 2, 2), (2, 2, 2), (3, 2, 2)], no_pool=[1, 2, 3]))
    second = RecordedIteration(2, 6.0, record(rows=[(1, 0, 2), (2, 1, 2)]), before=first)
    assert second.refused == {1: [("Nowhere", "unknown")]}
    third = RecordedIteration(3, 7.0, record(rows=[(1, 0, 2)]), before=second)
    assert 1 in third.refused
    assert not RecordedIteration(4, 8.0, record(rows=[(1, 1, 2)]), before=third).refused


@pytest.mark.parametrize(
    ("polling", "fresh"), [(1.0, 60.0), (20.0, 60.0), (120.0, 360.0), (3_600.0, 10_800.0)]
)
def test_an_iteration_is_believed_for_as_long_as_some_may_be_missed(polling, fresh):
    assert fresh_seconds(polling) == fresh


def test_a_decision_that_is_old_is_none():
    empty = Snapshot(at=0.0, fresh_seconds=10.0, waiting=(), groups={}, iteration=None)
    assert (empty.decision(0.0), empty.decided_at) == (None, None)
    snapshot = replace(empty, iteration=RecordedIteration(1, 100.0, record()))
    assert snapshot.decision(110.0) is snapshot.iteration
    assert snapshot.decision(99.0) is snapshot.iteration  # a clock that was set back
    assert snapshot.decision(110.1) is None
    assert snapshot.decided_at == 100.0


@pytest.mark.parametrize(("at", "text"), [(None, "yet"), (39.0, "for 61 s"), (-35_900.0, "for 10.0 h")])
def test_since_when_nothing_was_decided(at, text):
    iteration = None if at is None else RecordedIteration(1, at, record())
    snapshot = Snapshot(at=0.0, fresh_seconds=10.0, waiting=(), groups={}, iteration=iteration)
    facts = SnapshotFacts(snapshot=snapshot, now=100.0)
    assert facts.undecided() == f"the director has not decided anything {text}"


@pytest.mark.parametrize(
    ("room", "left", "clamps", "free"),
    [
        (4, 0, [], 2),  # two of those that it sent there have ended
        (1, 0, [], 1),
        (0, 0, [["max-total", 5, 0, 0, "full"]], 2),
        (0, 0, [["max-total", 5, 0, -2, "too many"]], 0),
        (0, 0, [["max-waiting", 5, 3, 3, "some wait"], ["max-total", 3, 0, 0, "full"]], 2),
        (0, 0, [["max-waiting", 5, 0, 0, "too many wait"]], 0),
        (0, 0, [["breaker", 5, 0, 0, "it failed"]], 0),
        (0, 0, [], 0),
    ],
)
def test_pilots_that_have_ended_since_leave_free_capacity(world, room, left, clamps, free):
    told = {str(QueueId(*queue(0))): {"wanted": 5, "room": room, "left": left, "clamps": clamps}}
    iteration = RecordedIteration(1, 5.0, record(told))
    ended = {QueueId(*queue(0)): 2, QueueId(*queue(1)): 1}
    after = iteration.after_ends(ended)
    assert (after.capacity(world).pilots(1), iteration.capacity(world).pilots(1)) == (free, left)
    assert iteration.after_ends(dict(ended)) is after, "while no more end, it is the same"
    assert iteration.after_ends({}).capacity(world).pilots(1) == left
