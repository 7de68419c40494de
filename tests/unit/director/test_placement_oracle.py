"""Placement by masks against placement pair by pair: the same decisions in random worlds.

The oracle asks the predicate about every task queue and every CE queue, walks lists, and draws with
`random.choices`. It is slow and plain, and lives here only.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.director.limits import Breaker, clamp
from lodesman.decide.director.orders import PilotIdentity, PilotOrder, PoolState, TypeReason, presented
from lodesman.decide.director.placement import place
from lodesman.decide.director.places import Places
from lodesman.decide.director.queues import (
    CandidateQueue,
    OwnPilots,
    QueueCaps,
    QueueGates,
    Room,
    free_slots,
    queue_limits,
)
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.request import PRIVATE, ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import NodePath, QueueId
from lodesman.wire.vocabulary import BreakerState, RefusalKind

NOW = 1_000_000.0
POOLS = ("Local", "SAM")


@dataclass
class Pairwise:
    """The oracle: all queues of one world, and what is left of their rooms."""

    queues: list[CandidateQueue]
    gates: QueueGates
    pools: Any
    left: dict[QueueId, int] = field(default_factory=dict)
    slots: dict[QueueId, int] = field(default_factory=dict)
    tokens: dict[NodePath, int] = field(default_factory=dict)
    rooms: dict[QueueId, Room] = field(default_factory=dict)

    def judge(self, ask: PilotOrder) -> tuple[dict[QueueId, ResourceRequest], list[Any]]:
        """The eligible queues with what pilots present there, and the others with their reasons."""
        eligible: dict[QueueId, ResourceRequest] = {}
        refused: list[Any] = []
        for queue in self.queues:
            template = queue.templates.get(ask.key.vo)
            if ask.pool not in queue.submission_pools:
                refused.append((RefusalKind.OTHER_POOL, queue.queue_id, (), ()))
            elif template is None:
                refused.append((RefusalKind.OTHER_VO, queue.queue_id, (), ()))
            elif ask.key.vo in queue.private_only and not ask.identity.private:
                refused.append((RefusalKind.PRIVATE_ONLY, queue.queue_id, (), ()))
            else:
                template = replace(template, submit_pools=self.pools.of(queue.queue_id))
                request = presented(template, ask.identity, submission_pool=ask.pool)
                reasons = explain(ask.key, request)
                if reasons:
                    refused.append((RefusalKind.INELIGIBLE, queue.queue_id, reasons, ()))
                else:
                    eligible[queue.queue_id] = request
        return eligible, refused

    def open(self, asks: list[PilotOrder], eligible: list[dict[QueueId, ResourceRequest]]) -> None:
        for queue in self.queues:
            found = queue.queue_id
            wanted = sum(ask.count for ask, fit in zip(asks, eligible, strict=True) if found in fit)
            limits = list(
                queue_limits(
                    queue,
                    gates=self.gates,
                    now=NOW,
                )
            )
            room = max(0, min((limit.limit for limit in limits), default=wanted))
            self.rooms[found] = Room(wanted=wanted, room=room, clamps=clamp(max(1, wanted), limits).clamps)
            self.left[found], self.slots[found] = room, free_slots(queue)
        self.tokens = dict(self.gates.tokens)

    def seat(self, eligible: dict[QueueId, ResourceRequest], rng: random.Random) -> QueueId | None:
        rooms = {one: min(self.left[one], self.tokens.get(one.ce_path, self.left[one])) for one in eligible}
        free = {one: room for one, room in rooms.items() if room > 0}
        at_once = {one: n for one, room in free.items() if (n := min(room, self.slots[one])) > 0}
        choice = at_once or free
        if not choice:
            return None
        (chosen,) = rng.choices(list(choice), weights=list(choice.values()))
        self.left[chosen] -= 1
        self.slots[chosen] -= 1
        if chosen.ce_path in self.tokens:
            self.tokens[chosen.ce_path] -= 1
        return chosen


def only_own(request: ResourceRequest, ask: PilotOrder) -> ResourceRequest:
    """Of the SubmitPools only the task queue's own, as placements name them."""
    return replace(
        request, submit_pools=tuple(one for one in request.submit_pools if one == ask.key.submit_pool)
    )


def pairwise(asks: list[PilotOrder], world: Pairwise, rng: random.Random) -> Any:
    """(placements, what each ask was answered, rooms), as plain values."""
    judged = [world.judge(ask) for ask in asks]
    world.open(asks, [eligible for eligible, _ in judged])
    pending = [number for number, ask in enumerate(asks) for _ in range(ask.count)]
    rng.shuffle(pending)
    seats: Counter[tuple[int, QueueId]] = Counter()
    for number in pending:
        chosen = world.seat(judged[number][0], rng)
        if chosen is not None:
            seats[number, chosen] += 1
    answers = []
    for number, (ask, (eligible, refused)) in enumerate(zip(asks, judged, strict=True)):
        placed = sum(seats[number, queue_id] for queue_id in eligible)
        for queue_id in eligible if placed < ask.count else ():
            room = world.rooms[queue_id]
            kind = RefusalKind.FILLED if room.room > 0 else RefusalKind.NO_ROOM
            refused.append((kind, queue_id, (), room.clamps))
        answers.append((placed, refused))
    placements = [
        (asks[number].tq_id, queue_id, count, only_own(judged[number][0][queue_id], asks[number]))
        for (number, queue_id), count in sorted(seats.items())
    ]
    return placements, answers, world.rooms


def by_masks(asks: list[PilotOrder], world: Pairwise, rng: random.Random) -> Any:
    """The same of the program."""
    pools = {one.pool: PoolState(name=one.pool, total=10**6) for one in asks}
    places = Places(world.queues, world.pools)
    result = place(asks, places, pools=pools, gates=world.gates, now=NOW, rng=rng)
    answers = [
        (one.placed, [(r.kind, r.queue_id, r.reasons, r.clamps) for r in result.refusals(one)])
        for one in result.outcomes
    ]
    placements = [(one.order.tq_id, one.queue_id, one.count, one.request) for one in result.placements]
    return placements, answers, dict(result.rooms)


# --- random worlds ------------------------------------------------------------------------------------


def some(*values: str, most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=most).map(lambda found: tuple(sorted(set(found))))


def seldom(strategy: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    """Mostly what excludes nothing, so that pilots are placed."""
    return st.one_of(st.just(otherwise), st.just(otherwise), strategy)


VO = st.sampled_from(["lab", "lab", "ego"])
KEYS = st.builds(
    TaskQueueKey,
    owner=st.sampled_from(["ann", "bob"]),
    group=st.sampled_from(["g", "h"]),
    vo=VO,
    sites=seldom(some("A", "B", "C"), ()),
    banned_sites=seldom(some("A", "B", most=1), ()),
    platforms=seldom(some("x", "y"), ()),
    tags=seldom(some("gpu", most=1), ()),
    pilot_type=seldom(st.just(PRIVATE), ""),
    submission_pools=seldom(some(*POOLS), ()),
    submit_pool=st.sampled_from(["", "", "req1:a", "req1:b", "req1:nobody"]),
    cores=seldom(st.just(2), 1),
    norm_cpu_seconds=seldom(st.just(100), 10),
)


@st.composite
def identities(draw, key: TaskQueueKey) -> PilotIdentity:
    """Generic, private to an owner, or private to a group."""
    private = draw(st.booleans())
    return PilotIdentity(
        private=private,
        owner="who",
        group="which",
        serves_owner=draw(st.sampled_from(["", key.owner])) if private else "",
        serves_group=key.group if private else None,
        pilot_type=PRIVATE if private and draw(st.booleans()) else "",
        reason=TypeReason.DRAWN,
    )


@st.composite
def asks_of(draw, number: int) -> PilotOrder:
    key = draw(KEYS)
    return PilotOrder(
        tq_id=number,
        key=key,
        count=draw(st.integers(0, 12)),
        pool=draw(st.sampled_from(POOLS)),
        identity=draw(identities(key)),
    )


def template(draw, vo: str, queue_id: QueueId) -> ResourceRequest:
    return ResourceRequest(
        vo=vo,
        groups=draw(seldom(st.sampled_from([("g",), ("h",), ("g", "h")]), None)),
        site=queue_id.site,
        ce=queue_id.ce,
        queue=queue_id.queue,
        platforms=draw(some("x", "y")),
        tags=draw(some("gpu", most=1)),
        cores=draw(st.integers(1, 2)),
        memory_mb=10,
        norm_cpu_seconds=draw(seldom(st.just(10), 100)),
    )


CAP = seldom(st.integers(0, 9), None)


@st.composite
def queues_of(draw, queue, queue_id: QueueId, bit: int) -> CandidateQueue:
    vos = draw(st.sets(VO, min_size=1))
    return queue(
        queue_id.site,
        queue_id.queue,
        ce=queue_id.ce,
        bit=bit,
        templates={vo: template(draw, vo, queue_id) for vo in sorted(vos)},
        submission_pools=draw(seldom(st.sampled_from([POOLS[:1], POOLS[1:]]), POOLS)),
        waiting=draw(seldom(st.sampled_from([2, None]), 0)),
        running=draw(st.integers(0, 3)),
        own=OwnPilots(waiting=draw(st.integers(0, 3)), since_load=draw(st.integers(0, 1))),
        caps=QueueCaps(max_waiting=draw(CAP), max_total=draw(CAP)),
        slots=draw(st.one_of(st.none(), st.integers(0, 9))),
        closed=draw(seldom(seldom(st.just("banned"), ""), "")),
        private_only=draw(seldom(some("lab", "ego"), ())),
    )


@st.composite
def served_by(draw, pools, bits: dict[QueueId, int]) -> Any:
    """SubmitPools; some queues have got their bits after those were read."""
    known = [OTHER, *(one for one in bits if one != OTHER and draw(st.integers(0, 4)))]
    some_of = st.lists(st.sampled_from(known), unique=True)
    return pools(
        {one: bits[one] for one in known},
        {"req1:a": draw(some_of), "req1:b": draw(seldom(some_of, known))},
    )


OTHER = QueueId("Z", "c", "q")
"""No candidate; pools may have it."""
QUEUE_IDS = st.lists(
    st.builds(QueueId, st.sampled_from("ABC"), st.sampled_from(["c1", "c2"]), st.sampled_from(["p", "q"])),
    unique=True,
    max_size=8,
)
BREAKERS = st.sampled_from([Breaker(state=state, retry_at=NOW + 9) for state in BreakerState])


@pytest.mark.slow
@at_most(30)
@given(st.data(), QUEUE_IDS, st.integers(0, 6), st.integers(0, 2**32))
def test_masks_decide_as_pairs_do(queue, pools, data, queue_ids, number_of_asks, seed):
    size = len(queue_ids) + 1
    other, *numbers = data.draw(st.lists(st.integers(0, 40), min_size=size, max_size=size, unique=True))
    # The masks take the queues in the order of their bits.
    bits = {**dict(zip(queue_ids, sorted(numbers), strict=True)), OTHER: other}
    queues = [data.draw(queues_of(queue, queue_id, bits[queue_id])) for queue_id in queue_ids]
    asks = [data.draw(asks_of(number)) for number in range(number_of_asks)]
    ce_paths = sorted({one.ce_path for one in queue_ids})
    gates = QueueGates(
        breakers={one: data.draw(BREAKERS) for one in queue_ids if data.draw(st.integers(0, 6)) == 0},
        tokens={one: data.draw(st.integers(0, 12)) for one in ce_paths if data.draw(st.booleans())},
        max_load_age_s=600.0,
    )
    ours, theirs = random.Random(seed), random.Random(seed)
    world = Pairwise(queues, gates, data.draw(served_by(pools, bits)))
    placements, answers, rooms = by_masks(asks, world, ours)
    wanted = pairwise(asks, world, theirs)
    assert placements == wanted[0]
    assert rooms == wanted[2]
    for (placed, told), (wanted_placed, wanted_told) in zip(answers, wanted[1], strict=True):
        assert placed == wanted_placed
        # Kinds come one after the other here; within a kind the order is that of the queues.
        assert sorted(told, key=lambda one: one[0]) == sorted(wanted_told, key=lambda one: one[0])
    assert ours.random() == theirs.random()
