"""What explanations know of the world beside the job itself, each fact with its age.

Live pilots, waiting jobs by group, and the director's last decision. The background process makes it anew beside the
requests that use it, so that an explanation costs milliseconds whatever the size of the world; the more one look costs,
the rarer it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import apsw
import msgspec

from lodesman.director import QueueId, story
from lodesman.matching import ResourceRequest
from lodesman.services.known_queues import KnownQueues, Waiting
from lodesman.services.pool_map import KnownPools, Place, PoolMap
from lodesman.services.survey import ALL, Survey
from lodesman.services.why.pilot_book import PilotBook
from lodesman.submission import World

LEAST_SECONDS: Final = 0.1
CHEAP_SECONDS: Final = 0.015
REST: Final = 200.0  # a look that took a second is not repeated for so many
AFTER = "SELECT id, at, plan FROM director_iteration WHERE id > ? ORDER BY id DESC LIMIT 1"


@dataclass(slots=True)
class Iteration:
    """One stored decision of the director, ready to be asked about single task queues and CE queues."""

    number: int
    at: float
    record: Mapping[str, Any]
    _rows: dict[int, Any] = field(init=False)
    _asks: dict[int, Any] = field(init=False)
    _no_pool: dict[int, Any] = field(init=False)
    _open: dict[int, tuple[World, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record = self.record
        place = list(record["row_fields"]).index("tq_id")
        self._rows = {row[place]: row for row in record["rows"]}
        self._asks = {one["tq_id"]: one for one in record["asks"]}
        self._no_pool = {one["tq_id"]: one for one in record["no_pool"]}

    def lines(self, tq_id: int) -> tuple[str, ...]:
        """What it did for a task queue and why."""
        few = {
            name: [found[tq_id]] if tq_id in found else []
            for name, found in (("rows", self._rows), ("asks", self._asks), ("no_pool", self._no_pool))
        }
        return story({**self.record, **few}, tq_id)

    @property
    def rows(self) -> Mapping[int, Sequence[Any]]:
        """The arithmetic of each task queue, in the order of the record's `row_fields`."""
        return self._rows

    def no_pool(self, tq_id: int) -> bool:
        """Whether pilots were asked for a task queue and no submission pool took them."""
        return tq_id in self._no_pool

    def room(self, queue: tuple[str, str, str]) -> Mapping[str, Any] | None:
        """What it allowed a CE queue: `wanted`, `room` and the clamps that bit; None if it did not look at it."""
        found: Mapping[str, Any] | None = self.record["rooms"].get(str(QueueId(*queue)))
        return found

    def gate(self, queue: tuple[str, str, str]) -> tuple[str, str]:
        """(name, words) of what left no room for a pilot in a CE queue."""
        room = self.room(queue)
        if room is None:
            return "unknown", "the director did not look at it"
        if not room["clamps"]:
            return "no-demand", "no pilot was wanted there"
        name, *_, detail = room["clamps"][-1]
        return str(name), str(detail)

    def open_queues(self, world: World) -> int:
        """The queues of a VO, by ordinal, that had room for a pilot."""
        known = self._open.get(id(world))
        if known is not None and known[0] is world:
            return known[1]
        mask = 0
        for ordinal, offer in world.by_ordinal.items():
            room = self.room(offer.queue)
            if room is not None and room["room"] > 0:
                mask |= 1 << ordinal
        self._open[id(world)] = world, mask
        return mask


class Picture:
    """Has a read connection of its own. Any thread may refresh it, one at a time, and any may ask."""

    def __init__(self, db: apsw.Connection) -> None:
        self.at: float | None = None
        self.pilots = PilotBook()
        self.groups: Mapping[tuple[str, str], int] = {}
        self.waiting: Sequence[Waiting] = ()
        self.iteration: Iteration | None = None
        self._db = db
        self._queues = KnownQueues(db)
        self._known_pools = KnownPools(db)
        self._pools = PoolMap()
        self._cost = 0.0
        self._looking = Lock()

    def look(self, now: float, *, patience: float = 1.0) -> None:
        """Look at everything anew if the last look is older than its rest, `patience` times over.

        Somebody who is looking already is not waited for, unless there is nothing yet.
        """
        if self.at is not None and 0.0 <= now - self.at < patience * max(LEAST_SECONDS, self._cost * REST):
            return
        if not self._looking.acquire(blocking=self.at is None):
            return
        try:
            begun = time.perf_counter()
            self.pilots.refresh(self._db)
            self._look_at_queues()
            self._look_at_director()
            self._pools = self._known_pools.look()
            self._cost = time.perf_counter() - begun
            self.at = now
        finally:
            self._looking.release()

    def survey(self, request: ResourceRequest, criteria: Collection[str] = ALL) -> Survey:
        """The task queues with waiting jobs, held against a resource."""
        return self._queues.survey(request, criteria)

    def served(self, place: Place) -> tuple[str, ...]:
        """getSubmitPoolsForQueue, as of the last look."""
        return self._pools.of_queue(place)

    @property
    def is_cheap(self) -> bool:
        """Whether a look costs so little that whoever asks may take one."""
        return self._cost < CHEAP_SECONDS

    def _look_at_queues(self) -> None:
        groups: Counter[tuple[str, str]] = Counter()
        self.waiting = self._queues.look()
        for _, key, waiting in self.waiting:
            groups[key.vo, key.group] += waiting
        self.groups = groups

    def _look_at_director(self) -> None:
        last = self.iteration.number if self.iteration else 0
        found = self._db.execute(AFTER, (last,)).fetchone()
        if found is not None:
            self.iteration = Iteration(found[0], found[1], msgspec.json.decode(found[2]))
