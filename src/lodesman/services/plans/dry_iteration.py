"""One iteration of the director as it would be now: it looks and decides, and nothing is kept, stored or submitted.

No batch system is asked: the loads are those that the director's last iteration went by, and believed as they were
then. Breakers, rates and submission pools are those of the director that runs.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import msgspec

from lodesman.background.direct import PILOTS, Director, pilot_view
from lodesman.background.known_queues import Waiting
from lodesman.batch import Backend, QueueLoad
from lodesman.commands.policy import Policy
from lodesman.commands.pool_map import Place
from lodesman.commands.reoffer import Offers, rewritten
from lodesman.director import Decision, PilotView, QueueId, RecordedLoad, Serving, decide
from lodesman.matching.tables import KeyTable
from lodesman.services.plans.scene import Scene
from lodesman.services.why.step import counted, since, span

SEED: Final = 1
Configured = tuple[Policy, Serving]
APART: Final = ", "  # between the names of several batch systems that told one load


@dataclass(slots=True)
class RecordedLoads:
    """Stands for one batch system: tells what it told the last iteration. A queue that it told nothing of has no load
    yet and is taken for empty: it is then one of `empty`. `oldest`: when the oldest load that was told was observed.
    """

    name: str
    loads: Mapping[str, RecordedLoad]
    looked_at: Collection[str]
    now: float
    empty: set[QueueId] = field(default_factory=set)
    oldest: float | None = None

    def load(self, queue: tuple[str, str, str]) -> QueueLoad:
        """The load of one queue; never raises."""
        queue_id = QueueId(*queue)
        load = self.loads.get(str(queue_id))
        if load is None and str(queue_id) in self.looked_at:  # an older release did not keep what it went by
            return QueueLoad(waiting=None, running=None, observed_at=self.now)
        told_by = [] if load is None else load.told_by.split(APART)
        if load is None or self.name not in told_by:
            self.empty.add(queue_id)
            return QueueLoad(waiting=0, running=0, observed_at=self.now)
        if load.is_known:
            self.oldest = min(load.observed_at, self.oldest or load.observed_at)
        if self.name != told_by[0]:  # all of them together are told once
            return QueueLoad(waiting=0, running=0, observed_at=load.observed_at)
        return QueueLoad(waiting=load.waiting, running=load.running, observed_at=load.observed_at)


class Evaluated:
    """SubmitPools as a configuration has them. `masks` are those of `pool_pass.evaluate`."""

    def __init__(self, policy: Policy, masks: Mapping[str, int]) -> None:
        self._masks = masks
        queues = policy.config.tree.queue_ids()
        self._bits: dict[Place, int] = {
            (queue.site, queue.ce, queue.queue): bit for bit, queue in enumerate(queues)
        }

    def mask(self, pool: str, /) -> int | None:
        """The queues that serve a pool, as bits; None if it is not known."""
        return self._masks.get(pool)

    def bit(self, place: Place, /) -> int | None:
        """The bit of a queue in these masks; None if it is not configured."""
        return self._bits.get(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What becomes of task queues: `held` do not wait any more, `released` do."""

    held: Collection[int] = ()
    released: Sequence[Waiting] = ()

    def after(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """Those that wait then, by id."""
        left = [one for one in waiting if one[0] not in self.held]
        known = {one[0] for one in left}
        return sorted([*left, *(one for one in self.released if one[0] not in known)], key=lambda one: one[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """A decision, and the task queues that it was about."""

    decision: Decision
    waiting: Sequence[Waiting]


class Rehearsal:
    """Iterations that differ in the configuration only: jobs, pilots and loads are those of one moment, and chance is
    the same.
    """

    def __init__(self, scene: Scene, director: Director) -> None:
        self._scene = scene
        last = scene.picture.iteration
        self.decided = since(None if last is None else last.at, scene.now)
        self._loads = {
            name: RecordedLoads(
                name=name,
                loads={} if last is None else last.loads,
                looked_at=() if last is None else last.record["rooms"],
                now=scene.now,
            )
            for name in director.backends
        }
        backends = cast("Mapping[str, Backend]", self._loads)
        self._director = director.rehearse(db=scene.db, backends=backends, pools=director.pools())
        # Loads are as old as they were when the director went by them: the next iteration has newer ones.
        age = director.options.max_load_age_s + (self.decided or 0.0)
        self.options = replace(director.options, max_load_age_s=age)

    def before_and_after(
        self, waiting: Sequence[Waiting], *, old: Configured, new: Configured, moved: Moved
    ) -> tuple[Iteration, Iteration]:
        """With one configuration and with another, of which `moved` comes; `waiting`: by id."""
        table = KeyTable({tq_id: key for tq_id, key, _ in waiting})
        self._scene.tick()
        with self._scene.db:  # one moment for both
            before = self._decide(waiting, *old, table=table)
            self._scene.tick()
            then = moved.after(waiting)
            _change(table, waiting, then)
            after = self._decide(then, *new, table=table, pilots=list(self._pilots(Offers(new[0]))))
        return Iteration(decision=before, waiting=waiting), Iteration(decision=after, waiting=then)

    def _decide(
        self, waiting: Sequence[Waiting], policy: Policy, serving: Serving, *, table: KeyTable,
        pilots: Sequence[PilotView] | None = None,
    ) -> Decision:  # fmt: skip
        director, now = self._director, self._scene.now
        director.policy = policy
        seen = director.snapshot(waiting, director.vos_of(waiting), now)
        # The order in which queues are written shall change nothing.
        queues = sorted(seen.queues, key=lambda queue: queue.queue_id)
        there = seen.pilots if pilots is None else pilots
        snapshot = replace(seen, queues=queues, pilots=there, table=table, serving=serving)
        self._scene.tick()
        return decide(snapshot, options=self.options, now=now, rng=random.Random(SEED))

    def _pilots(self, offers: Offers) -> Iterator[PilotView]:
        """Our live pilots, each with what its queue offers then (ADR 0024)."""
        known: dict[tuple[Any, ...], str] = {}
        for row in self._scene.db.execute(PILOTS):
            place, text = (row[2], row[3], row[4]), row[5]
            if (place, text) not in known:
                offer = offers(msgspec.json.decode(text).get("vo", ""), place)
                known[place, text] = (offer and rewritten(text, offer)) or text
            yield pilot_view((*row[:5], known[place, text], *row[6:]), self._scene.now)

    @property
    def load_age(self) -> float | None:
        """Seconds since the oldest of the loads was observed; None if there is none."""
        times = [one.oldest for one in self._loads.values() if one.oldest is not None]
        return since(min(times, default=None), self._scene.now)

    def assumed(self) -> list[str]:
        """What was taken to be so, sentence by sentence."""
        empty = sorted({queue for one in self._loads.values() for queue in one.empty})
        at = self.decided
        loads = (
            "the director has not decided yet"
            if at is None
            else "loads are those that the director last went by"
        )
        found = [loads if at is None else f"{loads}, {span(at)} ago"]
        if empty:
            found.append(
                f"{counted(len(empty), 'queue')} without a load yet taken for empty, for instance {empty[0]}"
            )
        return [*found, "breakers, rates of CEs and submission pools are those of the running director"]


def _change(table: KeyTable, before: Sequence[Waiting], after: Sequence[Waiting]) -> None:
    """Make a table of the ones one of the others."""
    old, new = ({tq_id: key for tq_id, key, _ in some} for some in (before, after))
    for tq_id in old.keys() - new.keys():
        table.drop(tq_id)
    for tq_id in sorted(new.keys() - old.keys()):
        table.put(tq_id, new[tq_id])
