"""What tests of commands share."""

from __future__ import annotations

from lodesman.decide.masks.bits import numbered
from lodesman.server.writer.pool_map import PoolMap


class Pools(PoolMap):
    """A map with given contents; `rows` are (pool, site, ce, queue)."""

    def __init__(self, rows=()):
        super().__init__()
        for pool, *place in rows:
            self.add(pool, [tuple(place)])

    def add(self, pool, places):
        self.bits = numbered(places, self.bits)
        mask = self.mask(pool) or 0
        for place in places:
            mask |= 1 << self.bits[place]
        self.put({pool: mask})
