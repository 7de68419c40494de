"""Actual against target starts, for pilots that see some of the groups; the oracle finds these."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import product

from bench.context import Context
from bench.figures import Figure
from bench.oracle import check_answer, eligible
from bench.stats import StartsTest

from lodesman.decide.matching import GroupShare, ResourceRequest, TaskQueueKey, parts_of
from lodesman.decide.matching.lottery import SharedSlot
from lodesman.decide.matching.matcher import Matcher, Remainder

SITES, QUEUES_OF_A_GROUP, KINDS, OWNERS = 40, 30, 100, 6
CHOICES = 10_000
NUMBERS_OF_GROUPS = (2, 5, 20, 50)
SURE = 0.001  # a probability under this counts as a fault
ENOUGH = 1_000_000  # jobs in each task queue: none runs dry


def measure(context: Context) -> list[Figure]:
    """The probability that chance alone explains the distance, for each number of groups."""
    figures, choices = [], context.less(CHOICES)
    for groups, packed in product(NUMBERS_OF_GROUPS, (False, True)):
        test, parts = starts(groups, seed=groups, choices=choices, packed=packed)
        statistic, freedom, chance = test.result()
        figures.append(
            Figure(
                row=f"fairness-{groups}{'-packed' * packed}",
                what=f"{choices:,} claims, {groups} groups{', packed' * packed}: chance explains the distance",
                unit="probability", value=max(chance, 1e-12), target=SURE,
                size=f"{groups * QUEUES_OF_A_GROUP} task queues, {KINDS} kinds of pilots",
                details={"chi_square": statistic, "freedom": freedom, "kinds_that_see_all": parts,
                         "received": test.received, "deserved": test.deserved},
            )
        )  # fmt: skip
    return figures


def starts(groups: int, *, seed: int, choices: int, packed: bool = False) -> tuple[StartsTest, int]:
    """Choose jobs for pilots of many kinds; `packed`: into those that run others. Returns the test and the number of kinds
    that see every group.
    """
    rng = random.Random(seed)
    shares = {f"g{n:02}": GroupShare(share=rng.choice([100.0, 500.0, 1000.0, 3000.0])) for n in range(groups)}
    matcher = Matcher()
    queues = _queues(rng, list(shares))
    for tq_id, key in queues.items():
        matcher.index.put(tq_id, key, ENOUGH, now=0.0)
    matcher.lottery.set_shares(shares)
    requests = [_request(rng) for _ in range(KINDS)]
    waiting = [(tq_id, key, ENOUGH) for tq_id, key in queues.items()]
    allowed = [eligible(waiting, request) for request in requests]
    seen = [{queues[tq_id].group for tq_id in some} for some in allowed]
    parts = [parts_of(some, shares) for some in seen]
    won: Counter[tuple[int, str]] = Counter()
    for number in range(choices):
        kind = number % KINDS
        undo: list[Callable[[], object]] = []
        cores = requests[kind].cores
        left = Remainder((), SharedSlot(cores, cores, rng.uniform(1.0, 20_000.0))) if packed else None
        chosen = matcher.choose(requests[kind], 1, now=0.0, rng=rng, undo=undo, left=left)
        check_answer(allowed[kind], chosen, requests[kind])
        if chosen:
            won[kind, queues[chosen[0]].group] += 1
    test = StartsTest()
    for (kind, group), times in won.items():
        test.add(parts[kind], group, times)
    return test, sum(len(some) == groups for some in seen)


def _queues(rng: random.Random, groups: list[str]) -> dict[int, TaskQueueKey]:
    """Every group has its sites, and its task queues there or at part of them."""
    found: dict[int, TaskQueueKey] = {}
    for group in groups:
        home = rng.sample(range(SITES), rng.choice([3, 10, SITES]))
        for number in range(QUEUES_OF_A_GROUP):
            some = rng.sample(home, rng.randint(1, len(home)))
            found[len(found)] = TaskQueueKey(
                owner=f"u{rng.randrange(OWNERS)}", group=group, vo="vo", project=str(number),
                user_priority=rng.choice([1, 1, 2, 5]), sites=tuple(sorted(f"s{n:02}" for n in some)),
                memory_mb=rng.choice([1000, 2000, 4000]), cores=rng.choice([1, 1, 4]),
                norm_cpu_seconds=600 * (1 + number),
            )  # fmt: skip
    return found


def _request(rng: random.Random) -> ResourceRequest:
    return ResourceRequest(
        vo="vo", site=f"s{rng.randrange(SITES):02}", ce="ce", queue="q", platforms=("x",),
        cores=rng.choice([1, 4, 8]), memory_mb=rng.choice([1500, 3000, 8000]), norm_cpu_seconds=1_000_000,
    )  # fmt: skip
