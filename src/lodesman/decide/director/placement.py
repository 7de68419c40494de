"""Where each pilot goes: to a queue of its pool where it would get a job of its task queue, drawn by free room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from msgspec import Struct

from lodesman.decide.director.budgets import Budget, SiteBudget, gate_limit, shared_budgets
from lodesman.decide.director.limits import Clamp, Limit
from lodesman.decide.director.orders import PilotOrder, PoolState
from lodesman.decide.director.places import Places
from lodesman.decide.director.queues import CandidateQueue, QueueGates, Room, free_slots, room_of
from lodesman.decide.director.site_matching import OrderAtSites, SiteMatching
from lodesman.decide.masks.bits import Mask, Tally, bits
from lodesman.decide.matching.criteria import Reason
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.resources import QueueId
from lodesman.wire.vocabulary import RefusalKind


class Placement(Struct, frozen=True, kw_only=True):
    """Pilots of an order in one CE queue."""

    order: PilotOrder
    queue_id: QueueId
    count: int
    request: ResourceRequest  # what each of them presents


class QueueRefusal(Struct, frozen=True, kw_only=True):
    """A CE queue's answer to a task queue."""

    queue_id: QueueId
    kind: RefusalKind
    reasons: tuple[Reason, ...] = ()  # of the predicate
    clamps: tuple[Clamp, ...] = ()  # left no room


class RefusedQueues(Struct, frozen=True, kw_only=True):
    """CE queues that gave a task queue the same answer."""

    kind: RefusalKind
    mask: int

    @property
    def count(self) -> int:
        """How many they are."""
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOutcome:
    """What became of one order."""

    order: PilotOrder
    placed: int
    refused: tuple[RefusedQueues, ...] = ()
    at_sites: OrderAtSites | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """Placements and outcomes of all orders."""

    placements: tuple[Placement, ...]
    outcomes: tuple[OrderOutcome, ...]
    rooms: Mapping[QueueId, Room]  # at the start
    left: Mapping[QueueId, int]  # at the end
    places: Places = field(compare=False, repr=False)

    @property
    def placed(self) -> int:
        """Pilots placed in all."""
        return sum(placement.count for placement in self.placements)

    def refusals(self, outcome: OrderOutcome, *, each: int | None = None) -> Iterator[QueueRefusal]:
        """The refusals of an order: up to `each` of a kind, by queue."""
        for refused in outcome.refused:
            for bit in islice(bits(refused.mask), each):
                queue_id = self.places.queues[bit].queue_id
                is_full = refused.kind in {RefusalKind.NO_ROOM, RefusalKind.FILLED}
                yield QueueRefusal(
                    queue_id=queue_id,
                    kind=refused.kind,
                    reasons=self._reasons(refused.kind, bit, outcome),
                    clamps=self.rooms[queue_id].clamps if is_full else (),
                )

    def _reasons(self, kind: RefusalKind, bit: int, outcome: OrderOutcome) -> tuple[Reason, ...]:
        if kind is RefusalKind.INELIGIBLE:
            return self.places.reasons(bit, outcome.order)
        if kind in {RefusalKind.UNMATCHED, RefusalKind.NOT_ADMITTED} and outcome.at_sites is not None:
            words = outcome.at_sites.refusal(self.places.queues[bit].queue_id.site, bit)
            return (Reason("site_ad", words),) if words else ()
        return ()


@dataclass(slots=True, kw_only=True)
class _Seeker:
    order: PilotOrder
    eligible: Mask
    unmatched: Mask = 0  # queues that only their sites exclude
    at_sites: OrderAtSites | None = None  # what the order finds at sites
    placed: Counter[int] = field(default_factory=Counter)  # by queue
    used: Mask = 0  # where its pilots are
    shut_out: Mask = 0  # where one was not admitted

    @classmethod
    def of(cls, order: PilotOrder, places: Places, sites: SiteMatching) -> _Seeker:
        eligible = places.eligible(order)
        at_sites = sites.request(order) if eligible else None
        refusing = 0 if at_sites is None else at_sites.refusing
        return cls(
            order=order, eligible=eligible & ~refusing, unmatched=eligible & refusing, at_sites=at_sites
        )


class _Seats:
    """`rooms` and `budgets` by bit."""

    def __init__(
        self,
        queues: Mapping[int, CandidateQueue],
        rooms: Mapping[int, Room],
        *,
        budgets: Mapping[int, Sequence[Budget]],
        spare: Counter[str],
    ) -> None:
        self.rooms = rooms
        self._queues = queues
        self._budgets = budgets
        self._spare = spare  # submissions that each pool takes beyond the first of each order
        # What each queue would still take; and of these, how many pilots would start at once.
        self.left = Tally({bit: room.room for bit, room in rooms.items()})
        self._at_once = Tally({bit: min(room.room, free_slots(queues[bit])) for bit, room in rooms.items()})
        self.had_room = self.left.positive  # queues, at the start

    @property
    def has_room(self) -> int:
        return self.left.positive

    def put(self, seeker: _Seeker, rng: Random) -> None:
        free, pool = seeker.eligible & self.left.positive, seeker.order.pool
        if seeker.used and self._spare[pool] <= 0:
            free &= seeker.used
        bit = self._draw(free, seeker, rng)
        if bit is None:
            return
        seeker.placed[bit] += 1
        if not seeker.used >> bit & 1:
            self._spare[pool] -= bool(seeker.used)
            seeker.used |= 1 << bit
        self.left.take_one(1 << bit)
        self._at_once.take_one(1 << bit)
        for budget in self._budgets[bit]:
            budget.take()
            if budget.binds:
                for tally in (self.left, self._at_once):
                    tally.limit(budget.mask, budget.left)

    def _draw(self, free: Mask, seeker: _Seeker, rng: Random) -> int | None:
        at_sites = seeker.at_sites
        while free:
            best = free if at_sites is None else at_sites.drawn(at_sites.best(free), rng)
            # A pilot that would start at once is better than one that waits, where slots are known.
            at_once = best & self._at_once.positive
            bit = self._at_once.draw(at_once, rng) if at_once else self.left.draw(best, rng)
            if at_sites is None or at_sites.admits(self._queues[bit].queue_id.site, bit):
                return bit
            seeker.shut_out |= 1 << bit
            free &= ~(1 << bit)
        return None


def place(
    orders: Sequence[PilotOrder],
    places: Places,
    *,
    pools: Mapping[str, PoolState],
    gates: QueueGates,
    now: float,
    rng: Random,
) -> PlacementResult:
    """Place pilots one by one in random order, so that scarce room is shared in proportion. An order makes one
    submission to a queue; each order is sure of one.
    """
    seekers = [_Seeker.of(order, places, gates.sites) for order in orders]
    seats = _empty_seats(seekers, places, pools=pools, gates=gates, now=now)
    pending = [seeker for seeker in seekers for _ in range(seeker.order.count)]
    rng.shuffle(pending)
    for seeker in pending:
        seats.put(seeker, rng)
    return PlacementResult(
        placements=tuple(
            Placement(
                order=seeker.order,
                queue_id=queue_id,
                count=seeker.placed[bit],
                request=places.request(bit, seeker.order),
            )
            for seeker in seekers
            for queue_id, bit in sorted((places.queues[bit].queue_id, bit) for bit in seeker.placed)
        ),
        outcomes=tuple(_outcomes(seekers, places, seats)),
        rooms={queue.queue_id: seats.rooms[bit] for bit, queue in places.queues.items()},
        left={queue.queue_id: seats.left.number(bit) for bit, queue in places.queues.items()},
        places=places,
    )


def _empty_seats(
    seekers: Sequence[_Seeker],
    places: Places,
    *,
    pools: Mapping[str, PoolState],
    gates: QueueGates,
    now: float,
) -> _Seats:
    tally = Tally()
    for seeker in seekers:
        tally.add(seeker.eligible, seeker.order.count)
    counts = {bit: tally.number(bit) for bit in places.queues}
    rooms = {bit: room_of(queue, counts[bit], gates=gates, now=now) for bit, queue in places.queues.items()}
    cut = _cut_by_gates(places, gates.sites.gates, rooms)
    for bit, queue in places.queues.items():
        site = cut.get(queue.queue_id.site)
        if site is not None:
            rooms[bit] = room_of(queue, counts[bit], gates=gates, now=now, site=site)
    budgets = shared_budgets(
        {bit: room.room for bit, room in rooms.items()},
        {bit: queue.queue_id for bit, queue in places.queues.items()},
        tokens=gates.tokens,
        sites=gates.sites.gates,
        limits=cut,
    )
    spare = Counter({name: pool.room for name, pool in pools.items()})
    spare.subtract(seeker.order.pool for seeker in seekers)
    return _Seats(places.queues, rooms, budgets=budgets, spare=spare)


def _cut_by_gates(
    places: Places, gates: Mapping[str, SiteBudget], rooms: Mapping[int, Room]
) -> dict[str, Limit]:
    """Gates that admit less than is wanted, or than one pilot."""
    most: dict[str, int] = {}
    for bit, queue in places.queues.items():
        site = queue.queue_id.site
        if site in gates:
            most[site] = max(most.get(site, 1), min(rooms[bit].room, rooms[bit].wanted))
    return {site: cut for site, count in most.items() if (cut := gate_limit(gates[site], count)) is not None}


def _outcomes(seekers: Sequence[_Seeker], places: Places, seats: _Seats) -> Iterator[OrderOutcome]:
    for seeker in seekers:
        order, mask = seeker.order, seeker.eligible
        placed = seeker.placed.total()
        served, of_vo = places.of_pool(order.pool), places.of_vo(order.key.vo)
        refusing, shut = places.refusing(order), places.shut_for(order.identity.account)
        refused = _refused(
            (RefusalKind.OTHER_POOL, places.full & ~served),
            (RefusalKind.OTHER_VO, served & ~of_vo),
            (RefusalKind.PRIVATE_ONLY, served & of_vo & refusing),
            (RefusalKind.NO_CREDENTIAL, served & of_vo & shut & ~refusing),
            (RefusalKind.INELIGIBLE, served & of_vo & ~refusing & ~shut & ~mask & ~seeker.unmatched),
            (RefusalKind.UNMATCHED, seeker.unmatched),
        )
        if placed < order.count:
            has_room, shut_out = mask & seats.has_room, seeker.shut_out
            refused += _refused(
                (RefusalKind.FILLED, mask & seats.had_room & ~seats.has_room),
                (RefusalKind.NO_ROOM, mask & ~seats.had_room),
                (RefusalKind.NOT_ADMITTED, has_room & shut_out),
                (RefusalKind.POOL_FULL, has_room & ~shut_out),
            )
        yield OrderOutcome(order=order, placed=placed, refused=refused, at_sites=seeker.at_sites)


def _refused(*answers: tuple[RefusalKind, int]) -> tuple[RefusedQueues, ...]:
    ordered = sorted((answer for answer in answers if answer[1]), key=lambda answer: answer[1] & -answer[1])
    return tuple(RefusedQueues(kind=kind, mask=mask) for kind, mask in ordered)
