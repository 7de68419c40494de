"""What explanations know of the world beside the job itself, each fact with its age.

Live pilots, waiting jobs by group, and the director's last decision. The background process makes it anew beside the
requests that use it, so that an explanation costs milliseconds whatever the size of the world; the more one look costs,
the rarer it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import reduce
from operator import or_
from threading import Lock
from typing import Any, Final

import msgspec

from lodesman.answers.vocabulary import ClampName
from lodesman.background.known_queues import KnownQueues, Waiting
from lodesman.commands.pool_map import KnownPools, Place, PoolMap, Serving
from lodesman.commands.site_mask import KnownMask
from lodesman.director import QueueId, RecordedLoad, Stories, loads_of
from lodesman.director.site_mask import SiteMask
from lodesman.matching import QueueOffer, ResourceRequest
from lodesman.matching.cells import bits_of
from lodesman.services.why.load_ages import LoadAges, ages_of
from lodesman.services.why.pilot_book import PilotBook
from lodesman.store.engine import Reader
from lodesman.store.submit_pools import pool_state
from lodesman.submission import World, not_sent
from lodesman.why.survey import ALL, Survey

NOT_LOOKED_AT, NOT_WANTED = "unknown", "no-demand"
GATES: Final = {
    "Backend": ClampName.NO_BACKEND.value,
    "MaxTotalJobs": ClampName.MAX_TOTAL.value,
    "MaxWaitingJobs": ClampName.MAX_WAITING.value,
    "Slots": ClampName.MAX_TOTAL.value,
}
"""What can keep all pilots away (`submission.CAUSES`) -> the clamp by which the director knows it."""
FRESH_ITERATIONS: Final = 3
FRESH_LEAST: Final = 60.0
LEAST_SECONDS: Final = 0.1
CHEAP_SECONDS: Final = 0.015
WORLDS_KEPT: Final = 64
REST: Final = 200.0  # a look that took a second is not repeated for so many
AFTER = "SELECT id, at, plan FROM director_iteration WHERE id > ? ORDER BY id DESC LIMIT 1"


def fresh_seconds(polling_seconds: float) -> float:
    """How long an iteration of the director is believed: as long as it takes to miss some, slow ones not counted."""
    return max(FRESH_LEAST, FRESH_ITERATIONS * polling_seconds)


FRESH_SECONDS: Final = fresh_seconds(120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What an iteration allowed the queues of a VO: masks by ordinal, so that a job's queues are counted at once."""

    open: int
    by_room: Mapping[int, int]
    """Pilots that may be sent -> the queues with so much room."""
    closed: Mapping[tuple[str, str], int]
    """(gate, words) -> the queues that it leaves no room."""
    ages: LoadAges = field(default_factory=LoadAges)

    def total(self, mask: int) -> int:
        """The pilots that may be sent to these queues."""
        return sum(room * (found & mask).bit_count() for room, found in self.by_room.items())

    def shut(self, mask: int) -> list[tuple[tuple[str, str], int]]:
        """((gate, words), the closed queues among these), most queues first."""
        found = [(gate, hit) for gate, queues in self.closed.items() if (hit := queues & mask)]
        return sorted(found, key=lambda one: -one[1].bit_count())


@dataclass(slots=True)
class Iteration:
    """One stored decision of the director, ready to be asked about single task queues and CE queues.

    `before` is the one before it, if that is known: a task queue that no submission pool took pilots for, and for which
    none were asked since, still has none that would.
    """

    number: int
    at: float
    record: Mapping[str, Any]
    before: InitVar[Iteration | None] = None
    _stories: Stories = field(init=False)
    _refused: dict[int, Any] = field(init=False)
    loads: Mapping[str, RecordedLoad] = field(init=False)
    """The loads that it went by, by the names of the queues; none of an older release's."""
    _rooms: dict[int, tuple[World, Rooms]] = field(default_factory=dict)

    def __post_init__(self, before: Iteration | None) -> None:
        self._stories = Stories(self.record)
        self.loads = loads_of(self.record)
        self._refused = {**({} if before is None else before.refused_still(self)), **self._stories.no_pool}

    def refused_still(self, later: Iteration) -> dict[int, Any]:
        """What no submission pool took pilots for here, and was not asked for in a later iteration."""
        asked = list(later.record["row_fields"]).index("asked") if self._refused else 0
        return {
            tq_id: told
            for tq_id, told in self._refused.items()
            if tq_id in later.rows and not later.rows[tq_id][asked]
        }

    def lines(self, tq_id: int) -> tuple[str, ...]:
        """What it did for a task queue and why."""
        return self._stories.lines(tq_id)

    @property
    def sends(self) -> bool:
        """Whether the director wants any pilots to be sent at all."""
        return bool(self.record["plan"].get("target", 1.0) > 0.0)

    @property
    def rows(self) -> Mapping[int, Sequence[Any]]:
        """The arithmetic of each task queue, in the order of the record's `row_fields`."""
        return self._stories.rows

    def refusals(self, tq_id: int) -> Sequence[tuple[str, str]]:
        """(submission pool, what it said) where pilots were asked for a task queue and none took them; else nothing."""
        return [(pool, said) for pool, said in self._refused[tq_id]["tries"]] if self.no_pool(tq_id) else ()

    def no_pool(self, tq_id: int | None) -> bool:
        """Whether pilots were asked for a task queue and no submission pool took them, nor any since."""
        return tq_id in self._refused

    def room(self, queue: tuple[str, str, str]) -> Mapping[str, Any] | None:
        """What it allowed a CE queue: `wanted`, `room` and the clamps that bit; None if it did not look at it."""
        found: Mapping[str, Any] | None = self.record["rooms"].get(str(QueueId(*queue)))
        return found

    def gate(self, queue: tuple[str, str, str]) -> tuple[str, str]:
        """(name, words) of what left no room for a pilot in a CE queue."""
        room = self.room(queue)
        if room is None:
            return NOT_LOOKED_AT, "the director did not look at it"
        if not room["clamps"]:
            return NOT_WANTED, "no pilot was wanted there"
        name, *_, detail = room["clamps"][-1]
        return str(name), str(detail)

    def rooms(self, world: World) -> Rooms:
        """What it allowed the queues of a VO."""
        known = self._rooms.get(id(world))
        if known is None or known[0] is not world:
            if len(self._rooms) >= WORLDS_KEPT:
                self._rooms.clear()
            known = self._rooms[id(world)] = world, self._look(world)
        return known[1]

    def _look(self, world: World) -> Rooms:
        room_of: dict[int, list[int]] = {}
        closed: dict[tuple[str, str], list[int]] = {}
        for ordinal, offer in world.by_ordinal.items():
            found, shut = self.room(offer.queue), shut_to(world, offer)
            room = 0 if found is None or shut else found["room"]
            room_of.setdefault(max(0, room), []).append(ordinal)
            if room <= 0:
                closed.setdefault(shut or self.gate(offer.queue), []).append(ordinal)
        by_room = {room: bits_of(ordinals) for room, ordinals in room_of.items() if room}
        return Rooms(
            open=reduce(or_, by_room.values(), 0),
            by_room=by_room,
            closed={gate: bits_of(ordinals) for gate, ordinals in closed.items()},
            ages=ages_of(
                (ordinal, self.loads.get(str(QueueId(*offer.queue))))
                for ordinal, offer in world.by_ordinal.items()
            ),
        )


def shut_to(world: World, offer: QueueOffer) -> tuple[str, str] | None:
    """(gate, words) if no pilot of this VO is sent to a queue, whatever room the director has there for others."""
    closed = not_sent(offer, world.backends)
    return None if closed is None else (GATES[closed.parameter], closed.text)


class Picture:
    """Has a read connection of its own. Any thread may refresh it, one at a time, and any may ask.

    A decision of the director older than `fresh_seconds` says nothing of what is so now.
    """

    def __init__(self, db: Reader, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self.at: float | None = None
        self.fresh_seconds = fresh_seconds
        self.pilots = PilotBook()
        self.groups: Mapping[tuple[str, str], int] = {}
        self.waiting: Sequence[Waiting] = ()
        self.iteration: Iteration | None = None
        self.competing: Mapping[str, tuple[World, Mapping[str, int]]] = {}
        """VO -> the queues that can run waiting jobs of each of its groups, in that world; as of the last judgement."""
        self._db = db
        self._queues = KnownQueues(db)
        self._known_pools = KnownPools(db)
        self._pools = PoolMap()
        self._mask = KnownMask()
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
            self.pilots.refresh(self._db, now)
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

    def serving(self, db: Reader, pool: str) -> Serving | None:
        """The queues that serve a SubmitPool now; None if the pools have changed since the last look."""
        return self._known_pools.serving(pool, pool_state(db).version)

    def mask(self, db: Reader) -> SiteMask:
        """What is closed now, not as of the last look. `db`: the connection of the thread that asks."""
        return self._mask.look(db)

    def decision(self, now: float) -> Iteration | None:
        """The director's last iteration; None if there was none for long."""
        last = self.iteration
        return last if last is not None and now - last.at <= self.fresh_seconds else None

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
            record = msgspec.json.decode(found[2])
            self.iteration = Iteration(found[0], found[1], record, before=self.iteration)
