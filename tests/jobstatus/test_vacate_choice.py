"""The cheapest jobs, beside all sets of jobs that there are."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from lodesman.site.jobstatus.vacate.choice import (
    Release,
    cheapest,
    cheapest_strict,
    in_order,
    inversions,
    with_lower_priority,
)
from lodesman.site.jobstatus.vacate.several import ResourceNeed, cheapest_for


def jobs_of(rng: random.Random, most: int = 14, sizes=(1, 2, 3, 4, 8, 16)) -> list[Release]:
    """Random jobs; costs collide often, and some are nothing."""
    top = rng.choice([3, 50, 100_000])
    return [
        Release(f"j{n:02}", f"u{rng.randrange(3)}", rng.randrange(3), rng.choice(sizes), rng.randrange(top),
                rng.randrange(0, 8000, 500), rng.choice((0, 0, 1)))
        for n in range(rng.randint(1, most))
    ]  # fmt: skip


def masks(jobs):
    """Every set, as the sums of what it frees and costs, doubling the list with each job."""
    found = [(0, 0, 0, 0, 0)]
    for one in jobs:
        found += [
            (cores + one.cores, memory + one.memory_mb, gpus + one.gpus, cost + one.cost, count + 1)
            for cores, memory, gpus, cost, count in found
        ]
    return found


def least(jobs, need: ResourceNeed):
    """Cost and number of jobs of the best set of all; None if there is none."""
    fit = [
        (cost, count)
        for cores, memory, gpus, cost, count in masks(jobs)
        if cores >= need.cores and memory >= need.memory_mb and gpus >= need.gpus
    ]
    return min(fit, default=None)


def value(chosen):
    return None if chosen is None else (chosen.cost, len(chosen.releases))


@pytest.mark.slow
def test_a_thousand_random_cases_equal_the_exhaustive_search():
    rng = random.Random(14)
    for _ in range(1000):
        jobs = jobs_of(rng)
        need = rng.randint(1, sum(one.cores for one in jobs) + 2)
        found = cheapest(jobs, need)
        assert value(found) == least(jobs, ResourceNeed(need)), (jobs, need)
        assert found is None or sum(one.cores for one in found.releases) >= need


@pytest.mark.slow
def test_many_jobs_of_one_size_are_joined_as_one_by_one():
    rng = random.Random(3)
    for _ in range(40):
        size, need = rng.choice((1, 2, 3, 7)), rng.randint(1, 120)
        jobs = [Release(f"{n}", "u", 0, size, rng.randrange(40)) for n in range(rng.randint(9, 60))]
        jobs += [Release(f"x{n}", "u", 0, rng.randint(1, 9), rng.randrange(60)) for n in range(6)]
        table = [(0, 0)] + [(10**9, 0)] * need
        for one in jobs:
            table = [
                min(
                    table[c],
                    (table[max(0, c - one.cores)][0] + one.cost, table[max(0, c - one.cores)][1] + 1),
                )
                for c in range(need + 1)
            ]
        expected = table[need] if sum(one.cores for one in jobs) >= need else None
        assert value(cheapest(jobs, need)) == expected


@pytest.mark.slow
def test_the_choice_does_not_depend_on_the_order_of_the_list():
    rng = random.Random(4)
    for _ in range(100):
        jobs = jobs_of(rng)
        need = rng.randint(1, sum(one.cores for one in jobs))
        for choose in (cheapest, cheapest_strict):
            names = set()
            for _ in range(4):
                rng.shuffle(jobs)
                names.add(tuple(sorted(one.job for one in choose(jobs, need).releases)))
            assert len(names) == 1


def test_ties_go_to_fewer_jobs_then_to_lower_priority_of_an_owner_then_to_the_id():
    jobs = [
        Release("a", "u", 5, 4, 10), Release("b", "u", 1, 4, 10), Release("c", "u", 1, 2, 5), Release("d", "u", 1, 2, 5),
        Release("e", "v", 9, 4, 10),
    ]  # fmt: skip
    assert [one.job for one in cheapest(jobs, 4).releases] == ["b"]
    # v's priority is nothing beside u's: the id decides between them.
    assert [one.job for one in in_order([jobs[0], jobs[1], jobs[4]])] == ["b", "a", "e"]
    assert [one.job for one in cheapest([jobs[0], jobs[4]], 4).releases] == ["a"]


def inverted(chosen, jobs) -> bool:
    """Whether a job goes while one of the same owner, of lower priority, stays."""
    stays = [one for one in jobs if one not in chosen]
    return any(a.owner == b.owner and a.priority > b.priority for a in chosen for b in stays)


def allowed_sets(jobs):
    """Cores, cost and number of all sets without inversions: of each owner those without, and then each with each."""
    found = [(0, 0, 0)]
    for owner in {one.owner for one in jobs}:
        mine = [one for one in jobs if one.owner == owner]
        sets = [
            some
            for count in range(len(mine) + 1)
            for some in combinations(mine, count)
            if not inverted(some, mine)
        ]
        sums = [(sum(one.cores for one in some), sum(one.cost for one in some), len(some)) for some in sets]
        found = [(a + c, b + d, n + m) for a, b, n in found for c, d, m in sums]
    return found


@pytest.mark.slow
def test_strict_priority_equals_the_exhaustive_search_in_500_cases():
    rng = random.Random(15)
    for _ in range(500):
        jobs = jobs_of(rng)
        need = rng.randint(1, sum(one.cores for one in jobs) + 1)
        fit = [(cost, count) for cores, cost, count in allowed_sets(jobs) if cores >= need]
        found = cheapest_strict(jobs, need)
        assert value(found) == min(fit, default=None), (jobs, need)
        assert found is None or not inverted(found.releases, jobs)
        assert found is None or inversions(found.releases, jobs) == 0


@pytest.mark.slow
def test_memory_and_gpus_beside_cores_equal_the_exhaustive_search():
    rng = random.Random(16)
    for _ in range(300):
        jobs = jobs_of(rng)
        need = ResourceNeed(
            rng.randint(1, sum(one.cores for one in jobs)),
            rng.randint(0, sum(one.memory_mb for one in jobs)),
            rng.randint(0, sum(one.gpus for one in jobs)),
        )
        found = cheapest_for(jobs, need)
        assert found is not None
        assert found.proven
        assert value(found) == least(jobs, need), (jobs, need)


def test_what_all_jobs_together_do_not_have_is_not_found():
    jobs = [Release("a", "u", 0, 4, 10, memory_mb=1000), Release("b", "u", 0, 4, 10, memory_mb=1000, gpus=1)]
    assert cheapest(jobs, 9) is None
    assert cheapest_strict(jobs, 9) is None
    assert cheapest_for(jobs, ResourceNeed(1, memory_mb=2001)) is None
    assert cheapest_for(jobs, ResourceNeed(1, gpus=2)) is None
    assert [one.job for one in cheapest_for(jobs, ResourceNeed(1, gpus=1)).releases] == ["b"]


@pytest.mark.slow
def test_with_many_jobs_the_set_covers_all_and_says_that_it_is_not_proven():
    rng = random.Random(17)
    jobs = [
        Release(
            f"{n}",
            f"u{n % 9}",
            0,
            rng.choice((1, 4, 8)),
            rng.randrange(1, 9000),
            rng.randrange(500, 64_000),
            n % 7 == 0,
        )
        for n in range(400)
    ]
    need = ResourceNeed(60, 900_000, 5)
    found = cheapest_for(jobs, need)
    assert not found.proven
    assert sum(one.cores for one in found.releases) >= need.cores
    assert sum(one.memory_mb for one in found.releases) >= need.memory_mb
    assert sum(one.gpus for one in found.releases) >= need.gpus
    # No job of it can stay.
    for one in found.releases:
        rest = [other for other in found.releases if other is not one]
        assert (
            sum(o.cores for o in rest) < need.cores
            or sum(o.memory_mb for o in rest) < need.memory_mb
            or sum(o.gpus for o in rest) < need.gpus
        )


def test_a_job_of_lower_priority_goes_instead_if_it_costs_little_more():
    jobs = [
        Release("dear", "u", 9, 4, 100), Release("near", "u", 1, 4, 120), Release("far", "u", 0, 4, 121),
        Release("other", "v", 0, 4, 101), Release("small", "u", 0, 3, 101),
    ]  # fmt: skip
    chosen = cheapest(jobs, 4)
    assert [one.job for one in chosen.releases] == ["dear"]
    assert [one.job for one in with_lower_priority(chosen, jobs).releases] == ["near"]
    assert inversions(chosen.releases, jobs) == 1


def test_swaps_never_cost_more_than_a_fifth_and_never_add_inversions():
    rng = random.Random(18)
    for _ in range(200):
        jobs = jobs_of(rng)
        need = rng.randint(1, sum(one.cores for one in jobs))
        chosen = cheapest(jobs, need)
        swapped = with_lower_priority(chosen, jobs)
        assert sum(one.cores for one in swapped.releases) >= need
        assert chosen.cost <= swapped.cost <= 1.2 * chosen.cost
        assert inversions(swapped.releases, jobs) <= inversions(chosen.releases, jobs)
        assert len({one.job for one in swapped.releases}) == len(swapped.releases)
