"""The draining waste of pilots that run several payloads at once, with packing and without it, by the matcher itself.

All jobs of one owner wait at the start and all are run, so that neither way may leave the long ones out. What counts is the
waste while jobs wait: formula 10 of every pilot, looked at every half hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from bench.context import Context
from bench.figures import Figure

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.lottery import SharedSlot, expected_seconds
from lodesman.decide.matching.matcher import Matcher, Remainder

CORES, SECONDS_OF_JOBS, ERROR = (1, 2, 4), (1_800, 3_600, 7_200, 14_400, 28_800), 0.3
SLOT, PILOTS, JOBS, SEEDS = 8, 40, 3_000, 5
LOOK_S = 1_800.0
TARGET = 0.9


def measure(context: Context) -> list[Figure]:
    """The waste with packing as a part of that without."""
    seeds = range(context.less(SEEDS))
    packed, drawn = ([drain(seed, packs=packs) for seed in seeds] for packs in (True, False))
    parts = [one.waste / other.waste for one, other in zip(packed, drawn, strict=True)]
    return [
        Figure(
            row="packing", what="draining waste with packing, as a part of that without", unit="", less=True,
            value=sum(parts) / len(parts), target=TARGET, samples=parts,
            size=f"{PILOTS} pilots of {SLOT} cores, {JOBS:,} jobs in {len(CORES) * len(SECONDS_OF_JOBS)} task queues",
            details={"packed_core_h": [one.waste / 3_600 for one in packed],
                     "drawn_core_h": [one.waste / 3_600 for one in drawn],
                     "packed_end_h": [one.end / 3_600 for one in packed],
                     "drawn_end_h": [one.end / 3_600 for one in drawn]},
        )
    ]  # fmt: skip


@dataclass(slots=True)
class Payload:
    """One payload: its cores, and when it is expected to end and does end."""

    cores: int
    expected: float
    end: float


@dataclass(slots=True)
class Drained:
    """The mean draining waste of a pilot in core-seconds, and when the last job ended."""

    waste: float = 0.0
    end: float = 0.0


@dataclass(slots=True)
class SharedPilot:
    """A pilot and its payloads."""

    payloads: list[Payload] = field(default_factory=list)

    @property
    def free(self) -> int:
        """Cores that hold nothing."""
        return SLOT - sum(one.cores for one in self.payloads)

    def waste(self, now: float) -> float:
        """Formula 10 with the ends as they will be."""
        last = max((one.end for one in self.payloads), default=now)
        return SLOT * (last - now) - sum(one.cores * (one.end - now) for one in self.payloads)


def drain(seed: int, *, packs: bool, jobs: int = JOBS, pilots: int = PILOTS) -> Drained:
    """Run all jobs. Their real times are lognormal around what is expected."""
    rng, world, result = random.Random(seed), _matcher(random.Random(seed), jobs), Drained()
    slots = [SharedPilot() for _ in range(pilots)]
    ends: list[tuple[float, int]] = []
    looks, waste = 0, 0.0
    now, waiting = 0.0, jobs
    for number, slot in enumerate(slots):
        for payload in _claims(world, slot, now, rng, packs=packs):
            heappush(ends, (payload.end, number))
            waiting -= 1
    while ends:
        now, number = heappop(ends)
        while waiting and looks * LOOK_S < now:
            waste += sum(slot.waste(looks * LOOK_S) for slot in slots)
            looks += 1
        slot = slots[number]
        slot.payloads = [one for one in slot.payloads if one.end > now]
        for payload in _claims(world, slot, now, rng, packs=packs):
            heappush(ends, (payload.end, number))
            waiting -= 1
    result.waste, result.end = waste / (looks * pilots), now
    return result


def _matcher(rng: random.Random, jobs: int) -> Matcher:
    matcher = Matcher()
    sizes = [(cores, seconds) for cores in CORES for seconds in SECONDS_OF_JOBS]
    numbers = [rng.randrange(len(sizes)) for _ in range(jobs)]
    for tq_id, (cores, seconds) in enumerate(sizes):
        key = TaskQueueKey(owner="u", group="g", vo="vo", cores=cores, norm_cpu_seconds=cores * seconds)
        matcher.index.put(tq_id, key, numbers.count(tq_id), now=0.0)
    return matcher


def _claims(
    matcher: Matcher, slot: SharedPilot, now: float, rng: random.Random, *, packs: bool
) -> Iterator[Payload]:
    """One job after the other, until nothing fits."""
    while slot.free:
        request = ResourceRequest(vo="vo", cores=slot.free, norm_cpu_seconds=10**9)
        busy_s = max((one.expected - now for one in slot.payloads), default=0.0)
        left = Remainder((), SharedSlot(SLOT, slot.free, max(0.0, busy_s))) if packs else None
        chosen = matcher.choose(request, 1, now=now, rng=rng, undo=[], left=left)
        if not chosen:
            return
        key = matcher.index.key(chosen[0])
        seconds = expected_seconds(key, 1.0)
        payload = Payload(key.cores, now + seconds, now + seconds * rng.lognormvariate(0, ERROR))
        slot.payloads.append(payload)
        yield payload
