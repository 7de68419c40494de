"""What a configured queue offers, parameter by parameter, and what it does not declare (ADR 0023)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.offers import CPU_STEP, JOIN_SECONDS, UNLIMITED, kept_seconds, offers_of
from lodesman.decide.resources import QueueTable, load_resources
from lodesman.pilot.decisions import _LEAST_LIFE_S, Load, Slot, next_claim, reserve_s

KEY = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=100)


def offers(params: str, *, life_seconds: int = 0):
    text = f"[site.S.ce.c.queue.q]\n{params}\n"
    table = QueueTable(load_resources([("s.toml", text)]), "lab")
    return offers_of(table, "lab", life_seconds=life_seconds)


def offered(params: str, **more):
    (offer,) = offers(params, **more)
    return offer.request


def can_run(params: str, **asks) -> bool:
    key = TaskQueueKey(**{"owner": "ann", "group": "g", "vo": "lab", "norm_cpu_seconds": 100, **asks})
    return any(not offer.reasons(key, 0) for offer in offers(params))


@pytest.mark.parametrize(
    ("params", "memory_mb"),
    [
        ("", 0),
        ("Memory = 0", 0),
        ("Memory = 2000", 2_000),
        ('Memory = "2 GB"', 2_048),
        ("Memory = 2000\nMaxRAM = 1000", 1_000),
        ('Memory = "ANY"', UNLIMITED),
        ('MaxRAM = "ANY"', UNLIMITED),
        ('MaxRAM = "ANY"\nMemory = 2000', 2_000),
    ],
)
def test_memory_is_what_is_declared_and_any_is_a_wildcard(params, memory_mb):
    assert offered(params).memory_mb == memory_mb


@pytest.mark.parametrize(("asked", "runs"), [(0, True), (1, False), (900_000, False)])
def test_a_queue_that_declares_no_memory_takes_the_jobs_that_ask_none(asked, runs):
    assert can_run("", memory_mb=asked) == runs


def test_the_reason_says_undeclared_instead_of_zero():
    (offer,) = offers("")
    key = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=100, memory_mb=500)
    assert [str(reason) for reason in offer.reasons(key, 0)] == [
        "the job needs 500 MB of memory, the resource declares none"
    ]


@pytest.mark.parametrize(
    ("params", "platforms", "runs"),
    [
        ("", (), True),
        ("", ("el9",), False),
        ('Platform = "el9"', ("el9",), True),
        ('Platform = "el8"', ("el9",), False),
        ('Platform = "ANY"', ("el9",), True),
    ],
)
def test_a_queue_that_declares_no_platform_takes_the_jobs_that_ask_none(params, platforms, runs):
    assert can_run(params, platforms=platforms) == runs


@pytest.mark.parametrize(
    ("params", "cpu"),
    [("", UNLIMITED), ("CPUTime = 1000", 1_000), ("CPUTime = 1000\nCPUScalingFactor = 2.5", 2_500)],
)
def test_where_no_cpu_time_is_declared_there_is_no_limit(params, cpu):
    assert offered(params).norm_cpu_seconds == cpu


def test_where_no_processors_are_declared_there_is_one():
    assert (offered("").cores, offered("NumberOfProcessors = 8").cores) == (1, 8)


@pytest.mark.parametrize(
    ("params", "life", "cpu"),
    [
        ("", 3_600, 3_480),  # 3600 - 60 - 10, in whole minutes
        ("CPUTime = 1000", 3_600, 1_000),
        ("CPUTime = 100000\nCPUScalingFactor = 2.0", 3_600, 7_020),
        ("", 10, 0),
        ("", 1, 0),
    ],
)
def test_no_job_outlives_the_pilots(params, life, cpu):
    assert offered(params, life_seconds=life).norm_cpu_seconds == cpu


@given(st.floats(0.0, 10**6))
def test_what_a_pilot_keeps_for_itself_is_what_the_pilot_says(life):
    assert kept_seconds(life) == reserve_s(life)


@given(
    life=st.integers(1, 10**6), late=st.floats(0.0, JOIN_SECONDS), scaling=st.sampled_from([0.5, 1.0, 2.5])
)
def test_a_pilot_that_asks_in_time_has_all_that_was_promised(life, late, scaling):
    """So a task queue for which pilots are sent is not refused by each of them."""
    promised = offered(f"CPUScalingFactor = {scaling}", life_seconds=life).norm_cpu_seconds
    slot = Slot(cores=1, memory_mb=0, jobs_at_once=1, scaling=scaling, ends=life, reserve_s=reserve_s(life))
    ask = next_claim(slot, Load(), late, idle_s=120.0)
    has = getattr(ask, "norm_cpu_seconds", 0) if slot.seconds_left(late) >= _LEAST_LIFE_S else 0
    assert promised <= has - has % CPU_STEP or life - kept_seconds(life) - late < _LEAST_LIFE_S
    # and not less than that for no reason
    assert has - promised < CPU_STEP + (JOIN_SECONDS + 1) * scaling
