"""The seed's formula, line by line, and what is recorded of it."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.plan import arithmetic, make_plan
from lodesman.decide.director.target import TargetFacts, target_of
from lodesman.wire.vocabulary import ClampName

NOTHING = TargetFacts(waiting_jobs=0, running_jobs=0, usable_pilots=0, waiting_pilots=0, running_pilots=0)


def plan_for(demands, *, waiting=None, target=40.0, seed=1, **options):
    rules = DirectorOptions(pilots_per_iteration=target, **options)
    return make_plan(
        demands,
        usable_waiting=waiting or {},
        target=target_of(NOTHING, rules),
        options=rules,
        rng=random.Random(seed),
    )


# --- the mean -----------------------------------------------------------------------------------------


def test_the_mean_is_the_sum_of_both_contributions_times_the_boost(demand):
    plan = plan_for(
        [
            demand(1, weight=3.0, waiting_jobs=10, norm_cpu_seconds=86_400),
            demand(2, weight=1.0, waiting_jobs=30, norm_cpu_seconds=1_080_000),
        ]
    )
    first, second = plan.rows
    assert (plan.priority_sum, plan.waiting_jobs) == (4.0, 40)
    assert (plan.pilots_per_priority, plan.pilots_per_job) == (10.0, 1.0)
    assert (first.from_priority, first.from_jobs, first.boost) == (30.0, 10.0, 12.5)
    assert first.mean == 500.0
    assert (second.from_priority, second.from_jobs, second.boost, second.mean) == (10.0, 30.0, 1.0, 40.0)


def test_the_expected_total_at_boost_one_is_twice_the_target(demand):
    demands = [demand(k, weight=k, waiting_jobs=7 * k, norm_cpu_seconds=1_080_000) for k in range(1, 9)]
    assert sum(row.mean for row in plan_for(demands).rows) == pytest.approx(80.0)


@pytest.mark.parametrize(
    ("cpu", "boost"),
    [
        (100, 150.0),  # the boost of short jobs stops at lowestCPUBoost
        (7_200, 50.0),  # in the bucket of 21,600 s
        (3_600, 150.0),
        (86_400, 12.5),
        (86_401, 6.25),
        (10**8, 1.0),
    ],
)
def test_short_jobs_are_boosted_down_to_the_lowest(demand, cpu, boost):
    (row,) = plan_for([demand(norm_cpu_seconds=cpu)]).rows
    assert row.boost == boost


def test_the_boost_follows_its_options(demand):
    (row,) = plan_for(
        [demand(norm_cpu_seconds=100)], lowest_cpu_boost=1000, max_cpu=300_000, cpu_buckets=(500, 300_000)
    ).rows
    assert (row.cpu_bucket, row.boost) == (500, 300.0)


def test_drawn_numbers_have_the_mean_of_the_row(demand):
    demands = [demand(1, waiting_jobs=100_000, norm_cpu_seconds=86_400)]
    drawn = [plan_for(demands, seed=seed).rows[0].drawn for seed in range(400)]
    assert statistics.fmean(drawn) == pytest.approx(1000.0, abs=4 * (1000 / 400) ** 0.5)
    assert statistics.pvariance(drawn) == pytest.approx(1000.0, rel=0.35)


# --- the cap ------------------------------------------------------------------------------------------


def test_the_cap_is_allowance_minus_usable_waiting(demand):
    plan = plan_for([demand(waiting_jobs=100)], waiting={1: 120}, target=10_000.0)
    (row,) = plan.rows
    assert (row.allowance, row.usable_waiting, row.cap, row.asked) == (124, 120, 4, 4)
    (bite,) = row.clamps
    assert (bite.name, bite.before, bite.after, bite.limit) == (ClampName.USABLE_SUPPLY, row.drawn, 4, 4)
    assert bite.detail == "124 allowed for 100 jobs - 120 usable pilots waiting or idle"


def test_more_pilots_than_allowed_is_a_negative_cap_and_no_pilot(demand):
    (row,) = plan_for([demand(waiting_jobs=10)], waiting={1: 50}, target=1000.0).rows
    assert row.cap == 16 - 50
    assert row.asked == 0


def test_a_draw_under_the_cap_is_asked_whole(demand):
    (row,) = plan_for([demand(waiting_jobs=10_000, norm_cpu_seconds=1_080_000)], target=5.0).rows
    assert 0 < row.drawn == row.asked
    assert row.clamps == ()


def test_small_queues_get_the_extra_pilots_at_most(demand):
    (row,) = plan_for([demand(waiting_jobs=1)], target=10_000.0).rows
    assert row.asked == 5


# --- sums that are zero -------------------------------------------------------------------------------


def test_no_task_queue_is_no_plan():
    plan = plan_for([])
    assert (plan.rows, plan.asked, plan.pilots_per_job) == ((), 0, 0.0)


def test_without_jobs_nothing_is_asked(demand):
    (row,) = plan_for([demand(waiting_jobs=0, weight=5.0)]).rows
    assert (row.mean, row.drawn, row.asked) == (0.0, 0, 0)


@pytest.mark.parametrize("weight", [0.0, 1e-320])
def test_without_priority_the_jobs_alone_count(demand, weight):
    (row,) = plan_for([demand(weight=weight, waiting_jobs=10, norm_cpu_seconds=1_080_000)]).rows
    assert (row.from_priority, row.from_jobs, row.mean) == (0.0, 40.0, 40.0)


def test_a_target_of_zero_asks_for_nothing(demand):
    assert plan_for([demand()], target=0.0).asked == 0


def test_empty_task_queues_take_nothing_from_the_others(demand):
    alone = plan_for([demand(1)])
    beside = plan_for([demand(1), demand(2, waiting_jobs=0), demand(3, waiting_jobs=0, weight=9.0)])
    assert beside.rows[0] == alone.rows[0]
    assert [row.asked for row in beside.rows[1:]] == [0, 0]


# --- pilots per iteration -----------------------------------------------------------------------------


def test_the_cap_of_an_iteration_holds_for_all_together(demand):
    demands = [demand(k, waiting_jobs=100) for k in range(1, 6)]
    plan = plan_for(demands, target=1000.0, max_pilots_per_iteration=37)
    assert plan.asked == 37
    total = sum(row.clamps[0].after for row in plan.rows)
    for row in plan.rows:
        bite = row.clamps[-1]
        assert bite.name is ClampName.ITERATION_CAP
        assert (bite.before, bite.after) == (row.clamps[0].after, row.asked)
        assert bite.detail == f"maxPilotsPerIteration 37 for {total} asked by all task queues"


def test_the_cap_of_an_iteration_keeps_the_proportions(demand):
    demands = [demand(1, waiting_jobs=300), demand(2, waiting_jobs=100)]
    asked = [
        plan_for(demands, target=10_000.0, max_pilots_per_iteration=48, seed=seed).rows[0].asked
        for seed in range(200)
    ]
    # 364 and 124 are asked for: a hypergeometric share of 48.
    assert statistics.fmean(asked) == pytest.approx(48 * 364 / 488, abs=0.9)


def test_without_the_option_there_is_no_cap(demand):
    assert plan_for([demand(waiting_jobs=10_000)], target=10_000.0).asked > 5_000


# --- replay -------------------------------------------------------------------------------------------


def test_the_arithmetic_can_be_read_line_by_line(demand):
    plan = plan_for(
        [demand(1, weight=3.0, waiting_jobs=10, norm_cpu_seconds=86_400), demand(2, waiting_jobs=30)],
        waiting={1: 7},
        target=40.0,
    )
    drawn = plan.rows[0].drawn
    assert arithmetic(plan, plan.rows[0]) == (
        "pilotsPerPriority = 40 / 4 = 10",
        "pilotsPerJob = 40 / 40 = 1",
        "CPU boost = 1080000 / max(86400, 7200) = 12.5",
        "mean = (10 x 3 + 1 x 10) x 12.5 = 500",
        f"poisson(500) = {drawn}",
        "cap = int((1 + 0.2) x 10) + 4 - 7 = 9",
        f"usable-supply: {drawn} -> 9 (16 allowed for 10 jobs - 7 usable pilots waiting or idle)",
        "asked = 9",
    )


def test_the_arithmetic_of_nothing_is_one_line(demand):
    plan = plan_for([demand(1), demand(2, waiting_jobs=0)])
    assert len(arithmetic(plan, plan.rows[0])) > 1
    assert arithmetic(plan, plan.rows[1]) == ("none asked: no job waits",)


def test_rows_do_not_depend_on_the_order_given(demand):
    demands = [demand(k, waiting_jobs=5 * k) for k in range(1, 6)]
    assert plan_for(demands) == plan_for(list(reversed(demands)))


DEMANDS = st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 10**6), st.integers(0, 10**7)), max_size=8)


@given(DEMANDS, st.floats(0, 1e6), st.integers(0, 200), st.integers(0, 300), st.integers(0, 2**32))
def test_every_row_can_be_computed_again_from_the_record(demand, wanted, target, cap, waiting, seed):
    demands = [
        demand(k, weight=weight, waiting_jobs=jobs, norm_cpu_seconds=cpu)
        for k, (weight, jobs, cpu) in enumerate(wanted)
    ]
    plan = plan_for(
        demands,
        waiting=dict.fromkeys(range(8), waiting),
        target=target,
        seed=seed,
        max_pilots_per_iteration=cap,
    )
    assert cap == 0 or plan.asked <= cap
    for row in plan.rows:
        active = row.waiting_jobs > 0
        base = (
            plan.pilots_per_priority * row.weight + plan.pilots_per_job * row.waiting_jobs if active else 0.0
        )
        assert row.mean == base * (plan.max_cpu / max(row.cpu_bucket, plan.lowest_cpu_boost))
        assert row.cap == int((1 + plan.extra_fraction) * row.waiting_jobs) + plan.extra_pilots - waiting
        assert 0 <= row.asked <= max(0, min(row.drawn, row.cap))
        after = row.clamps[-1].after if row.clamps else row.drawn
        assert row.asked == after
