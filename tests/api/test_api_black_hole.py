"""Black holes of the provisioning study in small, by a clock of its own: three good hosts, and some that fail all jobs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from lodesman.server.loops.hosts import HostWatch

# Pilots of one core on each host; jobs of about 10 minutes in three task queues.
GOOD = {"wn1": 12, "wn2": 12, "wn3": 5}
HOLES = {"hole1": 8, "hole2": 4}
JOBS, LONG, FAILS_AFTER, STEP, RESTS = 180, 600.0, 2.0, 2.0, 60.0
IDEAL = JOBS * LONG / sum(GOOD.values())


@dataclass
class Slot:
    """A pilot, what it runs and until when; `asks_at`: when it asks again after it got nothing."""

    name: str
    host: str
    job: dict[str, Any] | None = None
    until: float = 0.0
    started: float = 0.0
    asks_at: float = 0.0


@dataclass
class Study:
    """The farm, step by step, until all jobs have ended."""

    house: Any
    watch: HostWatch | None
    rng: random.Random
    holes: int
    ends: Counter[str] = field(default_factory=Counter)

    def run(self):
        house, begin = self.house, self.house.now
        slots = [
            Slot(house.pilot(node={"cores": 1, "host": host}, cores=1), host)
            for host, n in [*GOOD.items(), *list(HOLES.items())[: self.holes]]
            for _ in range(n)
        ]
        while self.ends.total() < JOBS:
            assert house.now < begin + 5 * IDEAL
            self.rng.shuffle(slots)
            for slot in slots:
                self.step(slot)
            if self.watch is not None:
                self.watch.tick(house.now)
            house.now += STEP
        return house.now - begin

    def step(self, slot):
        house = self.house
        if slot.job is not None and house.now >= slot.until:
            state = "Failed" if slot.host in HOLES else "Done"
            cause = {"cause": "exit", "exit_code": 1} if state == "Failed" else {}
            house.report(slot.name, slot.job, state, started=slot.started, ended=house.now, **cause)
            self.ends[state] += 1
            slot.job = None
        if slot.job is None and house.now >= slot.asks_at:
            found = house.claim(slot.name, resource={"cores": 1, "memory_mb": 2000, "norm_cpu_seconds": 0})
            if not found:
                slot.asks_at = house.now + RESTS
                return
            (slot.job,), slot.started = found, house.now
            house.report(slot.name, slot.job, "Running", started=house.now)
            slot.until = house.now + (
                FAILS_AFTER if slot.host in HOLES else LONG * self.rng.uniform(0.9, 1.1)
            )


@pytest.mark.slow
@pytest.mark.parametrize(("watched", "holes"), [(True, 1), (True, 2), (False, 1)])
def test_holes_get_few_jobs_and_those_elsewhere_all_end(house, watched, holes):
    for seconds in (500, 600, 700):
        house.submitted(*[{"CPUTime": seconds}] * (JOBS // 3))
    watch = HostWatch(house.side.db, house.post) if watched else None
    study = Study(house, watch, random.Random(3), holes)
    took = study.run()
    if not watched:
        assert study.ends["Failed"] > JOBS / 2
        return
    shut = [row["host"] for row in house.get("/v1/hosts", "admin")["hosts"] if row["shut"]]
    assert shut == list(HOLES)[:holes]
    # What fails before a job elsewhere has outlived the failures, and a probe now and then.
    assert study.ends["Failed"] <= 6 * sum(list(HOLES.values())[:holes]) + 10
    assert took <= 1.5 * IDEAL
