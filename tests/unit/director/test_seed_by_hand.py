"""Ten task queues through the seed's arithmetic, computed on paper.

pilotsPerIteration 40, lowestCPUBoost 7,200 s, maxCPU 1,080,000 s, extraPilotFraction 0.2, extraPilots 4: its defaults.

    prioritySum       = 1 + 2 + 5 + 0 + 8 + 4 + 10 + 3 + 7 + 0 = 40    pilotsPerPriority = 40 / 40 = 1
    waitingJobs       = 1 + 5 + 10 + 20 + 50 + 100 + 4 + 7 + 200 + 3 = 400    pilotsPerJob = 40 / 400 = 0.1
    boost             = 1,080,000 / max(CPU rounded up to its bucket, 7,200)
    mean              = (1 x priority + 0.1 x jobs) x boost
    cap               = int(1.2 x jobs) + 4 - waiting pilots
"""

from __future__ import annotations

import random

import pytest

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.plan import make_plan
from lodesman.decide.director.target import TargetFacts, target_of

# fmt: off
TABLE = [
    # tq, priority, jobs, CPU s, waiting pilots -> bucket, boost, mean, cap
    (1, 1.0, 1, 360, 0, 360, 150.0, 165.0, 5),  # (1 + 0.1) x 1,080,000/7,200 = 1.1 x 150; int(1.2) + 4 = 1 + 4
    (2, 2.0, 5, 7_200, 3, 21_600, 50.0, 125.0, 7),  # (2 + 0.5) x 1,080,000/21,600 = 2.5 x 50; int(6) + 4 - 3
    (3, 5.0, 10, 3_600, 16, 3_600, 150.0, 900.0, 0),  # (5 + 1) x 150; int(12) + 4 - 16: all that may wait do
    (4, 0.0, 20, 86_400, 0, 86_400, 12.5, 25.0, 28),  # (0 + 2) x 1,080,000/86,400 = 2 x 12.5; int(24) + 4
    (5, 8.0, 50, 1_080_000, 10, 1_080_000, 1.0, 13.0, 54),  # (8 + 5) x 1; int(60) + 4 - 10
    (6, 4.0, 100, 43_200, 200, 43_200, 25.0, 350.0, -76),  # (4 + 10) x 25; int(120) + 4 - 200: 76 too many wait
    (7, 10.0, 4, 2_000_000, 0, 1_080_000, 1.0, 10.4, 8),  # the last bucket: (10 + 0.4) x 1; int(4.8) + 4 = 4 + 4
    (8, 3.0, 7, 172_801, 1, 259_200, 25 / 6, 185 / 12, 11),  # (3 + 0.7) x 1,080,000/259,200 = 3.7 x 25/6; int(8.4) + 4 - 1
    (9, 7.0, 200, 10_000, 40, 21_600, 50.0, 1_350.0, 204),  # (7 + 20) x 50; int(240) + 4 - 40
    (10, 0.0, 3, 540_000, 2, 691_200, 1.5625, 0.46875, 5),  # (0 + 0.3) x 1,080,000/691,200 = 0.3 x 1.5625; int(3.6) + 4 - 2
]
# fmt: on


@pytest.fixture
def plans(demand):
    """Many draws of the same ten task queues."""
    demands = [
        demand(tq, weight=priority, waiting_jobs=jobs, norm_cpu_seconds=cpu)
        for tq, priority, jobs, cpu, *_ in TABLE
    ]
    options, jobs = DirectorOptions(), sum(row[2] for row in TABLE)
    facts = TargetFacts(
        waiting_jobs=jobs, running_jobs=0, usable_pilots=0, waiting_pilots=0, running_pilots=0
    )
    waiting = {row[0]: row[4] for row in TABLE}
    target = target_of(facts, options)
    return [
        make_plan(demands, usable_waiting=waiting, target=target, options=options, rng=random.Random(seed))
        for seed in range(200)
    ]


def test_the_sums_are_those_on_paper(plans):
    plan = plans[0]
    assert (plan.priority_sum, plan.pilots_per_priority) == (40.0, 1.0)
    assert (plan.waiting_jobs, plan.pilots_per_job) == (400, 0.1)


@pytest.mark.parametrize("line", TABLE, ids=lambda line: f"tq{line[0]}")
def test_each_task_queue_has_the_mean_and_the_cap_on_paper(plans, line):
    tq, *_, bucket, boost, mean, cap = line
    row = plans[0].rows[tq - 1]
    assert (row.tq_id, row.cpu_bucket, row.cap) == (tq, bucket, cap)
    assert (row.boost, row.mean) == (pytest.approx(boost, rel=1e-12), pytest.approx(mean, rel=1e-12))


@pytest.mark.parametrize("line", TABLE, ids=lambda line: f"tq{line[0]}")
def test_what_is_asked_is_the_draw_under_the_cap(plans, line):
    tq, *_, mean, cap = line
    rows = [plan.rows[tq - 1] for plan in plans]
    assert all(row.asked == max(0, min(row.drawn, cap)) for row in rows)
    drawn = sum(row.drawn for row in rows) / len(rows)
    assert drawn == pytest.approx(mean, abs=5 * (mean / len(rows)) ** 0.5)
