"""The director's last iteration: its decisions, and the free capacity that it left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import reduce
from math import inf
from operator import or_
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from lodesman.decide.director.record import OF_SITES, Stories, loads_of
from lodesman.decide.director.target import COUNTING
from lodesman.decide.explain.turns import masks
from lodesman.decide.explain.verdict import Demand, counted
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import SUBMISSION_POOLS, not_sent
from lodesman.decide.matching.policy import VOConfig
from lodesman.wire.nodes import Closing, QueueId
from lodesman.wire.vocabulary import ClampName, PoolOutcome
from lodesman.wire.why_queues import QueueClamp

NOT_CONSIDERED, NOT_WANTED = "unknown", "no-demand"
"""Why a queue has no free capacity where no clamp says so."""
_GATES: Final = {
    "Backend": ClampName.NO_BACKEND.value,
    SUBMISSION_POOLS: ClampName.NO_POOL.value,
    "MaxTotalJobs": ClampName.MAX_TOTAL.value,
    "MaxWaitingJobs": ClampName.MAX_WAITING.value,
    "Slots": ClampName.MAX_TOTAL.value,
}
"""Cause that keeps all pilots away (`submission.CAUSES`) -> the director's clamp."""


class Gate(NamedTuple):
    """What leaves CE queues no free capacity, and why."""

    name: str
    text: str


FILLED: Final = Gate("filled", "the pilots that the director has just sent there fill it")
REOPENED: Final = Gate(NOT_CONSIDERED, "the director has not considered it since it was opened")


class Capacity(Struct, frozen=True, kw_only=True):
    """The free capacity of a VO's CE queues, as masks."""

    open: int  # those that have some
    by_pilots: Mapping[int, int]  # by the number of pilots that may be sent
    closed: Mapping[Gate, int]  # by the gate that leaves them none
    loads: Sequence[tuple[float, str, int]] = ()  # known loads, oldest first: time, source, queues
    gated: int = 0  # those that the gates of their sites shut
    unsent: int = 0  # those where no pilots are ever sent, such as those where people start them

    def pilots(self, queues: int) -> int:
        """How many these queues may get."""
        return sum(pilots * (mask & queues).bit_count() for pilots, mask in self.by_pilots.items())

    def oldest_load(self, queues: int) -> tuple[float, str] | None:
        """Time and source of the oldest load; None if unknown."""
        return next(((at, source) for at, source, mask in self.loads if mask & queues), None)

    def gates(
        self, eligible: int, closings: Iterable[tuple[Closing, int]], now: float
    ) -> list[tuple[Gate, int]]:
        """What leaves these queues no free capacity, most queues first: `closings` of now, else the recorded gates."""
        gates, left = Counter[Gate](), eligible
        for closing, mask in closings:
            gates[Gate(ClampName.CLOSED.value, closing.text_at(now))] |= mask & left
            left &= ~mask
        for gate, mask in self.closed.items():
            gates[REOPENED if gate.name == ClampName.CLOSED else gate] |= mask & left
        return sorted([gate for gate in gates.items() if gate[1]], key=lambda gate: -gate[1].bit_count())


def not_sent_gate(config: VOConfig, offer: QueueOffer) -> Gate | None:
    """The gate if this VO never sends pilots to a queue, whatever capacity others have there."""
    closed = not_sent(offer, config.backends, config.pools)
    return None if closed is None else Gate(_GATES[closed.parameter], closed.text)


_LASTING: Final = frozenset({PoolOutcome.ELSEWHERE.value, PoolOutcome.NO_QUEUE.value})
"""Submission pools take no pilots for these reasons even if they are not full."""
_COUNTING_PILOTS: Final = frozenset({ClampName.MAX_TOTAL, ClampName.MAX_RUNNING})
"""Limits on the number of pilots in a CE queue."""
_NO_TASK_QUEUE: Final = 0


class QueueDecision(Struct, frozen=True, kw_only=True):
    """The decision about one CE queue."""

    pilots: int  # wanted there
    room: int  # free capacity for pilots
    left: int  # the same after its placements
    clamps: list[QueueClamp]  # those that bit


class RecordedIteration:
    """A stored decision of the director.

    A task queue refused in the iteration `before` stays refused if no pilot was asked for it since.
    """

    def __init__(
        self, number: int, at: float, record: Mapping[str, Any], before: RecordedIteration | None = None
    ) -> None:
        self.number = number
        self.at = at
        self.record = record
        self.loads = loads_of(record)
        """By queue; older releases kept none."""
        counting = record.get("target", {}).get("policy") in COUNTING
        self.sends = counting or bool(record["plan"].get("target", 1.0) > 0.0)
        """Whether the director sends pilots at all."""
        self.expected_pilots = _expected(record)
        """The pilots that an iteration like it asks for."""
        self._stories = Stories(record)
        self._asked, self._cap = map(list(record["row_fields"]).index, ("asked", "cap"))
        rows = self._stories.rows
        still = {} if before is None else before.refused
        self.refused: dict[int, list[tuple[str, str]]] = {
            tq: tries for tq, tries in still.items() if tq in rows and not rows[tq][self._asked]
        }
        """Task queue -> (submission pool, outcome) of all pools, if none took its pilots."""
        unmatched = {} if before is None else before.unmatched
        self.unmatched: dict[int, SiteObjections] = {
            tq: objections for tq, objections in unmatched.items() if tq in rows and not rows[tq][self._asked]
        }
        """Only task queues for which no pilot was placed."""
        for tq_id, ask in self._stories.asks.items():
            if not ask["placed"] and (objections := _of_sites(ask)).queues:
                self.unmatched[tq_id] = objections
        for tq_id, refusal in self._stories.no_pool.items():
            self.refused[tq_id] = [(pool, outcome) for pool, outcome in refusal["tries"]]
        self._capacities: dict[tuple[str, str], Capacity] = {}
        self._after: tuple[Mapping[QueueId, int], RecordedIteration] | None = None

    def lines(self, tq_id: int | None) -> tuple[str, ...]:
        """What it did for a task queue (None: a new one), and why."""
        return self._stories.lines(tq_id or _NO_TASK_QUEUE)

    def refusals(self, tq_id: int | None, full: Mapping[str, bool] | None) -> Sequence[tuple[str, str]]:
        """(submission pool, outcome) of all pools, if none now takes pilots for a task queue (None: a new one).
        `full`: of each pool; None: unknown.
        """
        tries = self.refused.get(tq_id or _NO_TASK_QUEUE, ())
        if full is None:
            return tries
        return tries if all(outcome in _LASTING or full.get(pool, True) for pool, outcome in tries) else ()

    def demands(self, task_queues: Iterable[int], full: Mapping[str, bool] | None = None) -> Counter[Demand]:
        """What it did for these task queues; `full`: see `refusals`."""
        counts: Counter[Demand] = Counter()
        for tq_id in task_queues:
            row = self._stories.rows.get(tq_id)
            if row is None:
                counts[Demand.NEW] += 1
            elif self.refusals(tq_id, full):
                counts[Demand.NO_POOL] += 1
            elif row[self._asked] > 0:
                counts[Demand.ASKED] += 1
            else:
                counts[Demand.SUPPLIED if row[self._cap] <= 0 else Demand.NOT_DRAWN] += 1
        return counts

    def placed(self, queue: QueueId) -> int:
        """The pilots that it placed."""
        name = "/".join(queue)
        return sum(count for _, place, count in self.record["placements"] if place == name)

    def _room(self, queue: QueueId) -> Mapping[str, Any] | None:
        return cast("Mapping[str, Any] | None", self.record["rooms"].get("/".join(queue)))

    def queue(self, queue: QueueId) -> QueueDecision | None:
        """Its decision about a CE queue; None if it did not consider the queue."""
        room = self._room(queue)
        if room is None:
            return None
        clamps = [
            QueueClamp(clamp=ClampName(name), before=before, after=after, limit=limit, text=str(text))
            for name, before, after, limit, text in room["clamps"]
        ]
        return QueueDecision(pilots=room["wanted"], room=room["room"], left=_left(room), clamps=clamps)

    def gate(self, queue: QueueId) -> Gate:
        """What left no free capacity."""
        room = self._room(queue)
        if room is None:
            return Gate(NOT_CONSIDERED, "the director did not consider it")
        if room["room"] > 0:
            return FILLED
        if not room["clamps"]:
            return Gate(NOT_WANTED, "no pilot was wanted there")
        name, *_, text = room["clamps"][-1]
        return Gate(str(name), str(text))

    def gated(self, tq_id: int | None, config: VOConfig, eligible: int) -> int:
        """The eligible queues whose sites take no pilots for a task queue."""
        return eligible & (
            self.unmatched.get(tq_id or _NO_TASK_QUEUE, NOT_ASKED).queues | self.capacity(config).gated
        )

    def after_ends(self, ended: Mapping[QueueId, int]) -> RecordedIteration:
        """The iteration with the capacity of pilots that `ended` since free again."""
        if self._after is not None and self._after[0] == ended:
            return self._after[1]
        rooms = {"/".join(queue): (self._room(queue), count) for queue, count in ended.items()}
        more = {
            name: {**room, "left": left}
            for name, (room, count) in rooms.items()
            if room is not None and (left := _left_after(room, count)) > _left(room)
        }
        iteration = self._with_rooms(more) if more else self
        self._after = ended, iteration
        return iteration

    def _with_rooms(self, more: Mapping[str, Any]) -> RecordedIteration:
        iteration = copy(self)
        iteration.record = {**self.record, "rooms": {**self.record["rooms"], **more}}
        iteration._capacities = {}  # noqa: SLF001 - of the same class
        return iteration

    def capacity(self, config: VOConfig) -> Capacity:
        """The free capacity left to a VO's queues."""
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
            room, gate = self._room(offer.queue), not_sent_gate(config, offer)
            pilots = 0 if room is None or gate else _left(room)
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
    """The sum of the means; at least the target, which later task queues share."""
    target, names = record["plan"].get("target", inf), list(record["row_fields"])
    means = (row[names.index("mean")] for row in record["rows"]) if "mean" in names else ()
    most = record.get("target", {}).get("most") or inf
    return float(min(most, max(target, sum(means))))


class SiteObjections(NamedTuple):
    """What sites object to a task queue's pilots, and in which queues."""

    queues: int = 0
    words: Sequence[str] = ()


NOT_ASKED: Final = SiteObjections()


def _of_sites(ask: Mapping[str, Any]) -> SiteObjections:
    # An older release did not keep the queues.
    queues, texts = 0, []
    for refusal in ask.get("refused", ()):
        if refusal["kind"] in OF_SITES:
            queues |= int(refusal.get("queues", "0"), 16)
            words = [
                f"{name.partition('/')[0]}: {'; '.join(why)}" for name, why in refusal["examples"].items()
            ]
            texts.append("; ".join([f"{counted(refusal['count'], 'queue')}: {refusal['kind']}", *words]))
    return SiteObjections(queues, texts)


def _left(room: Mapping[str, Any]) -> int:
    """After the iteration's own placements; older releases did not keep it."""
    return max(0, int(room.get("left", room["room"])))


def _left_after(room: Mapping[str, Any], ended: int) -> int:
    if room["room"] > 0:
        return min(int(room["room"]), _left(room) + ended)
    free = [
        limit + (ended if name in _COUNTING_PILOTS else 0) for name, _, _, limit, _ in room["clamps"]
    ]  # fmt: skip
    return max(0, min(free, default=0))
