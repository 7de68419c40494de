"""On which CE queue each pilot goes: a simple broker until sites advertise themselves.

A pilot may go to a queue that its submission pool serves and where the matcher's predicate would give it a
job of its task queue; among those with room one is drawn, weighted by free room. Each placement counts at
once, so that no queue is flooded between two observations (DESIGN, story 8). All of it works on masks of
queues (`places.py`, `tally.py`); a reason is made only where somebody asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from lodesman.answers.vocabulary import RefusalKind
from lodesman.director.clamps import Clamp
from lodesman.director.floor import Floor, QueueGates, Room, room_of
from lodesman.director.pilot_type import PilotIdentity
from lodesman.director.places import Ask, Places
from lodesman.masks.bits import Tally, bits
from lodesman.matching.criteria import Reason
from lodesman.matching.request import ResourceRequest
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.resources import QueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`count` pilots go to that CE queue, each presenting `request`, for the task queue with that key."""

    tq_id: int
    key: TaskQueueKey
    queue_id: QueueId
    count: int
    pool: str
    identity: PilotIdentity
    request: ResourceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One CE queue's answer to one task queue: the predicate's reasons, or the clamps that left no room."""

    queue_id: QueueId
    kind: RefusalKind
    reasons: tuple[Reason, ...] = ()
    clamps: tuple[Clamp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """All CE queues that gave a task queue the same answer, as a mask of the iteration's queues."""

    kind: RefusalKind
    mask: int

    @property
    def count(self) -> int:
        """How many they are."""
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOutcome:
    """What became of one ask; NO_ROOM and FILLED stand only if pilots stayed unplaced."""

    ask: Ask
    placed: int
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """All placements, the outcome of each ask in order, and the room each queue had at the start."""

    placements: tuple[Placement, ...]
    outcomes: tuple[AskOutcome, ...]
    rooms: Mapping[QueueId, Room]
    places: Places = field(compare=False, repr=False)

    @property
    def placed(self) -> int:
        """Pilots placed, all task queues together."""
        return sum(one.count for one in self.placements)

    def refusals(self, outcome: AskOutcome, *, each: int | None = None) -> Iterator[Refusal]:
        """The answers to one ask with their reasons: up to `each` of a kind (None: all), by queue."""
        for refused in outcome.refused:
            for bit in islice(bits(refused.mask), each):
                queue_id = self.places.queues[bit].queue_id
                is_unfit = refused.kind is RefusalKind.INELIGIBLE
                is_full = refused.kind in {RefusalKind.NO_ROOM, RefusalKind.FILLED}
                yield Refusal(
                    queue_id=queue_id,
                    kind=refused.kind,
                    reasons=self.places.reasons(bit, outcome.ask) if is_unfit else (),
                    clamps=self.rooms[queue_id].clamps if is_full else (),
                )


def place(
    asks: Sequence[Ask], places: Places, *, gates: QueueGates, now: float, rng: Random
) -> PlacementResult:
    """Place pilots one by one in random order, so scarce room is shared in the proportions asked."""
    eligible = [places.eligible(ask) for ask in asks]
    wanted = Tally()
    for ask, mask in zip(asks, eligible, strict=True):
        wanted.add(mask, ask.count)
    rooms = [
        room_of(queue, wanted.number(bit), gates=gates, now=now) for bit, queue in enumerate(places.queues)
    ]
    floor = Floor(places.queues, rooms, gates.tokens)
    pending = [number for number, ask in enumerate(asks) for _ in range(ask.count)]
    rng.shuffle(pending)
    for number in pending:
        floor.put(number, eligible[number], rng)
    return PlacementResult(
        placements=tuple(_placements(asks, places, floor)),
        outcomes=tuple(_outcomes(asks, eligible, places, floor)),
        rooms={queue.queue_id: room for queue, room in zip(places.queues, rooms, strict=True)},
        places=places,
    )


def _placements(asks: Sequence[Ask], places: Places, floor: Floor) -> Iterator[Placement]:
    seats = [(number, places.queues[bit].queue_id, bit) for number, bit in floor.seats]
    for number, queue_id, bit in sorted(seats):
        ask = asks[number]
        yield Placement(
            tq_id=ask.tq_id,
            key=ask.key,
            queue_id=queue_id,
            count=floor.seats[number, bit],
            pool=ask.pool,
            identity=ask.identity,
            request=places.request(bit, ask),
        )


def _outcomes(
    asks: Sequence[Ask], eligible: Sequence[int], places: Places, floor: Floor
) -> Iterator[AskOutcome]:
    placed: Counter[int] = Counter()
    for (number, _), count in floor.seats.items():
        placed[number] += count
    for number, ask in enumerate(asks):
        refused = _unfit(ask, eligible[number], places)
        if placed[number] < ask.count:
            refused += _full(eligible[number], floor.had_room)
        yield AskOutcome(ask=ask, placed=placed[number], refused=refused)


def _unfit(ask: Ask, eligible: int, places: Places) -> tuple[Refused, ...]:
    served, of_vo = places.of_pool(ask.pool), places.of_vo(ask.key.vo)
    return _some(
        Refused(kind=RefusalKind.OTHER_POOL, mask=places.full & ~served),
        Refused(kind=RefusalKind.OTHER_VO, mask=served & ~of_vo),
        Refused(kind=RefusalKind.INELIGIBLE, mask=served & of_vo & ~eligible),
    )


def _full(eligible: int, had_room: int) -> tuple[Refused, ...]:
    return _some(
        Refused(kind=RefusalKind.FILLED, mask=eligible & had_room),
        Refused(kind=RefusalKind.NO_ROOM, mask=eligible & ~had_room),
    )


def _some(*refused: Refused) -> tuple[Refused, ...]:
    """Those that any queue gave, in the order of their first queues."""
    return tuple(sorted((one for one in refused if one.mask), key=lambda one: one.mask & -one.mask))
