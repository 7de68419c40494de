"""Task queues and requests as bits, judged by the criteria. Places are thousands and stay: the director judges them by
a table (`PLACE`), identities by `serves`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from lodesman.decide.masks.bits import Mask, Slots
from lodesman.decide.masks.table import Table
from lodesman.decide.matching.criteria import CRITERIA, MatchCriterion, offered_of, wanted_of
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey

_IDENTITY_NAMES: Final = frozenset({"vo", "group", "owner", "pilot_type", "submission_pool"})
_IDENTITY: Final = tuple(criterion for criterion in CRITERIA if criterion.name in _IDENTITY_NAMES)
PLACE: Final = tuple(criterion for criterion in CRITERIA if criterion.name not in _IDENTITY_NAMES)


def serves(key: TaskQueueKey, request: ResourceRequest) -> bool:
    """Whether a pilot of that identity may run the jobs anywhere."""
    return all(criterion.holds(key, request) for criterion in _IDENTITY)


class RequestTable:
    """Resources as bits, for task queues."""

    __slots__ = ("_criteria", "_table")

    def __init__(
        self,
        criteria: Sequence[MatchCriterion] = CRITERIA,
        members: Iterable[tuple[int, ResourceRequest]] = (),
    ) -> None:
        """`members` are (bit, request)."""
        self._criteria = criteria
        self._table = Table(criterion.relation.of_requests() for criterion in criteria)
        for bit, request in members:
            self.add(bit, request)

    def add(self, bit: int, request: ResourceRequest) -> None:
        """Give the resource the bit."""
        self._table.add(bit, offered_of(request, self._criteria))

    def remove(self, bit: int, request: ResourceRequest) -> None:
        """Undo `add`."""
        self._table.remove(bit, offered_of(request, self._criteria))

    def settled(self) -> RequestTable:
        """The table; any thread may ask it while no resource comes or goes."""
        self._table.settle()
        return self

    def narrow(self, mask: Mask, key: TaskQueueKey, names: Collection[str] | None = None) -> Mask:
        """The resources of `mask` that may run the jobs; `names`: by these criteria alone."""
        return self._table.narrow(
            mask,
            (
                criterion.of_key(key) if names is None or criterion.name in names else None
                for criterion in self._criteria
            ),
        )

    def lost(self, mask: Mask, key: TaskQueueKey) -> Iterator[tuple[str, Mask]]:
        """(criterion, the resources of `mask` that it refuses)."""
        for place, refused in self._table.lost(mask, wanted_of(key, self._criteria)):
            yield self._criteria[place].name, refused


class KeyTable:
    """Task queues as bits, which are reused."""

    __slots__ = ("_bits", "_keys", "_names", "_table", "full", "pools")

    def __init__(self, keys: Mapping[int, TaskQueueKey] | None = None) -> None:
        """`keys` by the ids of their task queues."""
        self._table = Table(criterion.relation.of_keys() for criterion in CRITERIA)
        self._bits: dict[int, int] = {}
        self._names = Slots[int]()
        self._keys: dict[int, TaskQueueKey] = {}
        self.pools: dict[int, str] = {}  # SubmitPools by bit, of those that have one
        self.full = 0  # the mask of all task queues
        for tq_id, key in (keys or {}).items():
            self.put(tq_id, key)

    def put(self, tq_id: int, key: TaskQueueKey) -> None:
        """Add a new task queue."""
        bit = self._bits[tq_id] = self._names.put(tq_id)
        self._keys[tq_id] = key
        self._table.add(bit, wanted_of(key))
        if key.submit_pool:
            self.pools[bit] = key.submit_pool
        self.full |= 1 << bit

    def drop(self, tq_id: int) -> None:
        """Remove a known task queue."""
        bit = self._bits.pop(tq_id)
        self._table.remove(bit, wanted_of(self._keys.pop(tq_id)))
        self.pools.pop(bit, None)
        self._names.free(bit)
        self.full ^= 1 << bit

    def bit(self, tq_id: int) -> int:
        """Raises KeyError if the task queue is not there."""
        return self._bits[tq_id]

    def tq_id(self, bit: int) -> int:
        """The bit must be set in `full`."""
        return cast("int", self._names[bit])

    def narrow_served(self, mask: Mask, request: ResourceRequest) -> Mask:
        """The task queues of `mask` that the resource may run; the caller checks SubmitPools."""
        return self._table.narrow(
            mask,
            [
                None if criterion.name == "submit_pool" else criterion.of_request(request)
                for criterion in CRITERIA
            ],
        )

    def lost(self, mask: Mask, request: ResourceRequest) -> Iterator[tuple[MatchCriterion, Mask]]:
        """(criterion, the task queues of `mask` that it refuses)."""
        for place, refused in self._table.lost(mask, offered_of(request)):
            yield CRITERIA[place], refused
