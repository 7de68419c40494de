"""Random pilots whose losses are counted second by second, without any formula."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from lodesman.site.jobstatus.values import Status
from lodesman.site.jobstatus.waste import RunningPayload, estimate, publish


@dataclass(frozen=True)
class Past:
    """A payload as it really runs. safe: when its output is registered, after its end."""

    cores: int
    start: int
    end: int
    limit: int
    commits: tuple[int, ...]
    safe: int

    def runs(self, second: int) -> bool:
        return self.start <= second < self.end

    def keeps(self, second: int, now: int) -> bool:
        """Whether the work of this second survives a kill at `now`."""
        return self.safe <= now or any(second < commit <= now for commit in self.commits)


@dataclass(frozen=True)
class World:
    """A pilot that began at second 0, all that it will ever run, and the moments when something happens."""

    allocated: int
    payloads: tuple[Past, ...]

    def events(self) -> list[int]:
        moments = {0}
        for one in self.payloads:
            moments |= {one.start, one.end, one.safe, *one.commits}
        return sorted(moments)

    def kill(self, now: int) -> int:
        """Core-seconds that are lost if it is killed now."""
        return sum(
            one.cores
            for second in range(now)
            for one in self.payloads
            if one.runs(second) and not one.keeps(second, now)
        )

    def drain(self, now: int) -> int:
        """Core-seconds that are idle until the last payload of now has ended, when no other starts."""
        running = [one for one in self.payloads if one.runs(now)]
        last = max((one.end for one in running), default=now)
        busy = sum(one.cores for second in range(now, last) for one in running if one.runs(second))
        return self.allocated * (last - now) - busy

    def status(self, now: int, begin: int = 0) -> Status:
        """What its pilot publishes now, if second 0 is `begin`."""
        running = [
            RunningPayload(
                cores=one.cores,
                started=begin + one.start,
                committed=begin + max((at for at in one.commits if at <= now), default=one.start),
                expected_end=begin + one.end,
                enforced_end=begin + one.limit,
            )
            for one in self.payloads
            if one.runs(now)
        ]
        pending = sum(
            one.cores * (one.end - max((one.start, *one.commits)))
            for one in self.payloads
            if one.end <= now < one.safe
        )
        return publish(
            running,
            allocated=self.allocated,
            pending_waste=pending,
            slot_ends=None,
            can_postpone=True,
            priority=0,
            now=begin + now,
        )


def random_world(chance: random.Random, longest: int = 120) -> World:
    """1 to 16 cores, some of them never used; payloads of up to `longest` seconds, with and without commits."""
    allocated = chance.randint(1, 16)
    free = [chance.randint(0, 20) for _ in range(allocated)]  # when each core is free
    payloads = []
    for _ in range(chance.randint(0, 10)):
        cores = chance.randint(1, allocated)
        free.sort()
        start = free[cores - 1] + chance.choice((0, 0, 1, chance.randint(0, 40)))
        end = start + chance.randint(1, longest)
        commits = chance.sample(range(start + 1, end + 1), k=min(end - start, chance.choice((0, 0, 1, 2, 5))))
        safe = end + chance.choice((0, 0, chance.randint(1, 30)))
        limit = end + chance.choice((0, chance.randint(0, 100)))
        payloads.append(Past(cores, start, end, limit, tuple(sorted(commits)), safe))
        free[:cores] = [end] * cores
    return World(allocated, tuple(payloads))


def moments(world: World, chance: random.Random, count: int = 3) -> list[tuple[int, int]]:
    """(published, read): what was published at an event is read before the next, at its very second or at the end."""
    events = world.events()
    found = []
    for _ in range(count):
        at = chance.randrange(len(events))
        following = events[at + 1] - 1 if at + 1 < len(events) else events[at] + 10
        found.append(
            (events[at], chance.choice((events[at], following, chance.randint(events[at], following))))
        )
    return found


def broken(status, world, now):
    """The invariants that do not hold."""
    first, last, enforced = status.first_exp_job_end, status.last_exp_job_end, status.last_max_job_end
    holds = {
        "used": 0 <= status.used_cpu <= world.allocated,
        "start": status.last_job_start <= now,
        "ends": now <= first <= last <= enforced,
        "core-seconds": min(status.add_uncom_time, status.add_final_exp_waste) >= 0,
        "idle": status.used_cpu > 0 or status.add_final_exp_waste == 0,
    }
    return [name for name, held in holds.items() if not held]


def faults_of(seeds: Iterable[int]) -> list[str]:
    """Where what a site computes is not what is lost, second by second, and broken invariants, as `SEED what`."""
    found = []
    for seed in seeds:
        chance = random.Random(seed)
        world = random_world(chance)
        for published, now in moments(world, chance):
            status = world.status(published)
            found += [f"{seed} {fault}" for fault in broken(status, world, published)]
            known = estimate(status, now=now, allocated=world.allocated, jobstart=0)
            checks = {
                "kill": known.kill_waste == world.kill(now),
                "drain": known.draining_waste == world.drain(now),
                "flags": known.flags == (),
            }
            found += [f"{seed} {name}" for name, right in checks.items() if not right]
    return found
