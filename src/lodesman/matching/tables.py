"""Whole snapshots held against each other by masks: what the director needs (DESIGN 3.3, index).

`KeyTable` has task queues as bits and is asked by requests, `PlaceTable` has requests as bits and is asked by keys.
Both use the criteria as they stand and keep no rule of their own. A request says two things: where and how
much it is (the place), and whom it serves (the identity, chosen with the pilot). Places are thousands and stay;
identities are as many as there are owners. So a `PlaceTable` judges the place alone, `serves` the identity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from lodesman.matching.criteria import CRITERIA, Criterion, KeyMasks, RequestMasks
from lodesman.matching.request import ResourceRequest
from lodesman.matching.task_queue import TaskQueueKey

IDENTITY_FIELDS: Final = ("vo", "groups", "owner", "pilot_type", "submission_pool")
"""What of a request is chosen with the pilot; the criteria of the place read none of these."""

_POOL_NAME: Final = "submit_pool"
_IDENTITY_NAMES: Final = frozenset({"vo", "group", "owner", "pilot_type", "submission_pool"})
IDENTITY: Final = tuple(one for one in CRITERIA if one.name in _IDENTITY_NAMES)
PLACE: Final = tuple(one for one in CRITERIA if one.name not in _IDENTITY_NAMES)


def serves(key: TaskQueueKey, request: ResourceRequest) -> bool:
    """Whether a pilot of that identity may run jobs of the task queue, wherever it is."""
    return not any(criterion.reason(key, request) for criterion in IDENTITY)


class PlaceTable:
    """Requests as bits, told by where they are and how much there is."""

    __slots__ = ("_requests",)

    def __init__(self, members: Iterable[tuple[int, ResourceRequest]]) -> None:
        """`members` are (bit, request)."""
        self._requests = RequestMasks(PLACE)
        for bit, request in members:
            self._requests.add(bit, request)

    def narrow(self, mask: int, key: TaskQueueKey) -> int:
        """The places of `mask` where a pilot that `serves` the key may run its jobs."""
        return self._requests.narrow(mask, key)

    def narrow_by(self, names: Collection[str], mask: int, key: TaskQueueKey) -> int:
        """The places of `mask` that pass the criteria of these names, whatever others say."""
        return self._requests.narrow_by(names, mask, key)

    def lost(self, mask: int, key: TaskQueueKey) -> Iterator[tuple[str, int]]:
        """(criterion, the places of `mask` that it refuses), for those that refuse any, whatever others say."""
        return self._requests.lost(mask, key)


class KeyTable:
    """Task queues as bits. Bits are given out again when a task queue is dropped; their order means nothing."""

    __slots__ = ("_bits", "_free", "_masks", "_names", "_pools", "_wanted", "full")

    def __init__(self, keys: Mapping[int, TaskQueueKey] | None = None) -> None:
        """`keys` by the ids of their task queues."""
        self._masks = KeyMasks(CRITERIA)
        self._bits: dict[int, int] = {}
        self._names: list[int] = []
        self._wanted: dict[int, tuple[Any, ...]] = {}
        self._pools: dict[int, str] = {}
        self._free: list[int] = []
        self.full = 0
        """The mask of all task queues."""
        for tq_id, key in (keys or {}).items():
            self.put(tq_id, key)

    def __contains__(self, tq_id: int) -> bool:
        return tq_id in self._bits

    def put(self, tq_id: int, key: TaskQueueKey) -> None:
        """A task queue that is not there yet."""
        bit = self._free.pop() if self._free else len(self._names)
        if bit == len(self._names):
            self._names.append(tq_id)
        self._names[bit] = tq_id
        self._bits[tq_id] = bit
        self._wanted[tq_id] = wanted = self._masks.wanted(key)
        self._masks.add(bit, wanted)
        if key.submit_pool:
            self._pools[bit] = key.submit_pool
        self.full |= 1 << bit

    def drop(self, tq_id: int) -> None:
        """A task queue that is there goes."""
        bit = self._bits.pop(tq_id)
        self._masks.remove(bit, self._wanted.pop(tq_id))
        self._pools.pop(bit, None)
        self._free.append(bit)
        self.full ^= 1 << bit

    def bit(self, tq_id: int) -> int:
        """Its bit; raises KeyError if it is not there."""
        return self._bits[tq_id]

    def tq_id(self, bit: int) -> int:
        """The task queue with that bit, which is set in `full`."""
        return self._names[bit]

    @property
    def pools(self) -> Mapping[int, str]:
        """The SubmitPools of those that have one, by bit."""
        return self._pools

    def narrow(self, mask: int, request: ResourceRequest) -> int:
        """The task queues of `mask` whose jobs the resource may run."""
        return self._masks.narrow(mask, [criterion.of_request(request) for criterion in CRITERIA])

    def narrow_served(self, mask: int, request: ResourceRequest) -> int:
        """As `narrow`, where `mask` has only task queues whose SubmitPools the resource serves, if any.

        Its own list of SubmitPools is not looked at: it may be thousands long, and the caller has masks.
        """
        offered = [None if one.name == _POOL_NAME else one.of_request(request) for one in CRITERIA]
        return self._masks.narrow(mask, offered)

    def lost(self, mask: int, request: ResourceRequest) -> Iterator[tuple[Criterion, int]]:
        """(criterion, the task queues of `mask` that it refuses), for those that refuse any, whatever others say."""
        for criterion, masks in zip(CRITERIA, self._masks.masks, strict=True):
            offered = criterion.of_request(request)
            refused = 0 if offered is None else mask & ~masks.narrow(mask, offered)
            if refused:
                yield criterion, refused
