"""When jobs start, as it is told, beside when they did: ten worlds of six slots and a clock of their own.

The rates are those of the table in docs/how-to/troubleshooting.md.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import pytest

from lodesman.decide.explain.starts import JobsInPilots, StartHistory, StartRate
from lodesman.decide.explain.turns import Contest, Turn
from lodesman.decide.matching import GroupShare, TaskQueueKey
from lodesman.server.loops import traffic
from lodesman.server.loops.traffic import JobsOfLate, Portion, StartsOfLate
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import RunningAttempt

MANUAL = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshooting.md"
MANY = 10**6


@dataclass
class WaitingArray:
    """A task queue, its waiting jobs, and when those started that did."""

    number: int
    key: TaskQueueKey
    waiting: int = MANY
    limit: int | None = None
    runs: int = 0
    started: list[float] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        return self.waiting > 0 and (self.limit is None or self.runs < self.limit)


def array(number: int, group: str = "g", owner: str = "ann", priority: int = 1, **more: Any) -> WaitingArray:
    key = TaskQueueKey(owner=owner, group=group, vo="lab", user_priority=priority, norm_cpu_seconds=number)
    return WaitingArray(number, key, **more)


class Ask(NamedTuple):
    """What was asked of which start, when, and what was told."""

    array: WaitingArray
    number: int
    at: float
    told: tuple[float, float] | None


@dataclass
class SlotsOfSix:
    """Slots that take jobs by the lottery as soon as the last one ended."""

    arrays: Sequence[WaitingArray]
    length: Callable[[random.Random, float], float]
    rng: random.Random
    shares: dict[str, GroupShare] = field(default_factory=dict)
    now: float = 0.0
    free: int = 6
    is_open: bool = True
    claims: int = 0
    running: dict[int, tuple[WaitingArray, float]] = field(default_factory=dict)
    ends: list[tuple[float, int]] = field(default_factory=list)
    ended: list[tuple[int, float, float]] = field(default_factory=list)

    def fill(self) -> None:
        while self.is_open and self.free > 0 and (free := [one for one in self.arrays if one.is_free]):
            self._start(self._draw(free))

    def _draw(self, free: list[WaitingArray]) -> WaitingArray:
        groups = sorted({one.key.group for one in free})
        weights = [self.shares.get(one, GroupShare()).share for one in groups]
        (group,) = self.rng.choices(groups, weights)
        owner = self.rng.choice(sorted({one.key.owner for one in free if one.key.group == group}))
        of_owner = [one for one in free if (one.key.group, one.key.owner) == (group, owner)]
        (found,) = self.rng.choices(of_owner, [one.key.user_priority for one in of_owner])
        return found

    def _start(self, one: WaitingArray) -> None:
        self.claims += 1
        self.free, one.waiting, one.runs = self.free - 1, one.waiting - 1, one.runs + 1
        one.started.append(self.now)
        self.running[self.claims] = one, self.now
        until = self.now + self.length(self.rng, self.now) + self.rng.uniform(0.0, 0.1)
        heapq.heappush(self.ends, (until, self.claims))

    def run(self, until: float) -> None:
        while self.ends and self.ends[0][0] <= until:
            self.now, claim = heapq.heappop(self.ends)
            one, begun = self.running.pop(claim)
            one.runs, self.free = one.runs - 1, self.free + 1
            self.ended.append((one.number, begun, self.now))
            self.fill()
        self.now = until
        self.fill()


class Watcher:
    """Reads a world as the background process reads the attempts, and tells when jobs start."""

    def __init__(self, world: SlotsOfSix, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.jobs = world, JobsOfLate(cast("Reader", None))
        monkeypatch.setattr(traffic, "ended_attempts", self._ended)

    def _ended(self, *_: Any, **__: Any) -> list[tuple[int, float, float]]:
        found, self.world.ended = self.world.ended, []
        return found

    def groups(self, _: Any) -> dict[int, tuple[str, str]]:
        return {one.number: (one.key.vo, one.key.group) for one in self.world.arrays}

    def read(self) -> None:
        rows = [
            RunningAttempt(claim, claim, one.number, at) for claim, (one, at) in self.world.running.items()
        ]
        self.jobs.read(rows, Portion(0, 0), cast("StartsOfLate", self))

    def tell(self, one: WaitingArray, ahead: int) -> tuple[float, float] | None:
        world, limited = self.world, one.limit is not None
        waiting = [(other.number, other.key, other.waiting) for other in world.arrays if other.waiting]
        there: dict[tuple[int, int], list[float]] = {}
        for other, at in world.running.values():
            there.setdefault((other.number, 1), []).append(at)
        turn = Turn(ahead=ahead)
        if not limited:
            turn = Contest(waiting).turn(one.key, one.number, ahead=ahead, shares=world.shares)
        slots = self.jobs.slots(JobsInPilots(0, there), one.key, one.number, now=world.now, free=0, soon=0)
        none = StartRate(0, 0.0)
        found = StartHistory(none, none, 0.0, slots, self.jobs.own(one.number, world.now)).estimate(
            turn, limited=limited
        )
        return None if found is None else (found.low_seconds, found.high_seconds)


class Foretold(NamedTuple):
    """A scenario: what happens at a time, and up to which position jobs are asked about, from when until when."""

    name: str
    arrays: Callable[[], list[WaitingArray]]
    length: Callable[[random.Random, float], float] = lambda rng, _: 10.0 * rng.uniform(0.97, 1.03)
    shares: dict[str, GroupShare] = {}  # noqa: RUF012 - never changed
    events: dict[float, Callable[[SlotsOfSix], None]] = {}  # noqa: RUF012
    first: float = 30.0
    last: float = 300.0
    most_ahead: int = 40
    asked: int = 0


def set_to(name: str, value: Any, world: SlotsOfSix) -> None:
    setattr(world, name, value)


def double(world: SlotsOfSix) -> None:
    world.free += 6


SCENARIOS = [
    Foretold("one array, equal lengths", lambda: [array(1)]),
    Foretold(
        "two groups, shares 1:3", lambda: [array(1), array(2, "h", "bob")],
        shares={"g": GroupShare(share=1_000), "h": GroupShare(share=3_000)},
    ),
    Foretold("priorities 1 and 8", lambda: [array(1), array(2, priority=8)]),
    Foretold("`AtMost` = 3", lambda: [array(1, limit=3)]),
    Foretold("lengths vary (sigma 1.15)", lambda: [array(1)], lambda rng, _: 5.0 * rng.lognormvariate(0.0, 1.15)),
    Foretold(
        "16 task queues of 4 owners", lambda: [array(n, owner=f"o{n % 4}", waiting=40) for n in range(16)], most_ahead=12
    ),
    Foretold(
        "after a pause of 60 s", lambda: [array(1)], first=180.0,
        events={120.0: partial(set_to, "is_open", False), 180.0: partial(set_to, "is_open", True)},
    ),
    Foretold("after the pilots doubled", lambda: [array(1)], events={120.0: double}, first=120.0),
    Foretold(
        "after lengths grew tenfold", lambda: [array(1)],
        lambda rng, now: (10.0 if now < 120.0 else 100.0) * rng.uniform(0.97, 1.03),
        first=120.0, last=720.0, most_ahead=20,
    ),
    Foretold("behind a quota of 3 slots", lambda: [array(1, limit=3), array(2, owner="bob")], most_ahead=20, asked=1),
]  # fmt: skip
TICK, SEEDS = 1.5, (1, 2, 3)


def asks(case: Foretold, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    world = SlotsOfSix(case.arrays(), case.length, random.Random(seed), case.shares)
    watcher, rng, events = Watcher(world, monkeypatch), random.Random(seed + 1_000), dict(case.events)
    for tick in range(1, int((case.last + 600.0) / TICK)):
        for at in [one for one in events if one <= tick * TICK]:
            events.pop(at)(world)
        world.run(tick * TICK)
        watcher.read()
        of = [one for one in world.arrays if one.waiting and case.asked in (0, one.number)]
        if of and case.first < world.now < case.last:
            one = rng.choice(of)
            ahead = rng.randrange(min(one.waiting, case.most_ahead))
            yield Ask(one, len(one.started) + ahead, world.now, watcher.tell(one, ahead))


class Result(NamedTuple):
    """Per cent of the asks whose start lay between the two numbers; how wide that was, in parts of the real time."""

    asks: int
    inside: int
    width: float


def result(case: Foretold, monkeypatch: pytest.MonkeyPatch, *, after: float = 0.0) -> Result:
    """`after`: only of what was asked so many seconds after the scenario's change, or later."""
    widths, inside, count = [], 0, 0
    for seed in SEEDS:
        for one in list(asks(case, seed, monkeypatch)):
            if one.number < len(one.array.started) and one.at >= case.first + after:
                count, real = count + 1, one.array.started[one.number] - one.at
                if one.told is not None:
                    widths.append((one.told[1] - one.told[0]) / max(0.1, real))
                    inside += one.told[0] <= real <= one.told[1]
    return Result(count, round(100 * inside / count), round(median(widths), 1))


def rows_of_the_manual() -> dict[str, Result]:
    found = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) % \| ([\d.]+) \|$", MANUAL.read_text(), re.MULTILINE)
    return {name: Result(int(count), int(inside), float(width)) for name, count, inside, width in found}


@pytest.mark.slow
@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: case.name)
def test_nine_of_ten_starts_are_inside_what_was_told(case, monkeypatch):
    found = result(case, monkeypatch)
    assert found.inside >= 90
    assert found.width < 2.0
    assert found == rows_of_the_manual()[case.name]


@pytest.mark.slow
def test_longer_jobs_are_noticed_before_the_first_of_them_ends(monkeypatch):
    """They take 100 s; after 40 s it is known that they take longer than those before."""
    case = next(one for one in SCENARIOS if one.name == "after lengths grew tenfold")._replace(last=220.0)
    assert result(case, monkeypatch).inside < 70, "none of them can be known at first"
    assert result(case, monkeypatch, after=40.0).inside >= 85
