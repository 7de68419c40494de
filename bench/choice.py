"""The in-memory choice alone: eligibility, draw by share, one job less; one thread, no disk, no network.

    PYTHONPATH=src python bench/choice.py --queues 10000 --seconds 10 [--churn 1000] [--pools] [--json FILE]

1,000 sites, 300 tags, 50 groups, 60 platforms; 2,000 kinds of resources ask in turn. --churn is the
number of task queues a second that come (with a new key) and go (emptied, later removed). An oracle that reads
every task queue and uses only `explain` checks samples: the choice was eligible, and the answer was "no job"
only when none was. With --pools three task queues in ten have one of 3,000 SubmitPools; a queue serves a
ninth of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from lodesman.decide.matching import GroupShare, ResourceRequest, TaskQueueKey
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.matcher import Matcher

SITES, TAGS, GROUPS, PLATFORMS, OWNERS = 1_000, 300, 50, 60, 20
KINDS, JOBS_PER_QUEUE, SAMPLES = 2_000, 100, 24
SLICE = 64  # choices between two readings of the clock
CHURN_EVERY = 0.01  # seconds between two helpings of new task queues
LATENCY_EVERY = 8  # one choice in this number is timed on its own

SITE = [f"LCG.Site{n:04}.org" for n in range(SITES)]
TAG = [f"tag{n:03}" for n in range(TAGS)]
TAG_WEIGHT = [1 / (n + 1) for n in range(TAGS)]
PLATFORM = [f"x86_64-el{n}" for n in range(PLATFORMS)]
POOL = [f"pool{n:04}" for n in range(3_000)]
SERVED = len(POOL) // 9  # as in the large grid
SHARES = [100.0, 300.0, 1000.0, 1000.0, 3000.0, 5000.0]


@dataclass
class Result:
    """The measurement, and what the oracle found."""

    queues: int
    groups: int
    churn: int
    build_s: float
    choices: int
    choices_per_s: float
    choices_per_cpu_s: float
    p50_us: float
    p99_us: float
    no_job: int
    came: int
    went: int
    checked: int
    memory_mb: float


class World:
    """Makes keys and resources with the distributions of a large grid."""

    def __init__(self, seed: int, groups: int, *, pools: bool) -> None:
        self.rng = random.Random(seed)
        self.pools = random.Random(seed) if pools else None  # apart, so that all else is as without
        self.groups = groups
        self.serial = 0

    def key(self) -> TaskQueueKey:
        """A key that no other task queue has: the project is a counter."""
        rng = self.rng
        self.serial += 1
        group = min(int(rng.paretovariate(0.6)) - 1, self.groups - 1)
        anywhere, any_platform, tagged = rng.random() < 0.4, rng.random() < 0.3, rng.random() < 0.4
        sites = [] if anywhere else rng.sample(SITE, rng.choice([1, 1, 3, 20, 300, 500]))
        tags = rng.choices(TAG, TAG_WEIGHT, k=rng.choice([1, 1, 2, 3])) if tagged else []
        return TaskQueueKey(
            owner=f"user{int(rng.paretovariate(0.8)) % OWNERS}",
            group=f"group{group:02}",
            vo="vo",
            project=f"p{self.serial}",
            user_priority=rng.choice([1, 1, 1, 1, 1, 1, 2, 5, 10]),
            sites=tuple(sorted(sites)),
            platforms=() if any_platform else tuple(sorted(rng.sample(PLATFORM, 17))),
            tags=tuple(sorted(set(tags))),
            submit_pool=self.pools.choice(POOL) if self.pools and self.pools.random() < 0.3 else "",
            cores=rng.choice([1, 1, 1, 1, 4, 8]),
            memory_mb=rng.choice([1000, 2000, 2500, 4000, 8000, 16000]),
            norm_cpu_seconds=rng.choice([3600, 21600, 86400, 259200, 1080000]),
        )

    def request(self) -> ResourceRequest:
        """A resource; one in 50 is too small for anything."""
        rng = self.rng
        self.serial += 1
        small = rng.random() < 0.02
        return ResourceRequest(
            vo="vo",
            site=rng.choice(SITE),
            ce="ce1",
            queue="long",
            platforms=(rng.choice(PLATFORM),),
            tags=tuple(sorted(set(rng.choices(TAG, TAG_WEIGHT, k=rng.choice([0, 2, 5, 20]))))),
            submit_pools=tuple(sorted(self.pools.sample(POOL, SERVED))) if self.pools else (),
            pools_version=self.serial,  # each kind is of another queue
            cores=rng.choice([1, 1, 8, 64]),
            memory_mb=500 if small else rng.choice([2500, 4000, 16000, 64000]),
            norm_cpu_seconds=rng.choice([20_000, 86_400, 300_000, 2_000_000]),
        )


class Run:
    """One matcher under load."""

    def __init__(self, *, queues: int, churn: int, groups: int, seed: int, pools: bool) -> None:
        self.world = World(seed, groups, pools=pools)
        self.churn = churn
        self.rng = random.Random(seed + 1)
        self.matcher = Matcher()
        self.now = 0.0
        self.ids: list[int] = []
        keys = [self.world.key() for _ in range(queues)]
        begun = time.perf_counter()
        for tq_id, key in enumerate(keys):
            self.matcher.index.put(tq_id, key, JOBS_PER_QUEUE, now=0.0)
        self.build_s = time.perf_counter() - begun
        self.ids = list(range(queues))
        self.next_id = queues
        self.requests = [self.world.request() for _ in range(KINDS)]
        self.matcher.lottery.set_shares(
            {f"group{n:02}": GroupShare(share=self.rng.choice(SHARES)) for n in range(GROUPS)}
        )
        self.latencies: list[float] = []
        self.no_job = self.came = self.checked = 0
        # Keys are made beforehand: making them is not what is measured.
        self.fresh: list[TaskQueueKey] = []

    def prepare(self, seconds: float) -> None:
        """Make what arrives, fill the caches."""
        self.fresh = (
            [self.world.key() for _ in range(int(self.churn * seconds * 1.1) + 100)] if self.churn else []
        )
        for request in self.requests:
            self.choose(request)

    def choose(self, request: ResourceRequest) -> int | None:
        """One claim of one job; a task queue that runs dry is filled again."""
        undo: list[Callable[[], object]] = []
        chosen = self.matcher.choose(request, 1, now=self.now, rng=self.rng, undo=undo)
        if not chosen:
            self.no_job += 1
            return None
        if not self.matcher.index.waiting(chosen[0]):
            self.matcher.index.add_waiting(chosen[0], JOBS_PER_QUEUE, now=self.now)
        return chosen[0]

    def come_and_go(self, due: int) -> None:
        """New task queues arrive, and as many old ones lose their last job."""
        index = self.matcher.index
        for _ in range(min(due, len(self.fresh))):
            place = self.rng.randrange(len(self.ids))
            old = self.ids[place]
            index.take(old, index.waiting(old), now=self.now)
            index.put(self.next_id, self.fresh.pop(), JOBS_PER_QUEUE, now=self.now)
            self.ids[place] = self.next_id
            self.next_id += 1
            self.came += 1
        index.forget_idle(self.now)

    def measure(self, seconds: float) -> tuple[int, float, float]:
        """Choose until the time is over. Returns the choices, seconds and CPU seconds, all work included."""
        clock, choose, requests = time.perf_counter, self.choose, self.requests
        choices, place, next_churn = 0, 0, CHURN_EVERY
        cpu_begun, begun = time.thread_time(), clock()
        while (elapsed := clock() - begun) < seconds:
            self.now = elapsed
            if self.churn and elapsed >= next_churn:
                self.come_and_go(int(self.churn * elapsed) - self.came)
                next_churn = elapsed + CHURN_EVERY
            for turn in range(SLICE):
                request = requests[place]
                place = (place + 1) % KINDS
                if turn % LATENCY_EVERY:
                    choose(request)
                else:
                    asked = clock()
                    choose(request)
                    self.latencies.append(clock() - asked)
            choices += SLICE
        return choices, clock() - begun, time.thread_time() - cpu_begun

    def check(self, samples: int) -> None:
        """The oracle: reads every task queue with `explain` alone. Raises AssertionError."""
        queues = list(self.matcher.index.queues())
        hungry = [request for request in self.requests if not self.matcher.eligible(request)]
        for request in self.rng.sample(self.requests, samples // 2) + hungry[: samples // 2]:
            eligible = {tq_id for tq_id, key, waiting in queues if waiting and not explain(key, request)}
            assert eligible == set(self.matcher.eligible(request)), request
            undo: list[Callable[[], object]] = []
            chosen = self.matcher.choose(request, 1, now=self.now, rng=self.rng, undo=undo)
            assert bool(chosen) == bool(eligible), request
            assert set(chosen) <= eligible, request
            for step in reversed(undo):
                step()
            self.checked += 1


def run(*, queues: int, seconds: float, churn: int, groups: int, seed: int, pools: bool) -> Result:
    """Build, warm, check, measure, check."""
    load = Run(queues=queues, churn=churn, groups=groups, seed=seed, pools=pools)
    load.prepare(seconds)
    load.check(SAMPLES)
    load.no_job = 0
    gc.collect()
    gc.freeze()
    choices, elapsed, cpu = load.measure(seconds)
    load.check(SAMPLES)
    ordered = sorted(load.latencies)
    return Result(
        queues=queues,
        groups=groups,
        churn=churn,
        build_s=round(load.build_s, 3),
        choices=choices,
        choices_per_s=round(choices / elapsed),
        choices_per_cpu_s=round(choices / cpu),
        p50_us=round(1e6 * ordered[len(ordered) // 2], 2),
        p99_us=round(1e6 * ordered[len(ordered) * 99 // 100], 2),
        no_job=load.no_job,
        came=load.came,
        went=load.came,
        checked=load.checked,
        memory_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    )


def main() -> int:
    """Measure one size and print one line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--churn", type=int, default=0, help="task queues that come and go in a second")
    parser.add_argument("--pools", action="store_true", help="with Requirements")
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the result here too")
    wanted = parser.parse_args()
    result = run(
        queues=wanted.queues,
        seconds=wanted.seconds,
        churn=wanted.churn,
        groups=wanted.groups,
        seed=wanted.seed,
        pools=wanted.pools,
    )
    print(
        f"{result.queues} task queues, churn {result.churn}/s: {result.choices_per_s} choices/s "
        f"({result.choices_per_cpu_s} per CPU second), p50 {result.p50_us} us, p99 {result.p99_us} us "
        f"(built in {result.build_s} s, {result.came} came, {result.no_job} times no job, "
        f"{result.checked} samples right, {result.memory_mb} MB)"
    )
    if wanted.json:
        wanted.json.parent.mkdir(parents=True, exist_ok=True)
        wanted.json.write_text(json.dumps(asdict(result), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
