"""Quota sets: claims over HTTP with and without rules, the choice alone, and how long the writer is held by other rules."""

from __future__ import annotations

import gc
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from statistics import median

from bench import limit_world
from bench.choice import KINDS, Run
from bench.context import Context
from bench.figures import Figure
from bench.rows.claims import claims_of_one
from bench.server import Server

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.matcher import place_of
from lodesman.decide.matching.quota_book import QuotaBook
from lodesman.server.main.process import keep_what_was_loaded
from lodesman.server.writer.bookings import Attempt, Bookings, Hold

QUEUES, LIVE, HOSTS = 10_000, 10_000, 500
RATIO, CPU_RATIO, CHOICES, HELD_MS = 0.85, 1.08, 50_000, 50.0
SLICE = 64
WHAT = f"{limit_world.SETS * limit_world.RULES:,} rules in {limit_world.SETS} sets, {limit_world.FULL} buckets full"


def measure(context: Context) -> list[Figure]:
    """The figures; each run without rules beside the one with them."""
    return [*_over_http(context), _choice(context), _change(context)]


def _over_http(context: Context) -> list[Figure]:
    free, limited = [], []
    for number in range(context.samples):
        free.append(claims_of_one(context, number))
        limited.append(claims_of_one(context, number, begin=lambda server: _add_rules(context, server)))
    pairs = list(zip(limited, free, strict=True))
    rates = [ruled.rate / bare.rate for ruled, bare in pairs]
    cpu = [ruled.cpu_us["hot"] / bare.cpu_us["hot"] for ruled, bare in pairs]
    return [
        Figure(
            row="limits-http", what=f"durable claims over HTTP with {WHAT}, against none", unit="x", value=median(rates),
            target=RATIO, samples=rates, size=str(context.size()), cpu_us=limited[0].cpu_us,
            details={"without": [one.as_dict() for one in free], "with": [one.as_dict() for one in limited]},
        ),
        Figure(
            row="limits-http-cpu", what="CPU time of the hot process for each of these claims, against none", unit="x",
            value=median(cpu), target=CPU_RATIO, less=True, samples=cpu, details={"without": free[0].cpu_us},
        ),
    ]  # fmt: skip


def _add_rules(context: Context, server: Server) -> None:
    body = json.dumps({"text": limit_world.text()}).encode()
    server.ask("POST", "/v1/quotas", context.tokens(server.data)["admin"], body)


class _Choices:
    """The choice under load; for each job that it takes an older one ends."""

    def __init__(self, queues: int, live: int, *, limited: bool) -> None:
        self.most_live = live
        self.load = Run(queues=queues, churn=0, groups=50, seed=7, pools=False)
        self.index = self.load.matcher.index
        self.live: deque[tuple[TaskQueueKey, RunPlace]] = deque()
        self.asks = self._asks()
        if limited:
            bookings = Bookings(self.index, {})
            bookings.prepare(None, QuotaBook(limit_world.sets(), limit_world.VOCABULARY))
            while not bookings.go_on(None):
                pass

    def _asks(self) -> Iterator[tuple[ResourceRequest, str]]:
        number = 0
        while True:
            yield self.load.requests[number % KINDS], f"n{number % HOSTS}"
            number += 1

    def choose(self) -> None:
        request, host = next(self.asks)
        undo: list[Callable[[], object]] = []
        load = self.load
        for tq_id in load.matcher.choose(
            request, 1, now=0.0, rng=load.rng, undo=undo, place=place_of(request, host)
        ):
            if not self.index.waiting(tq_id):
                self.index.add_waiting(tq_id, 100, now=0.0)
            self.live.append((self.index.key(tq_id), RunPlace(request.site, request.ce, request.queue, host)))
        if len(self.live) > self.most_live:
            self.index.limits.give(*self.live.popleft())

    def rate(self, seconds: float) -> float:
        """Choices a second, after as many as fill the caches."""
        for _ in range(2 * max(self.most_live, KINDS)):
            self.choose()
        gc.collect()
        gc.freeze()
        done, begun = 0, time.perf_counter()
        while (took := time.perf_counter() - begun) < seconds:
            for _ in range(SLICE):
                self.choose()
            done += SLICE
        return done / took


def _choice(context: Context) -> Figure:
    queues, live = context.less(QUEUES), context.less(LIVE)
    free, limited = [], []
    for _ in range(context.samples):
        free.append(_Choices(queues, live, limited=False).rate(context.seconds))
        limited.append(_Choices(queues, live, limited=True).rate(context.seconds))
    return Figure(
        row="limits-choice", what=f"in-memory choice with {WHAT}; a job ends for each", unit="/s", value=max(limited),
        target=CHOICES, samples=limited, size=f"{queues:,} task queues", details={"without": free},
    )  # fmt: skip


def _change(context: Context) -> Figure:
    attempts = context.less(LIVE)
    world = _Choices(context.less(QUEUES), attempts, limited=False)
    rng, keys = random.Random(3), [key for _, key, _ in world.index.queues()]
    live: dict[int, dict[Attempt, Hold]] = {}
    for number in range(attempts):
        place = RunPlace(f"LCG.Site{number % 1_000:04}.org", "ce1", "long", f"n{number % HOSTS}")
        live[number] = {(number, 1): (1, 0, rng.choice(keys), place)}
    bookings = Bookings(world.index, live)
    thresholds = gc.get_threshold()
    keep_what_was_loaded()  # as the server does
    held: list[float] = []
    whole: list[float] = []
    for turn in range(context.samples + 1):
        rules = limit_world.sets(plenty=limit_world.PLENTY + turn)
        portions = [_timed(lambda: bookings.prepare(None, QuotaBook(rules, limit_world.VOCABULARY)))]  # noqa: B023
        while world.index.next_limits is not None:
            portions.append(_timed(lambda: bookings.go_on(None)))
        held.append(max(portions))
        whole.append(sum(portions))
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    return Figure(
        row="limits-change", unit="ms", value=min(held),
        what=f"the writer is held at most, as all rules change with {attempts:,} live attempts",
        target=HELD_MS, less=True, samples=held, size=f"{len(keys):,} task queues",
        details={"whole_ms": min(whole)},
    )  # fmt: skip


def _timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begun)
