"""Prices of jobs and the plan made of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest

from lodesman.site.jobstatus.vacate.candidates import Candidate, Confidence, Terms, price, silent_rate
from lodesman.site.jobstatus.vacate.plan import VacateRequest, make_plan
from lodesman.site.jobstatus.vacate.several import ResourceNeed
from lodesman.site.jobstatus.values import Status
from lodesman.site.jobstatus.waste import Estimate

NOW = 1_800_000_000.0
HOUR = 3600


def job(name, cores=4, kill=100, *, node="n1", age=10.0, hours=10.0, owner="ada", **more) -> Candidate:
    """A job that publishes, unless `kill` is None."""
    estimate = Estimate(kill_waste=kill, **more.pop("known", {}))
    status = Status(priority_factor=more.pop("priority", None))
    facts = {} if kill is None else {"estimate": estimate, "status": status, "age": age}
    nodes = (node,) if isinstance(node, str) else node
    return Candidate(name, owner, nodes, cores, NOW - hours * HOUR, **facts, **more)


def drains(expected=None, most=None, waste=0):
    return {"known": {"remaining_expected": expected, "remaining_max": most, "draining_waste": waste}}


def priced(one, within=0.0, rate=None, **terms):
    return price(one, Terms(within=within, **terms), rate, NOW)


def planned(jobs, cores, **asked):
    return make_plan(jobs, VacateRequest(ResourceNeed(cores), **asked), NOW)


def names(plan):
    return sorted(one.job for one in plan.victims)


# --- prices ---------------------------------------------------------------------------------------------------------------


def test_a_kill_costs_what_is_published_and_never_more_than_the_whole_run():
    assert priced(job("a", kill=500)).cost == 500
    liar = priced(job("a", cores=4, kill=10**15, hours=1))
    assert liar.cost == 4 * HOUR
    paused = replace(job("a", cores=4, kill=10**15, hours=2), suspended_seconds=HOUR)
    assert priced(paused).cost == 4 * HOUR


@pytest.mark.parametrize(
    ("confidence", "expected", "most", "is_drained"),
    [
        (Confidence(), 0.7 * HOUR, None, True), (Confidence(), 0.71 * HOUR, None, False),
        (Confidence(), 0.9 * HOUR, HOUR, True), (Confidence(), None, HOUR, True),
        (Confidence("margin", 0.5), 0.6 * HOUR, None, False),
        (Confidence("expected"), HOUR, None, True), (Confidence("expected"), HOUR + 1, 2 * HOUR, False),
        (Confidence("max"), 60, HOUR, True), (Confidence("max"), 60, HOUR + 1, False),
        (Confidence("max"), 60, None, False), (Confidence("expected"), None, None, False),
    ],
)  # fmt: skip
def test_what_counts_as_in_time(confidence, expected, most, is_drained):
    one = job("a", kill=10_000, **drains(expected, most, waste=7))
    found = priced(one, within=HOUR, confidence=confidence)
    assert (found.action, found.cost) == (("drain", 7) if is_drained else ("kill", 10_000))


def test_without_a_deadline_nothing_drains():
    assert priced(job("a", **drains(1, 1))).action == "kill"


def test_a_drain_of_unknown_waste_is_no_drain_and_an_unknown_kill_waste_is_charged():
    assert priced(job("a", **drains(1, 1, waste=None)), within=HOUR).action == "kill"
    unknown = replace(job("a", cores=2, hours=3), estimate=Estimate())
    assert priced(unknown).cost == 2 * 3 * HOUR
    assert priced(unknown, rate=100.0).cost == 200


def test_a_drain_is_bound_by_the_end_that_the_batch_system_knows():
    one = replace(job("a", cores=4, kill=10**6, **drains(600, None, waste=10**12)), batch_ends=NOW + 900)
    found = priced(one, within=HOUR)
    assert (found.action, found.cost, found.frees_expected, found.frees_max) == ("drain", 4 * 900, 600, 900)


def test_risk_prices_the_chance_to_miss_the_deadline():
    risk = Confidence("risk", 0.5)
    near = priced(job("a", kill=10**6, **drains(HOUR // 10, None, waste=50)), within=HOUR, confidence=risk)
    assert near.action == "drain"
    assert 50 <= near.cost < 60
    half = priced(job("a", cores=4, kill=100_000, **drains(HOUR, None)), within=HOUR, confidence=risk)
    assert half.cost == (100_000 + 4 * HOUR) // 2
    sure = priced(job("a", kill=10**6, **drains(HOUR, HOUR, waste=50)), within=HOUR, confidence=risk)
    assert sure.cost == 50
    # Late for certain: the kill is cheaper, since the drain ends in it.
    late = priced(job("a", kill=10, **drains(100 * HOUR, None)), within=HOUR, confidence=risk)
    assert (late.action, late.cost) == ("kill", 10)


def test_silent_jobs_are_charged_by_the_median_of_the_others():
    loud = [job(f"{n}", cores=2, kill=2 * rate) for n, rate in enumerate((10, 100, 1000))]
    rate = silent_rate([*loud, job("s", kill=None)], Terms(), NOW)
    assert rate == 80
    assert priced(job("s", cores=3, kill=None), rate=rate).cost == 240
    assert silent_rate(loud, Terms(silent_factor=0.5), NOW) == 50
    # Not more than the whole run, and all of it if no job publishes.
    assert priced(job("s", cores=3, kill=None, hours=1 / 60), rate=rate).cost == 3 * 60
    assert silent_rate([job("s", kill=None)], Terms(), NOW) is None
    assert priced(job("s", cores=3, kill=None, hours=2)).cost == 3 * 2 * HOUR


def test_idle_pilots_do_not_make_silent_jobs_free():
    assert (
        silent_rate([*(job(f"{n}", kill=0) for n in range(5)), job("x", cores=1, kill=10)], Terms(), NOW) == 8
    )
    assert silent_rate([job("a", kill=0)], Terms(), NOW) is None


def test_very_old_data_is_none():
    assert priced(job("a", kill=5, age=3600)).cost == 5
    lost = priced(job("a", kill=5, cores=1, age=3601, hours=1))
    assert lost.cost == HOUR
    assert "too old" in lost.reason


# --- plans ----------------------------------------------------------------------------------------------------------------


def test_the_plan_names_the_cheapest_jobs_and_what_youngest_first_would_lose():
    jobs = [job("old", kill=5, hours=50), job("young", kill=900, hours=1), job("mid", kill=300, hours=5)]
    plan = planned(jobs, 4)
    assert names(plan) == ["old"]
    assert (plan.cost, plan.youngest_first, plan.is_feasible, plan.proven) == (5, 900, True, True)
    assert plan.victims[0].reason == "loses what it has not committed"


def test_kills_and_drains_are_mixed():
    jobs = [job("k", kill=10), job("d", kill=10**5, **drains(600, 900, waste=20)), job("x", kill=10**5)]
    plan = planned(jobs, 8, terms=Terms(within=HOUR))
    assert [(one.job, one.action, one.frees_expected, one.frees_max) for one in plan.victims] == [
        ("d", "drain", 600, 900), ("k", "kill", 0, 0),
    ]  # fmt: skip
    assert plan.cost == 30


def test_native_commands_come_with_the_action():
    plan = make_plan(
        [job("7", kill=1)], VacateRequest(ResourceNeed(1)), NOW, lambda one, action: [f"{action} {one.job}"]
    )
    assert plan.victims[0].commands == ("kill 7",)


def test_too_little_says_what_is_missing():
    plan = planned([job("a", cores=4), job("b", cores=8, node="n2")], 20)
    assert (plan.is_feasible, plan.missing, plan.victims) == (False, ResourceNeed(8), ())
    assert planned(
        [job("a", cores=4), job("b", cores=8, node="n2")], 9, scope="node"
    ).missing == ResourceNeed(1)
    assert planned([job("a", cores=4), job("b", cores=8, node="n2")], 6, nodes=3).missing == ResourceNeed(8)
    assert planned([], 3).missing == ResourceNeed(3)
    gpus = make_plan([job("a", gpus=1)], VacateRequest(ResourceNeed(1, gpus=3)), NOW)
    assert gpus.missing == ResourceNeed(0, gpus=2)


def test_scopes_choose_nodes():
    jobs = [
        job("a", 4, 100, node="n1"), job("b", 4, 10, node="n1"), job("c", 4, 50, node="n2"), job("d", 4, 51, node="n2"),
        job("e", 4, 11, node="n3"),
    ]  # fmt: skip
    assert names(planned(jobs, 8)) == ["b", "e"]
    assert names(planned(jobs, 8, scope="node")) == ["c", "d"]
    assert names(planned(jobs, 4, nodes=2)) == ["b", "e"]
    assert names(planned(jobs, 4, nodes=3)) == ["b", "c", "e"]
    assert names(planned(jobs, 8, scope="hosts", hosts=("n1", "n2"))) == ["b", "c"]
    assert names(planned(jobs, 4, nodes=1, hosts=("n2",))) == ["c"]


def test_a_job_on_several_nodes_frees_its_part_of_each():
    wide = job("wide", 8, 10, node=("n1", "n2"))
    jobs = [wide, job("a", 4, 100, node="n1"), job("b", 4, 100, node="n2")]
    one = planned(jobs, 4, scope="node")
    assert (names(one), one.victims[0].cores, one.proven) == (["wide"], 4, True)
    both = planned(jobs, 4, nodes=2)
    assert (names(both), both.cost, both.proven) == (["wide"], 10, False)
    assert names(planned(jobs, 8)) == ["wide"]
    assert names(planned(jobs, 8, scope="hosts", hosts=("n1",))) == ["a", "wide"]


@pytest.mark.slow
def test_nodes_are_the_best_of_all_choices_of_nodes():
    rng = random.Random(9)
    for _ in range(100):
        jobs = [
            job(f"j{n}", rng.choice((1, 2, 4)), rng.randrange(100), node=f"n{rng.randrange(4)}")
            for n in range(12)
        ]
        need, count = rng.randint(1, 4), rng.randint(1, 3)
        best = {}
        for node in {one.nodes[0] for one in jobs}:
            here = [one for one in jobs if one.nodes[0] == node]
            sets = (some for k in range(len(here) + 1) for some in combinations(here, k))
            fit = [sum(o.estimate.kill_waste for o in s) for s in sets if sum(o.cores for o in s) >= need]
            if fit:
                best[node] = min(fit)
        plan = planned(jobs, need, nodes=count, priority="off")
        if len(best) < count:
            assert plan.missing
        else:
            assert plan.cost == sum(sorted(best.values())[:count])


def test_priority_within_one_owner_by_policy_and_its_price():
    jobs = [
        job("keep", kill=100, priority=9), job("near", kill=115, priority=1), job("low", kill=400, priority=0),
        job("other", kill=10**6, owner="bob", priority=-5),
    ]  # fmt: skip
    off, tiebreak, strict = (planned(jobs, 4, priority=policy) for policy in ("off", "tiebreak", "strict"))
    assert (names(off), off.inversions) == (["keep"], 1)
    assert (names(tiebreak), tiebreak.cost, tiebreak.cost_without_priority) == (["near"], 115, 100)
    assert (names(strict), strict.cost, strict.inversions) == (["low"], 400, 0)


def test_what_is_excluded_stays_and_what_is_too_dear_is_not_done():
    jobs = [job("a", kill=10), job("b", kill=50)]
    assert names(planned(jobs, 4, exclude=("a",))) == ["b"]
    dear = planned(jobs, 8, max_waste=59)
    assert (dear.too_dear, dear.is_feasible, dear.cost) == (True, False, 60)
    assert planned(jobs, 8, max_waste=60).is_feasible


def test_data_that_is_all_too_old_makes_no_plan():
    assert planned([job("a", age=4000), job("b", kill=None)], 4).too_old
    assert not planned([job("a", age=4000), job("b", age=3000)], 4).too_old
    assert not planned([job("b", kill=None)], 4).too_old


def test_memory_and_gpus_count_beside_cores():
    jobs = [job("a", kill=1, memory_mb=1000), job("b", kill=50, memory_mb=9000, gpus=1)]
    plan = make_plan(jobs, VacateRequest(ResourceNeed(4, memory_mb=5000)), NOW)
    assert (names(plan), plan.victims[0].memory_mb) == (["b"], 9000)
