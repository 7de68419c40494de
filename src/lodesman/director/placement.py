"""On which CE queue each pilot goes: a simple broker until sites advertise themselves.

A pilot may go to a queue that its submission pool serves and where the matcher's predicate would give it a
job of its task queue; among those with room one is drawn, weighted by free room. Each placement counts at
once, so that no queue is flooded between two observations (DESIGN, story 8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from lodesman.director.breaker import Breaker
from lodesman.director.clamps import Clamp, clamp
from lodesman.director.demand import Explain
from lodesman.director.pilot_type import PilotIdentity, presented
from lodesman.director.queues import CandidateQueue, CeId, QueueId, queue_limits
from lodesman.matching.request import ResourceRequest
from lodesman.matching.task_queue import TaskQueueKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Pilots to place: `count` of them for one task queue, through one pool, of one identity."""

    tq_id: int
    key: TaskQueueKey
    count: int
    pool: str
    identity: PilotIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`count` pilots go to that CE queue, each presenting `request`."""

    tq_id: int
    queue_id: QueueId
    count: int
    pool: str
    identity: PilotIdentity
    request: ResourceRequest


class RefusalKind(StrEnum):
    """Why a CE queue got none, or no more, of a task queue's pilots."""

    OTHER_POOL = "the submission pool does not serve this queue"
    OTHER_VO = "the queue does not serve the VO"
    INELIGIBLE = "a pilot there could not run these jobs"
    NO_ROOM = "no new pilots may be sent there"
    FILLED = "its room was used up in this iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One CE queue's answer to one task queue: the predicate's reasons, or the clamps that left no room."""

    queue_id: QueueId
    kind: RefusalKind
    reasons: tuple[object, ...] = ()
    clamps: tuple[Clamp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOutcome:
    """What became of one ask; a NO_ROOM or FILLED refusal stands only if pilots stayed unplaced."""

    tq_id: int
    asked: int
    placed: int
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Pilots wanted in a CE queue, pilots it would take at most, and what its clamps took away.

    Without any limit the room is what is wanted.
    """

    wanted: int
    room: int
    clamps: tuple[Clamp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """All placements, the outcome of each ask in order, and the room each queue had at the start."""

    placements: tuple[Placement, ...]
    outcomes: tuple[AskOutcome, ...]
    rooms: Mapping[QueueId, Room]

    @property
    def placed(self) -> int:
        """Pilots placed, all task queues together."""
        return sum(one.count for one in self.placements)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGates:
    """What stands before the queues besides their load: breakers (absent: closed), whole tokens of the
    CEs (absent: not limited), and the age in seconds at which a load is no longer believed.
    """

    breakers: Mapping[QueueId, Breaker]
    tokens: Mapping[CeId, int]
    max_load_age_s: float


def place(
    asks: Sequence[Ask],
    queues: Sequence[CandidateQueue],
    *,
    explain: Explain,
    gates: QueueGates,
    now: float,
    rng: Random,
) -> PlacementResult:
    """Place pilots one by one in random order, so scarce room is shared in the proportions asked."""
    shown: _Shown = {}
    offers = [_offer(ask, queues, explain, shown) for ask in asks]
    floor = _Floor(queues, offers, gates=gates, now=now)
    pending = [index for index, ask in enumerate(asks) for _ in range(ask.count)]
    rng.shuffle(pending)
    for index in pending:
        floor.put(index, offers[index], rng)
    return PlacementResult(
        placements=tuple(floor.placements(offers)),
        outcomes=tuple(floor.outcome(index, offer) for index, offer in enumerate(offers)),
        rooms=floor.rooms,
    )


@dataclass(slots=True, kw_only=True)
class _Offer:
    """An ask, the queues it may use with what its pilots present there, and those that it may not use."""

    ask: Ask
    eligible: dict[QueueId, ResourceRequest]
    refusals: tuple[Refusal, ...]


# What pilots present, by queue and by all of their identity and pool that shows: most asks share it.
_Shown = dict[tuple[QueueId, tuple[str | None, ...]], ResourceRequest]


def _offer(ask: Ask, queues: Sequence[CandidateQueue], explain: Explain, shown: _Shown) -> _Offer:
    who = ask.identity
    shows = (ask.key.vo, ask.pool, who.serves_owner, who.serves_group, who.pilot_type)
    eligible: dict[QueueId, ResourceRequest] = {}
    refusals = []
    for queue in queues:
        if ask.pool not in queue.submission_pools:
            refusals.append(Refusal(queue_id=queue.queue_id, kind=RefusalKind.OTHER_POOL))
            continue
        template = queue.templates.get(ask.key.vo)
        if template is None:
            refusals.append(Refusal(queue_id=queue.queue_id, kind=RefusalKind.OTHER_VO))
            continue
        request = shown.get((queue.queue_id, shows)) or presented(template, who, submission_pool=ask.pool)
        shown[queue.queue_id, shows] = request
        reasons = tuple(explain(ask.key, request))
        if reasons:
            refusals.append(Refusal(queue_id=queue.queue_id, kind=RefusalKind.INELIGIBLE, reasons=reasons))
        else:
            eligible[queue.queue_id] = request
    return _Offer(ask=ask, eligible=eligible, refusals=tuple(refusals))


class _Floor:
    """Rooms while pilots are put: what is left per queue and per CE, and who sits where."""

    def __init__(
        self,
        queues: Sequence[CandidateQueue],
        offers: Sequence[_Offer],
        *,
        gates: QueueGates,
        now: float,
    ) -> None:
        self.rooms: dict[QueueId, Room] = {}
        self._tokens = dict(gates.tokens)
        self._seats: Counter[tuple[int, QueueId]] = Counter()
        wanted = Counter[QueueId]()
        for offer in offers:
            wanted.update(dict.fromkeys(offer.eligible, offer.ask.count))
        for queue in queues:
            self.rooms[queue.queue_id] = _room(queue, wanted[queue.queue_id], gates=gates, now=now)
        self._left = {queue_id: room.room for queue_id, room in self.rooms.items()}
        self._slots = {queue.queue_id: _free_slots(queue) for queue in queues}

    def put(self, index: int, offer: _Offer, rng: Random) -> None:
        """Seat one pilot of that ask, if any eligible queue has room."""
        free = [(queue_id, room) for queue_id in offer.eligible if (room := self._room_left(queue_id)) > 0]
        if not free:
            return
        # A pilot that would start at once is better than one that waits, where slots are known.
        at_once = [(queue_id, n) for queue_id, room in free if (n := min(room, self._slots[queue_id])) > 0]
        choice = at_once or free
        (chosen,) = rng.choices([one for one, _ in choice], weights=[weight for _, weight in choice])
        self._seats[index, chosen] += 1
        self._left[chosen] -= 1
        self._slots[chosen] -= 1
        if chosen.ce_id in self._tokens:
            self._tokens[chosen.ce_id] -= 1

    def placements(self, offers: Sequence[_Offer]) -> Iterator[Placement]:
        for (index, queue_id), count in sorted(self._seats.items()):
            offer = offers[index]
            yield Placement(
                tq_id=offer.ask.tq_id,
                queue_id=queue_id,
                count=count,
                pool=offer.ask.pool,
                identity=offer.ask.identity,
                request=offer.eligible[queue_id],
            )

    def outcome(self, index: int, offer: _Offer) -> AskOutcome:
        placed = sum(self._seats[index, queue_id] for queue_id in offer.eligible)
        refusals = list(offer.refusals)
        if placed < offer.ask.count:
            refusals += [self._full(queue_id) for queue_id in offer.eligible]
        return AskOutcome(
            tq_id=offer.ask.tq_id, asked=offer.ask.count, placed=placed, refusals=tuple(refusals)
        )

    def _full(self, queue_id: QueueId) -> Refusal:
        room = self.rooms[queue_id]
        kind = RefusalKind.FILLED if room.room > 0 else RefusalKind.NO_ROOM
        return Refusal(queue_id=queue_id, kind=kind, clamps=room.clamps)

    def _room_left(self, queue_id: QueueId) -> int:
        left = self._left[queue_id]
        return min(left, self._tokens.get(queue_id.ce_id, left))


def _room(queue: CandidateQueue, wanted: int, *, gates: QueueGates, now: float) -> Room:
    limits = tuple(
        queue_limits(
            queue,
            breaker=gates.breakers.get(queue.queue_id, Breaker()),
            tokens=gates.tokens.get(queue.queue_id.ce_id),
            now=now,
            max_age_s=gates.max_load_age_s,
        )
    )
    # All of the free room, not only what is wanted of it: rooms are the weights of the draw.
    room = max(0, min((limit.limit for limit in limits), default=wanted))
    return Room(wanted=wanted, room=room, clamps=clamp(wanted, limits).clamps)


def _free_slots(queue: CandidateQueue) -> int:
    """Slots in which a new pilot would start at once; 0 if the number of slots is unknown."""
    if queue.slots is None:
        return 0
    taken = (queue.load_waiting.value or 0) + (queue.load_running.value or 0)
    return max(0, queue.slots - max(taken + queue.own.since_load, queue.own.waiting + queue.own.running))
