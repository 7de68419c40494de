"""Which SubmitPools each CE queue serves, in memory (RFC #7): `getSubmitPoolsForQueue`.

Pools are masks of queues, one bit a queue. Changed by the writer, read by all threads.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import KeysView, Mapping
from itertools import count
from threading import Lock
from typing import NamedTuple, Self, cast

from lodesman.decide.masks.bits import MaskMatrix
from lodesman.decide.resources import QueueId
from lodesman.server.store import Reader
from lodesman.server.store.submit_pools import bits_of_queues, masks_of_pools, pass_requests

_FEW_NEW = 64
_MANY_NEW = 10_000


class ServedPools(NamedTuple):
    """The pools that a queue serves, sorted; `version` differs for other pools."""

    pools: tuple[str, ...]
    version: int


NO_POOLS = ServedPools((), 0)


class PoolMap:
    """Masks of pools, bits of CE queues."""

    def __init__(self) -> None:
        self.version = 0
        self._lock = Lock()
        self.bits: Mapping[QueueId, int] = {}
        """The bits of CE queues."""
        self._masks: dict[str, int] = {}
        self._matrix: tuple[list[str], MaskMatrix] | None = None
        # Queue -> (the map's age when this was read, what it serves). Each new pool adds one to the age.
        self._served: dict[QueueId, tuple[int, ServedPools]] = {}
        self._versions = count(1)
        self._age = 0
        self._new: list[str] = []  # the youngest pools, oldest first

    @classmethod
    def load(cls, db: Reader) -> Self:
        """Read the map from a database."""
        pools = cls()
        pools.bits = bits_of_queues(db)
        pools._masks = masks_of_pools(db)
        return pools

    @property
    def known(self) -> KeysView[str]:
        """The ids of all pools."""
        return self._masks.keys()

    def mask(self, pool: str) -> int | None:
        """None if it is unknown."""
        return self._masks.get(pool)

    def serves(self, pool: str, place: QueueId) -> bool:
        """Whether a queue serves a pool."""
        bit = self.bits.get(place)
        return bit is not None and bool(self._masks.get(pool, 0) >> bit & 1)

    def bit(self, place: QueueId) -> int | None:
        """None if the queue has none."""
        return self.bits.get(place)

    def of_queue(self, place: QueueId) -> ServedPools:
        """getSubmitPoolsForQueue: pools whose jobs a pilot there may take."""
        served = self._served.get(place)
        if served is not None and served[0] == self._age:
            return served[1]
        with self._lock:
            return self._serve(place)

    def put(self, masks: Mapping[str, int | None]) -> dict[str, int | None]:
        """Let exactly these queues serve these pools; None: the pool is gone. Returns what undoes it."""
        before = {pool: self._masks.get(pool) for pool in masks}
        with self._lock:
            gone = [pool for pool, mask in masks.items() if mask is None and pool in self._masks]
            for pool in gone:
                del self._masks[pool]
            if gone or len(self._new) > _MANY_NEW:
                # Forget what every queue serves.
                self._age += 1
                self._served, self._new = {}, []
            self._change({pool: mask for pool, mask in masks.items() if mask is not None})
            self._matrix = None
            self.version += 1
        return before

    def _change(self, masks: Mapping[str, int]) -> None:
        lost = 0
        for pool, mask in masks.items():
            old = self._masks.get(pool)
            if old is None:
                self._new.append(pool)
                self._age += 1
            else:
                lost |= old ^ mask
            self._masks[pool] = mask
        if lost:
            self._served = {
                place: served
                for place, served in self._served.items()
                if not lost >> self.bits.get(place, 0) & 1
            }

    def _serve(self, place: QueueId) -> ServedPools:
        served = self._served.get(place)
        pools = self._pools_of(place)
        if served is None or served[1].pools != pools:
            served = self._age, ServedPools(pools, next(self._versions))
        self._served[place] = self._age, served[1]
        return served[1]

    def _pools_of(self, place: QueueId) -> tuple[str, ...]:
        bit, served = self.bits.get(place), self._served.get(place)
        if bit is None:
            return ()
        missing = _FEW_NEW + 1 if served is None else self._age - served[0]
        if served is not None and missing <= min(_FEW_NEW, len(self._new)):
            youngest = self._new[len(self._new) - missing :]
            merged = list(served[1].pools)
            for pool in youngest:
                if self._masks[pool] >> bit & 1:
                    insort(merged, pool)
            return tuple(merged)
        if self._matrix is None:
            pools = sorted(self._masks)
            self._matrix = pools, MaskMatrix([self._masks[pool] for pool in pools])
        names, table = self._matrix
        return table.among(names, bit)


class PoolQueues:
    """The queues that serve one pool."""

    __slots__ = ("_bits", "_mask")

    def __init__(self, mask: int, bits: Mapping[QueueId, int]) -> None:
        self._mask, self._bits = mask, bits

    def __len__(self) -> int:
        return self._mask.bit_count()

    def __contains__(self, place: object) -> bool:
        bit = self._bits.get(cast("QueueId", place))
        return bit is not None and bool(self._mask >> bit & 1)


class KnownPools:
    """The pools of a database, read again only after a change. Holds a connection: for one thread."""

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._known = -1, PoolMap()

    def serving(self, pool: str, version: int) -> PoolQueues | None:
        """The queues of a pool as last read; None if pools have changed since. For any thread."""
        read_version, pools = self._known
        return PoolQueues(pools.mask(pool) or 0, pools.bits) if read_version == version else None

    def look(self) -> PoolMap:
        """Earlier results stay as they were."""
        version = pass_requests(self._db).version
        if version != self._known[0]:
            self._known = version, PoolMap.load(self._db)
        return self._known[1]
