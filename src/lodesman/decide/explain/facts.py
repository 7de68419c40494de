"""What explanations go by beside the configuration: one snapshot of jobs, pilots and the director's last iteration. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, reduce
from math import inf
from operator import or_
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct, field

from lodesman.decide.director.hosts import NODE_FAULT, ON_SHUT_HOST
from lodesman.decide.director.record import OF_SITES, Stories, loads_of
from lodesman.decide.director.target import COUNTING
from lodesman.decide.explain.actors import NOT_CONSIDERED, NOT_WANTED
from lodesman.decide.explain.capacity import FILLED, Capacity, Gate, not_sent_gate
from lodesman.decide.explain.turns import SOON_SECONDS, masks
from lodesman.decide.explain.verdict import Demand, StoppedPilots, counted, since, span
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import VOConfig
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import ClampName, PoolOutcome
from lodesman.wire.why_queues import QueueClamp

_LASTING: Final = frozenset({PoolOutcome.ELSEWHERE.value, PoolOutcome.NO_QUEUE.value})
"""Of submission pools that need not be full to take no pilots."""
_COUNTING_PILOTS: Final = frozenset({ClampName.MAX_TOTAL, ClampName.MAX_RUNNING})
"""Limits on the pilots of a CE queue that are there, whether they run or wait, or run."""
_FRESH_ITERATIONS: Final = 3
_FRESH_LEAST: Final = 60.0
_NO_TASK_QUEUE: Final = 0

Waiting = tuple[int, TaskQueueKey, int]
"""A task queue with waiting jobs: its id, its key, and how many."""


def fresh_seconds(polling_seconds: float) -> float:
    """How long an iteration of the director is believed: as long as it takes to miss some, slow ones not counted."""
    return max(_FRESH_LEAST, _FRESH_ITERATIONS * polling_seconds)


class QueueDecision(Struct, frozen=True, kw_only=True):
    """What an iteration decided about one CE queue: pilots wanted there, capacity for them and what is left of it after its
    placements, and the clamps that bit.
    """

    wanted: int
    room: int
    left: int
    clamps: list[QueueClamp]


class RecordedIteration:
    """One stored decision of the director, ready to be asked about single task queues and CE queues.

    `before`: the iteration before it, if known. A task queue that no submission pool took pilots for then, and that
    asked for none since, still has none.
    """

    def __init__(
        self, number: int, at: float, record: Mapping[str, Any], before: RecordedIteration | None = None
    ) -> None:
        self.number = number
        self.at = at
        self.record = record
        self.loads = loads_of(record)
        """The loads that it went by, by queue; those that an older release did not keep are absent."""
        counting = record.get("target", {}).get("policy") in COUNTING
        self.sends = counting or bool(record["plan"].get("target", 1.0) > 0.0)
        """Whether the director sends any pilots at all."""
        self.expected_pilots = _expected(record)
        """The pilots that an iteration like it asks for, all together."""
        self._stories = Stories(record)
        self._asked, self._cap = map(list(record["row_fields"]).index, ("asked", "cap"))
        rows = self._stories.rows
        still = {} if before is None else before.refused
        self.refused: dict[int, list[tuple[str, str]]] = {
            tq: tries for tq, tries in still.items() if tq in rows and not rows[tq][self._asked]
        }
        """Task queue -> (submission pool, outcome) where none took its pilots, and none was asked for since."""
        unmatched = {} if before is None else before.unmatched
        self.unmatched: dict[int, Unmatched] = {
            tq: found for tq, found in unmatched.items() if tq in rows and not rows[tq][self._asked]
        }
        """Task queue -> what sites had against its pilots where none was placed, and none was asked for since."""
        for tq_id, ask in self._stories.asks.items():
            if not ask["placed"] and (found := _of_sites(ask)).queues:
                self.unmatched[tq_id] = found
        for tq_id, refusal in self._stories.no_pool.items():
            self.refused[tq_id] = [(pool, outcome) for pool, outcome in refusal["tries"]]
        self._capacities: dict[tuple[str, str], Capacity] = {}
        self._after: tuple[Mapping[QueueId, int], RecordedIteration] | None = None

    def lines(self, tq_id: int | None) -> tuple[str, ...]:
        """What it did for a task queue (None: a new one) and why."""
        return self._stories.lines(tq_id or _NO_TASK_QUEUE)

    def refusals(self, tq_id: int | None, full: Mapping[str, bool] | None) -> Sequence[tuple[str, str]]:
        """(submission pool, outcome) of all that took no pilots for a task queue (None: a new one), if none of them would
        take any now. `full`: whether each submission pool is full now, None if that is not known.
        """
        tries = self.refused.get(tq_id or _NO_TASK_QUEUE, ())
        if full is None:
            return tries
        return tries if all(outcome in _LASTING or full.get(pool, True) for pool, outcome in tries) else ()

    def demands(self, task_queues: Iterable[int], full: Mapping[str, bool] | None = None) -> Counter[Demand]:
        """How many of the task queues it did what for; `full`: see `refusals`."""
        found: Counter[Demand] = Counter()
        for tq_id in task_queues:
            row = self._stories.rows.get(tq_id)
            if row is None:
                found[Demand.NEW] += 1
            elif self.refusals(tq_id, full):
                found[Demand.NO_POOL] += 1
            elif row[self._asked] > 0:
                found[Demand.ASKED] += 1
            else:
                found[Demand.SUPPLIED if row[self._cap] <= 0 else Demand.NOT_DRAWN] += 1
        return found

    def placed(self, queue: QueueId) -> int:
        """The pilots that it placed in a CE queue."""
        name = "/".join(queue)
        return sum(count for _, place, count in self.record["placements"] if place == name)

    def _room(self, queue: QueueId) -> Mapping[str, Any] | None:
        return cast("Mapping[str, Any] | None", self.record["rooms"].get("/".join(queue)))

    def queue(self, queue: QueueId) -> QueueDecision | None:
        """What it decided about a CE queue; None if it did not consider the queue."""
        found = self._room(queue)
        if found is None:
            return None
        clamps = [
            QueueClamp(clamp=ClampName(name), before=before, after=after, limit=limit, text=str(text))
            for name, before, after, limit, text in found["clamps"]
        ]
        return QueueDecision(wanted=found["wanted"], room=found["room"], left=_left(found), clamps=clamps)

    def gate(self, queue: QueueId) -> Gate:
        """What left a CE queue no free capacity."""
        found = self._room(queue)
        if found is None:
            return Gate(NOT_CONSIDERED, "the director did not consider it")
        if found["room"] > 0:
            return FILLED
        if not found["clamps"]:
            return Gate(NOT_WANTED, "no pilot was wanted there")
        name, *_, text = found["clamps"][-1]
        return Gate(str(name), str(text))

    def gated(self, tq_id: int | None, config: VOConfig, eligible: int) -> int:
        """The eligible queues where sites take no pilots for a task queue."""
        return eligible & (
            self.unmatched.get(tq_id or _NO_TASK_QUEUE, NOT_ASKED).queues | self.capacity(config).gated
        )

    def after_ends(self, ended: Mapping[QueueId, int]) -> RecordedIteration:
        """The same with the free capacity of pilots that have `ended` since: what they filled is free again."""
        if self._after is not None and self._after[0] == ended:
            return self._after[1]
        rooms = {"/".join(queue): (self._room(queue), count) for queue, count in ended.items()}
        more = {
            name: {**room, "left": left}
            for name, (room, count) in rooms.items()
            if room is not None and (left := _left_after(room, count)) > _left(room)
        }
        found = self._with_rooms(more) if more else self
        self._after = ended, found
        return found

    def _with_rooms(self, more: Mapping[str, Any]) -> RecordedIteration:
        found = copy(self)
        found.record = {**self.record, "rooms": {**self.record["rooms"], **more}}
        found._capacities = {}  # noqa: SLF001 - of the same class
        return found

    def capacity(self, config: VOConfig) -> Capacity:
        """The free capacity that it left the queues of a VO."""
        key = config.vo, config.version
        if key not in self._capacities:
            self._capacities[key] = self._capacity(config)
        return self._capacities[key]

    def _capacity(self, config: VOConfig) -> Capacity:
        free: list[tuple[int, int]] = []
        closed: list[tuple[Gate, int]] = []
        loads: list[tuple[tuple[float, str], int]] = []
        unsent = 0
        for bit, offer in config.by_bit.items():
            found, gate = self._room(offer.queue), not_sent_gate(config, offer)
            pilots = 0 if found is None or gate else _left(found)
            unsent |= (gate is not None) << bit
            if pilots:
                free.append((pilots, bit))
            else:
                closed.append((gate or self.gate(offer.queue), bit))
            load = self.loads.get("/".join(offer.queue))
            if load is not None and load.is_known:
                loads.append(((load.observed_at, load.source), bit))
        by_pilots = masks(free)
        gated = (1 << bit for gate, bit in closed if gate.name == ClampName.SITE_GATE)
        return Capacity(
            open=reduce(or_, by_pilots.values(), 0),
            by_pilots=by_pilots,
            closed=masks(closed),
            loads=[(*seen, mask) for seen, mask in sorted(masks(loads).items())],
            gated=reduce(or_, gated, 0),
            unsent=unsent,
        )


def _expected(record: Mapping[str, Any]) -> float:
    """The sum of the means; at least the target, since task queues that came later have a part of it, too."""
    target, names = record["plan"].get("target", inf), list(record["row_fields"])
    means = (row[names.index("mean")] for row in record["rows"]) if "mean" in names else ()
    most = record.get("target", {}).get("most") or inf
    return float(min(most, max(target, sum(means))))


class Unmatched(NamedTuple):
    """The queues whose sites had something against the pilots of a task queue, and what."""

    queues: int = 0
    words: Sequence[str] = ()


NOT_ASKED: Final = Unmatched()


def _of_sites(ask: Mapping[str, Any]) -> Unmatched:
    """What sites had against the pilots of a task queue; an older release did not keep in which queues."""
    queues, found = 0, []
    for refusal in ask.get("refused", ()):
        if refusal["kind"] in OF_SITES:
            queues |= int(refusal.get("queues", "0"), 16)
            words = [
                f"{name.partition('/')[0]}: {'; '.join(why)}" for name, why in refusal["examples"].items()
            ]
            found.append("; ".join([f"{counted(refusal['count'], 'queue')}: {refusal['kind']}", *words]))
    return Unmatched(queues, found)


def _left(room: Mapping[str, Any]) -> int:
    """The free capacity that is left after the iteration's own placements; older releases did not keep it."""
    return max(0, int(room.get("left", room["room"])))


def _left_after(room: Mapping[str, Any], ended: int) -> int:
    """The same when this number of pilots there has ended: they free what they filled, and what counts them."""
    if room["room"] > 0:
        return min(int(room["room"]), _left(room) + ended)
    free = [
        limit + (ended if name in _COUNTING_PILOTS else 0) for name, _, _, limit, _ in room["clamps"]
    ]  # fmt: skip
    return max(0, min(free, default=0))


class Failing(NamedTuple):
    """That the last `pilots` of a CE queue did not start, none has joined since, and why the last one did not. `is_open`: so
    its breaker lets no more, or only one of them try it.
    """

    pilots: int
    reason: str
    is_open: bool = False


class DirectorNow(NamedTuple):
    """What a running director says of itself. `iterated_at`: when its last iteration was, be it stored or, since there was
    nothing to decide, not; `full`: whether each submission pool is full now. None where that is not known. `failing`: the
    CE queues whose last pilots did not start; `settings`: of the server, by what pilots' last words have of them.
    """

    iterated_at: float | None = None
    full: Mapping[str, bool] | None = None
    failing: Mapping[QueueId, Failing] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType({})

    def failing_of(self, config: VOConfig, unreached: int = 0) -> StoppedPilots:
        """The queues of a VO whose last pilots did not start, and from where none reach the server."""
        queues = by_nodes = on_shut = 0
        for queue, one in self.failing.items():
            bit = config.table.bit(queue)
            mask = 0 if bit is None else 1 << bit
            queues |= mask
            by_nodes |= mask if one.reason.startswith(NODE_FAULT) else 0
            on_shut |= mask if one.reason == ON_SHUT_HOST else 0
        return StoppedPilots(queues | unreached, by_nodes, on_shut=on_shut)


NO_DIRECTOR: Final = DirectorNow()


class Snapshot(Struct, frozen=True, kw_only=True):
    """One moment: the task queues with waiting jobs, and the director's last iteration. `groups`: waiting jobs by VO and
    group. An iteration older than `fresh_seconds` says nothing about now. `decided_after`: when a later iteration was
    that is not read yet. `director`: what it knows without an iteration; it iterates every `polling_seconds`. `left_out`:
    what the server could not handle, by a fault of its own, and where.
    """

    at: float
    fresh_seconds: float
    waiting: Sequence[Waiting]
    groups: Mapping[tuple[str, str], int]
    iteration: RecordedIteration | None
    decided_after: float | None = None
    director: DirectorNow = NO_DIRECTOR
    polling_seconds: float = SOON_SECONDS
    left_out: Mapping[str, str] = field(default_factory=dict)

    def decision(self, now: float) -> RecordedIteration | None:
        """The director's last iteration; None if it has made none recently."""
        at = self.decided_at
        return self.iteration if at is not None and now - at <= self.fresh_seconds else None

    @property
    def decided_at(self) -> float | None:
        """When the last iteration was, however long ago."""
        known = None if self.iteration is None else self.iteration.at
        return known if self.decided_after is None else self.decided_after

    @property
    def iterated_at(self) -> float | None:
        """When the director's last iteration was, be it that there was nothing to decide."""
        seen = (self.decided_at, self.director.iterated_at)
        return max((at for at in seen if at is not None), default=None)

    def iterates_soon(self, now: float) -> bool:
        """Whether the next iteration is within a minute, as far as known."""
        return self.iterated_at is not None and self.iterated_at + self.polling_seconds - now <= SOON_SECONDS


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """What facts of jobs and CE queues have in common. Not slotted: what follows from facts is kept."""

    snapshot: Snapshot
    now: float

    def age(self, at: float | None) -> float | None:
        """Seconds since then; None if unknown."""
        return since(at, self.now)

    @property
    def decided_age(self) -> float | None:
        """Seconds since the iteration that `decision` is; without one, since the last, however long ago."""
        return self.age(self.snapshot.decided_at if self.decision is None else self.decision.at)

    @property
    def iterated_age(self) -> float | None:
        """Seconds since the director's last iteration, be it that there was nothing to decide."""
        return self.age(self.snapshot.iterated_at)

    @cached_property
    def decision(self) -> RecordedIteration | None:
        """The director's last iteration; None if it has made none recently."""
        return self.snapshot.decision(self.now)

    def left_out(self, *items: str) -> str:
        """Which of these the server could not handle, where and why; '' if none."""
        found = self.snapshot.left_out
        return "; ".join(f"{item} is left out of {found[item]}" for item in items if item in found)

    def undecided(self, about: str = "") -> str:
        """Since when there is no decision."""
        age = self.decided_age
        return f"the director has not decided anything{about} {'yet' if age is None else f'for {span(age)}'}"
