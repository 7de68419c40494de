"""The target of an iteration by each policy: its numbers, its words, and that the record says all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import DirectorOptions, TargetRules
from lodesman.decide.director.target import TargetFacts, target_of
from lodesman.wire.vocabulary import TargetPolicy

ADAPTIVE = TargetRules(
    policy=TargetPolicy.ADAPTIVE, target_waiting_jobs=200, target_running_jobs=1000, max_factor=5.0
)
GAP = TargetRules(policy=TargetPolicy.GAP, maximum=100)
RATIO = TargetRules(policy=TargetPolicy.RATIO, running_fraction=0.2, minimum=4, maximum=50)


def facts(**given) -> TargetFacts:
    names = ("waiting_jobs", "running_jobs", "usable_pilots", "waiting_pilots", "running_pilots")
    return TargetFacts(**(dict.fromkeys(names, 0) | given))


def target(rules, most=0, **given):
    return target_of(facts(**given), DirectorOptions(target=rules, max_pilots_per_iteration=most))


# --- the seed's, and its proposed fix -------------------------------------------------------------------


def test_by_default_it_is_the_plain_number_of_pilots():
    found = target(TargetRules(), waiting_jobs=9_999, running_jobs=5)
    assert (found.policy, found.value, found.most) == ("seed", 40.0, 0)
    assert found.arithmetic == ["target = pilotsPerIteration = 40"]


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        (200, 0, 40.0),
        (100, 0, 20.0),
        (400, 0, 80.0),
        (100_000, 0, 200.0),
        (200, 500, 20.0),
        (200, 1000, 0.0),
        (200, 5000, 0.0),
        (0, 0, 0.0),
    ],
)
def test_adaptive_follows_the_jobs_that_wait_and_run(waiting, running, expected):
    assert target(ADAPTIVE, waiting_jobs=waiting, running_jobs=running).value == pytest.approx(expected)


def test_without_running_target_running_jobs_do_not_matter():
    rules = TargetRules(policy=TargetPolicy.ADAPTIVE)
    found = target(rules, waiting_jobs=200, running_jobs=10**9)
    assert found.value == 40.0
    assert found.arithmetic[-1] == "target = pilotsPerIteration 40 x 1 = 40"


def test_adaptive_in_words():
    assert target(ADAPTIVE, waiting_jobs=400, running_jobs=250, most=30).arithmetic == [
        "growth = min(400 waiting jobs / targetWaitingJobs 200, adaptiveMaxFactor 5) = 2",
        "remainder = max(0, 1 - 250 running jobs / targetRunningJobs 1000) = 0.75",
        "target = pilotsPerIteration 40 x 2 x 0.75 = 60",
    ]


@given(st.integers(0, 10**6), st.integers(0, 2000), st.integers(1, 1000))
def test_more_waiting_never_lowers_it_and_more_running_never_raises_it(waiting, running, more):
    def value(waiting, running):
        return target(ADAPTIVE, waiting_jobs=waiting, running_jobs=running).value

    assert 0.0 <= value(waiting, running) <= 40.0 * ADAPTIVE.max_factor
    assert value(waiting + more, running) >= value(waiting, running)
    assert value(waiting, running + more) <= value(waiting, running)


# --- a part of what is missing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "usable", "expected"),
    [
        (0, 0, 0),
        (50, 50, 0),  # enough pilots wait or are idle
        (60, 0, 20),
        (61, 0, 21),  # rounded up
        (130, 100, 10),
        (9, 0, 4),  # a third is 3: at least 4
        (5, 2, 3),  # and never more than are missing
        (1, 0, 1),
        (300, 0, 100),
        (301, 0, 100),  # at most maxTarget
    ],
)
def test_gap_asks_for_a_third_of_what_is_missing(jobs, usable, expected):
    assert target(GAP, waiting_jobs=jobs, usable_pilots=usable).value == expected


def test_gap_in_words():
    found = target(GAP, waiting_jobs=130, usable_pilots=100, most=8)
    assert found.arithmetic == [
        "missing = 130 waiting jobs - 100 usable pilots waiting or idle = 30",
        "part = 30 / gapIterations 3, rounded up = 10",
        "target = 10 from minTarget 4 to maxPilotsPerIteration 8, and at most the missing 30 = 8",
    ]
    assert (found.value, found.most) == (8, 8)


@given(st.integers(1, 10**5))
def test_a_gap_closes(jobs):
    """If what is asked for comes, nothing is missing after some iterations, and nothing is asked for then."""
    rules, sent = replace(GAP, maximum=10**6), 0
    for _ in range(40):
        sent += int(target(rules, waiting_jobs=jobs, usable_pilots=sent).value)
    assert sent == jobs


# --- a fraction of what runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "waiting", "expected"),
    [
        (0, 0, 4),  # the first ones
        (0, 3, 1),
        (0, 9, 0),
        (100, 0, 20),
        (104, 0, 20),  # rounded down
        (100, 15, 5),
        (1000, 10, 40),  # 50 may wait at most
    ],
)
def test_ratio_lets_a_fraction_of_the_running_pilots_wait(running, waiting, expected):
    assert target(RATIO, running_pilots=running, waiting_pilots=waiting).value == expected


def test_ratio_in_words():
    found = target(RATIO, running_pilots=104, waiting_pilots=7)
    assert found.arithmetic == [
        "part = runningFraction 0.2 x 104 running pilots, rounded down = 20",
        "may wait = 20 from minTarget 4 to maxTarget 50 = 20",
        "target = 20 - 7 usable pilots waiting = 13",
    ]
    assert (found.value, found.most) == (13, 13)


# --- all of them ----------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 10**6)


@given(
    st.sampled_from(TargetPolicy),
    st.builds(
        TargetFacts,
        waiting_jobs=NUMBERS,
        running_jobs=NUMBERS,
        usable_pilots=NUMBERS,
        waiting_pilots=NUMBERS,
        running_pilots=NUMBERS,
    ),
    st.integers(0, 10**6),
)
def test_the_record_has_all_that_the_target_came_from(policy, given_facts, most):
    options = DirectorOptions(target=replace(ADAPTIVE, policy=policy), max_pilots_per_iteration=most)
    found = target_of(given_facts, options)
    kept = TargetFacts(**{name: getattr(found, name) for name in TargetFacts.__struct_fields__})
    assert kept == given_facts
    assert target_of(kept, options) == found
    assert found.value >= 0
    assert found.arithmetic[-1].endswith(f"= {found.value:g}" if policy < "b" else f"{found.value:.0f}")
    if policy in ("gap", "ratio"):
        assert found.most == found.value <= (min(most or 1000, 1000))
    else:
        assert found.most == most
