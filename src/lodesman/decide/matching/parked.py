"""Requests that wait for work (long poll): parked by signature, woken by task queues that fill. Fits are decided once
for all signatures, as masks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from lodesman.decide.masks.bits import Slots, bits
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.tables import RequestTable
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueId

_LIFE_STEP: Final = 60
_IDLE_SIGNATURES: Final = 1024
FEW: Final = 48


Order = tuple[float, int, int]  # since, number of the ticket, slot of its kind; number makes it unique
_FIRST: Final[Order] = (float("-inf"), 0, 0)


def signature(request: ResourceRequest) -> ResourceRequest:
    """The request as it waits: lists sorted, life rounded down to 60 s."""
    return replace(
        request,
        groups=_sorted(request.groups),
        platforms=_sorted(request.platforms) or (),
        tags=_sorted(request.tags) or (),
        required_tags=_sorted(request.required_tags) or (),
        job_types=_sorted(request.job_types),
        job_classes=_sorted(request.job_classes),
        submit_pools=_sorted(request.submit_pools) or (),
        norm_cpu_seconds=request.norm_cpu_seconds // _LIFE_STEP * _LIFE_STEP,
    )


def _sorted(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return values if values is None or len(values) < 2 else tuple(sorted(set(values)))


@dataclass(slots=True, eq=False)
class _Kind:
    signature: ResourceRequest
    slot: int = -1
    orders: list[Order] = field(default_factory=list)  # of its tickets, longest waiting first


class _Ticket(Struct, frozen=True):
    name: Hashable  # as the caller knows the request
    kind: _Kind
    count: int
    order: Order


class ParkedRequests:
    """Used from one thread only.

    `serves`: whether a place serves a SubmitPool now; then a request's pools, which may come and go, do not count.
    """

    __slots__ = (
        "_at_place", "_by_order", "_idle", "_index", "_kinds", "_masks", "_number", "_occupied", "_orders",
        "_serves", "_slots", "_tickets",
    )  # fmt: skip

    def __init__(self, index: Index, serves: Callable[[str, QueueId], bool] | None = None) -> None:
        self._index = index
        self._serves = serves
        self._at_place: dict[QueueId, int] = {}  # the kinds of each place
        self._masks = RequestTable()
        self._kinds: dict[ResourceRequest, _Kind] = {}
        self._idle: dict[ResourceRequest, None] = {}  # kinds without tickets, longest ago first
        self._slots = Slots[_Kind]()
        self._occupied = 0  # the slots of kinds that have tickets
        self._tickets: dict[Hashable, _Ticket] = {}
        self._by_order: dict[Order, _Ticket] = {}
        self._orders: list[Order] = []
        self._number = 0

    def park(self, ticket: Hashable, request: ResourceRequest, count: int, since: float) -> None:
        """Let a request for up to `count` jobs wait; `since` decides its turn. Raises ValueError if it waits already."""
        if ticket in self._tickets:
            raise ValueError(f"ticket {ticket!r} is parked already")
        if self._serves is not None and request.submit_pools:
            request = replace(request, submit_pools=())
        kind = self._kind(signature(request))
        self._number += 1
        order = since, self._number, kind.slot
        self._tickets[ticket] = self._by_order[order] = _Ticket(ticket, kind, count, order)
        insort(self._orders, order)
        insort(kind.orders, order)
        self._occupied |= 1 << kind.slot

    def leave(self, ticket: Hashable) -> bool:
        """End a wait; false if there was none."""
        parked = self._tickets.pop(ticket, None)
        if parked is None:
            return False
        order, kind = parked.order, parked.kind
        del self._by_order[order]
        del self._orders[bisect_left(self._orders, order)]
        del kind.orders[bisect_left(kind.orders, order)]
        if not kind.orders:
            self._occupied ^= 1 << kind.slot
            self._idle[kind.signature] = None
        return True

    def fits(self, key: TaskQueueKey) -> bool:
        """Whether a waiting request may run jobs with this key."""
        return bool(self._kinds_for(key))

    def in_turn(self) -> list[tuple[Any, ResourceRequest]]:
        """All tickets and their signatures, longest waiting first."""
        tickets = (self._by_order[order] for order in self._orders)
        return [(ticket.name, ticket.kind.signature) for ticket in tickets]

    def wake(
        self, filled: Mapping[int, int], is_shut: Callable[[int, Any], bool] = lambda _id, _ticket: False
    ) -> Iterator[Hashable]:
        """The tickets to serve for filled task queues, each once, longest waiting first.

        `filled`: how many jobs joined. `is_shut`: whether limits keep a ticket from a task queue. The caller lets each
        ticket claim, and leave if it got something, before it asks for the next. One still parked counts for the jobs
        that it asked for.
        """
        woken: set[Order] = set()
        for tq_id, jobs in filled.items():
            left = jobs
            after = _FIRST
            fitting = self._fitting(tq_id)
            while left > 0 and self._index.is_open(tq_id):
                ticket = self._next(fitting & self._occupied, after)
                if ticket is None:
                    break
                after = ticket.order
                if after in woken or is_shut(tq_id, ticket.name):
                    continue
                woken.add(after)
                waiting = self._index.waiting(tq_id)
                yield ticket.name
                left -= ticket.count if ticket.name in self._tickets else waiting - self._index.waiting(tq_id)

    def _fitting(self, tq_id: int) -> int:
        if not self._occupied or not self._index.is_open(tq_id):
            return 0
        return self._kinds_for(self._index.key(tq_id))

    def _kinds_for(self, key: TaskQueueKey) -> int:
        if self._serves is None or not key.submit_pool:
            return self._masks.narrow(self._occupied, key)
        here = 0
        for place, kinds in self._at_place.items():
            if kinds & self._occupied and self._serves(key.submit_pool, place):
                here |= kinds
        return self._masks.narrow(here & self._occupied, replace(key, submit_pool="")) if here else 0

    def _next(self, mask: int, after: Order) -> _Ticket | None:
        if not mask:
            return None
        if mask.bit_count() <= FEW:
            kinds = (kind for slot in bits(mask) if (kind := self._slots[slot]))
            order = min((o for kind in kinds for o in _from(kind.orders, after, 1)), default=None)
        else:
            order = next((o for o in _from(self._orders, after, len(self._orders)) if mask >> o[2] & 1), None)
        return None if order is None else self._by_order[order]

    def _kind(self, described: ResourceRequest) -> _Kind:
        kind = self._kinds.get(described)
        if kind is not None:
            self._idle.pop(described, None)
            return kind
        while len(self._idle) > _IDLE_SIGNATURES:
            oldest = next(iter(self._idle))  # longest unused
            del self._idle[oldest]
            slot = self._kinds.pop(oldest).slot
            self._masks.remove(slot, oldest)
            place = _place(oldest)
            self._at_place[place] ^= 1 << slot
            if not self._at_place[place]:
                del self._at_place[place]
            self._slots.free(slot)
        kind = self._kinds[described] = _Kind(described)
        slot = kind.slot = self._slots.put(kind)
        self._masks.add(slot, described)
        place = _place(described)
        self._at_place[place] = self._at_place.get(place, 0) | 1 << slot
        return kind


def _place(request: ResourceRequest) -> QueueId:
    return QueueId(request.site, request.ce, request.queue)


def _from(orders: list[Order], after: Order, at_most: int) -> Iterator[Order]:
    place = bisect_right(orders, after)
    return islice(orders, place, place + at_most)
