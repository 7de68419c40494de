"""On which CE queue each pilot goes: one of its pool's queues where the matcher would give it a job of its task queue.

One with room is drawn, weighted by free room. Each placement counts at once, so no queue is flooded between observations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from lodesman.answers.vocabulary import RefusalKind
from lodesman.director.budgets import Budget, gate_limit, shared_budgets
from lodesman.director.limits import Clamp, Limit
from lodesman.director.orders import PilotOrder, PoolState
from lodesman.director.places import Places
from lodesman.director.queues import CandidateQueue, QueueGates, Room, free_slots, room_of
from lodesman.masks.bits import Tally, bits
from lodesman.matching.criteria import Reason
from lodesman.matching.request import ResourceRequest
from lodesman.resources import QueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`count` pilots of an order go to that CE queue, each presenting `request`."""

    order: PilotOrder
    queue_id: QueueId
    count: int
    request: ResourceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRefusal:
    """One CE queue's answer to one task queue: the predicate's reasons, or the clamps that left no room."""

    queue_id: QueueId
    kind: RefusalKind
    reasons: tuple[Reason, ...] = ()
    clamps: tuple[Clamp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """All CE queues that gave a task queue the same answer, as a mask."""

    kind: RefusalKind
    mask: int

    @property
    def count(self) -> int:
        """How many they are."""
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOutcome:
    """What became of one order; NO_ROOM, FILLED and POOL_FULL stand only if pilots stayed unplaced."""

    order: PilotOrder
    placed: int
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """All placements, the outcome of each order, and the room that each queue had at the start, and has `left`."""

    placements: tuple[Placement, ...]
    outcomes: tuple[OrderOutcome, ...]
    rooms: Mapping[QueueId, Room]
    left: Mapping[QueueId, int]
    places: Places = field(compare=False, repr=False)

    @property
    def placed(self) -> int:
        """Pilots placed, all task queues together."""
        return sum(one.count for one in self.placements)

    def refusals(self, outcome: OrderOutcome, *, each: int | None = None) -> Iterator[QueueRefusal]:
        """The answers to one order with their reasons: up to `each` of a kind (None: all), by queue."""
        for refused in outcome.refused:
            for bit in islice(bits(refused.mask), each):
                queue_id = self.places.queues[bit].queue_id
                is_unfit = refused.kind is RefusalKind.INELIGIBLE
                is_full = refused.kind in {RefusalKind.NO_ROOM, RefusalKind.FILLED}
                yield QueueRefusal(
                    queue_id=queue_id,
                    kind=refused.kind,
                    reasons=self.places.reasons(bit, outcome.order) if is_unfit else (),
                    clamps=self.rooms[queue_id].clamps if is_full else (),
                )


class _Seats:
    """Where pilots go, one by one; `taken` counts by (number of the order, bit). `rooms` and `budgets`: by bit. `spare`: the
    submissions that each submission pool takes beyond the first of each order.
    """

    def __init__(
        self,
        queues: Mapping[int, CandidateQueue],
        rooms: Mapping[int, Room],
        *,
        budgets: Mapping[int, Sequence[Budget]],
        spare: Counter[str],
    ) -> None:
        self.taken: Counter[tuple[int, int]] = Counter()
        self._used: defaultdict[int, int] = defaultdict(int)
        self._spare = spare
        self._budgets = budgets
        self.rooms = rooms
        # What each queue would still take; and of these, how many pilots would start at once.
        self.left = Tally({bit: room.room for bit, room in rooms.items()})
        self._at_once = Tally({bit: min(room.room, free_slots(queues[bit])) for bit, room in rooms.items()})
        self.had_room = self.left.positive
        """The queues that had room at the start."""

    @property
    def has_room(self) -> int:
        """The queues that still have room."""
        return self.left.positive

    def put(self, order: int, eligible: int, pool: str, rng: Random) -> None:
        """Place one pilot of an order, if any queue of `eligible` has room and the pool takes the submission."""
        used = self._used[order]
        free = eligible & self.left.positive
        if used and self._spare[pool] <= 0:
            free &= used
        if not free:
            return
        # A pilot that would start at once is better than one that waits, where slots are known.
        at_once = free & self._at_once.positive
        bit = self._at_once.draw(at_once, rng) if at_once else self.left.draw(free, rng)
        self.taken[order, bit] += 1
        if not used >> bit & 1:
            self._used[order] |= 1 << bit
            self._spare[pool] -= bool(used)
        self.left.take_one(1 << bit)
        self._at_once.take_one(1 << bit)
        for budget in self._budgets[bit]:
            budget.take()
            if budget.binds:
                for tally in (self.left, self._at_once):
                    tally.limit(budget.mask, budget.left)


def place(
    orders: Sequence[PilotOrder],
    places: Places,
    *,
    pools: Mapping[str, PoolState],
    gates: QueueGates,
    now: float,
    rng: Random,
) -> PlacementResult:
    """Place pilots one by one in random order, so scarce room is shared in the proportions asked.

    What an order sends to one queue is one submission. `pools` bound them; each order is sure of one.
    """
    eligible = [places.eligible(order) for order in orders]
    seats = _empty_seats(orders, eligible, places, pools=pools, gates=gates, now=now)
    pending = [number for number, order in enumerate(orders) for _ in range(order.count)]
    rng.shuffle(pending)
    for number in pending:
        seats.put(number, eligible[number], orders[number].pool, rng)
    seated = sorted((number, places.queues[bit].queue_id, bit) for number, bit in seats.taken)
    return PlacementResult(
        placements=tuple(
            Placement(
                order=orders[number],
                queue_id=queue_id,
                count=seats.taken[number, bit],
                request=places.request(bit, orders[number]),
            )
            for number, queue_id, bit in seated
        ),
        outcomes=tuple(_outcomes(orders, eligible, places, seats)),
        rooms={queue.queue_id: seats.rooms[bit] for bit, queue in places.queues.items()},
        left={queue.queue_id: seats.left.number(bit) for bit, queue in places.queues.items()},
        places=places,
    )


def _empty_seats(
    orders: Sequence[PilotOrder],
    eligible: Sequence[int],
    places: Places,
    *,
    pools: Mapping[str, PoolState],
    gates: QueueGates,
    now: float,
) -> _Seats:
    wanted = Tally()
    for order, mask in zip(orders, eligible, strict=True):
        wanted.add(mask, order.count)
    cut = _cut_by_gates(places, gates, wanted)
    rooms = {
        bit: room_of(queue, wanted.number(bit), gates=gates, now=now, site=cut.get(queue.queue_id.site))
        for bit, queue in places.queues.items()
    }
    budgets = shared_budgets(
        {bit: room.room for bit, room in rooms.items()},
        {bit: queue.queue_id for bit, queue in places.queues.items()},
        tokens=gates.tokens,
        sites=gates.sites,
        limits=cut,
    )
    spare = Counter({name: pool.room for name, pool in pools.items()})
    spare.subtract(order.pool for order in orders)
    return _Seats(places.queues, rooms, budgets=budgets, spare=spare)


def _cut_by_gates(places: Places, gates: QueueGates, wanted: Tally) -> dict[str, Limit]:
    """The gates of sites that let through less than is wanted there: of a single pilot, where none is."""
    most: dict[str, int] = {}
    for bit, queue in places.queues.items():
        site = queue.queue_id.site
        if site in gates.sites:
            most[site] = max(most.get(site, 1), wanted.number(bit))
    return {
        site: cut for site, count in most.items() if (cut := gate_limit(gates.sites[site], count)) is not None
    }


def _outcomes(
    orders: Sequence[PilotOrder], eligible: Sequence[int], places: Places, seats: _Seats
) -> Iterator[OrderOutcome]:
    placed: Counter[int] = Counter()
    for (number, _), count in seats.taken.items():
        placed[number] += count
    for number, (order, mask) in enumerate(zip(orders, eligible, strict=True)):
        served, of_vo = places.of_pool(order.pool), places.of_vo(order.key.vo)
        refusing, shut = places.refusing(order), places.shut_for(order.identity.account)
        refused = _refused(
            (RefusalKind.OTHER_POOL, places.full & ~served),
            (RefusalKind.OTHER_VO, served & ~of_vo),
            (RefusalKind.PRIVATE_ONLY, served & of_vo & refusing),
            (RefusalKind.NO_CREDENTIAL, served & of_vo & shut & ~refusing),
            (RefusalKind.INELIGIBLE, served & of_vo & ~refusing & ~shut & ~mask),
        )
        if placed[number] < order.count:
            refused += _refused(
                (RefusalKind.FILLED, mask & seats.had_room & ~seats.has_room),
                (RefusalKind.NO_ROOM, mask & ~seats.had_room),
                (RefusalKind.POOL_FULL, mask & seats.has_room),
            )
        yield OrderOutcome(order=order, placed=placed[number], refused=refused)


def _refused(*answers: tuple[RefusalKind, int]) -> tuple[Refused, ...]:
    """The answers that any queue gave, in the order of their first queues."""
    given = sorted((one for one in answers if one[1]), key=lambda one: one[1] & -one[1])
    return tuple(Refused(kind=kind, mask=mask) for kind, mask in given)
