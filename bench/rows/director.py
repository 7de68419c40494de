"""One iteration of the director: 10,000 task queues with jobs, 2,000 CE queues of 20 batch systems, 5,000 live pilots; and
what it costs more if each site advertises itself.
"""

from __future__ import annotations

import gc
import random
import re
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, cast

from bench.context import Context
from bench.figures import Figure
from bench.oracle import WrongAnswer
from bench.stats import median
from bench.stores import database
from bench.world import GRID, resources

from lodesman.decide.broker.ad import read_site_ad
from lodesman.decide.director.iteration import Decision
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.direct import Director
from lodesman.server.loops.site_matching import SiteMatcher
from lodesman.server.store.site_ads import ended_matches, live_matches
from lodesman.wire.vocabulary import RefusalKind

PILOTS, ROUNDS, CHECKED = 5_000, 5, 40
BACKENDS = tuple(f"batch{n:02}" for n in range(20))
TARGET = 1.0
GATES_TARGET = 1.05
# Every task queue for which a pilot was drawn gets its turn: no pool is full.
OPTIONS = {"totalThreadsInPool": 1_000_000}


def measure(context: Context) -> list[Figure]:
    """CPU seconds without writing: the hot process stores the decision and the pilots."""
    size = context.size(rows=0, pilots=context.less(PILOTS))
    data = context.world(size)
    ticks, rounds = _Ticks(data), context.less(ROUNDS, 2)
    try:
        first, *others = [ticks.measure() for _ in range(1 + rounds)]
        last = ticks.last
        # Turn by turn, so that what else the machine does changes both. As in the server, what is there before is not
        # searched for garbage: the benchmark has more of it.
        gc.collect()
        gc.freeze()
        pairs = [(ticks.measure(), ticks.measure(gates=True)) for _ in range(1 + 2 * rounds)][1:]
    finally:
        gc.unfreeze()
        ticks.close()
        context.drop(data)
    if last is None:
        raise WrongAnswer("the director placed no pilot")
    checked = sum(_check(last))
    return [
        Figure(
            row="director", what="one iteration of the director, CPU time", unit="s", value=median(others),
            target=TARGET, less=True, samples=others, size=f"{size}, 2,000 CE queues, 20 backends, {size.pilots:,} pilots",
            details={"first_after_start_s": first, "asks": len(last.orders), "asked": last.plan.asked,
                     "placed": last.placement.placed, "pairs_checked": checked},
        ),
        Figure(
            row="director-gates", what="the same with a gate at each of 1,000 sites, against that without", unit="x",
            value=min(more for _, more in pairs) / min(less for less, _ in pairs), target=GATES_TARGET, less=True,
            samples=[more / less for less, more in pairs], size=str(size),
        ),
    ]  # fmt: skip


class _NoCalls:
    """A batch system that the director must not ask."""

    def __getattr__(self, name: str) -> None:
        raise WrongAnswer(f"the director asked a batch system on its own thread: {name}")


class _Idle:
    """The watch of an empty batch system."""

    backend: object = _NoCalls()

    def load(self, _queue: object) -> BatchLoad:
        return BatchLoad(
            waiting=0, running=0, held=0, others_waiting=0, others_running=0, observed_at=time.time()
        )


class _Ticks:
    """A director over a world; its decisions are not carried out, so all iterations are equal."""

    def __init__(self, data: Path) -> None:
        self.last: Decision | None = None
        self._db = database(data).reader()
        options = read_options(OPTIONS)
        pool = options.pools["Local"]
        states = {"Local": PoolState(name="Local", max=pool.max_threads, total=pool.total_threads)}
        self._director = Director(
            db=self._db,
            policy=Policy(load_resources([("grid.toml", _grid())]), backends=frozenset(BACKENDS)),
            options=options,
            watches=dict.fromkeys(BACKENDS, cast("BackendWatch", _Idle())),
            post=lambda *_: cast("Any", None),
            pools=lambda: states,
            launch=lambda decision, _: setattr(self, "last", decision),
            cancel=lambda _: None,
            rng=random.Random(3),
        )
        sites = self._director.policy.config.tree.sites
        ads = {site: read_site_ad(_ad(site), site=site, now=time.time()) for site in sites}
        self._gated = SiteMatcher(ads=lambda _: ads, live=live_matches, ended=ended_matches)

    def measure(self, *, gates: bool = False) -> float:
        """CPU seconds of one iteration; with gates at all sites."""
        self._director.buckets = {}
        self._director.sites = self._gated if gates else SiteMatcher()
        begun = time.process_time()
        self._director.tick(time.time())
        return time.process_time() - begun

    def close(self) -> None:
        self._db.close()


def _ad(site: str) -> str:
    """With the limits of SAM-Grid, which the pilots of the world come near to."""
    return (
        f'Name = "{site}"\nUpdateSequenceNumber = 1\nClassAdLifetime = 86400\nMaxJobs = 100\nMaxSubmittingJobs = 100\n'
        "CurrentJobs = 40\nCurrentSubmittingJobs = 3\n"
    )


def _grid() -> str:
    """The sites of the large grid, each with one of the batch systems."""
    names = cycle(BACKENDS)
    return re.sub('"local"', lambda _: f'"{next(names)}"', resources(GRID, backend="local"))


def _check(decision: Decision) -> Iterator[int]:
    """The oracle: the predicate, pair by pair. Yields the number of pairs checked; raises WrongAnswer."""
    placement: Any = decision.placement
    for one in placement.placements:
        if explain(one.order.key, one.request):
            raise WrongAnswer(f"a pilot in {one.queue_id} cannot run jobs of task queue {one.order.tq_id}")
        yield 1
    for outcome in placement.outcomes[:CHECKED]:
        unfit = {r.queue_id for r in placement.refusals(outcome) if r.kind is RefusalKind.INELIGIBLE}
        for bit, queue in placement.places.queues.items():
            if bool(placement.places.reasons(bit, outcome.order)) != (queue.queue_id in unfit):
                raise WrongAnswer(f"{queue.queue_id} is misjudged for task queue {outcome.order.tq_id}")
            yield 1
