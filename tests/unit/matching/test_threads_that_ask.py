"""Several threads ask one configuration. Each line at which one of them may be interrupted by another is tried."""

from __future__ import annotations

import sys

import pytest

from lodesman.decide.matching.offers import offers_of
from lodesman.decide.matching.policy import Residents, VOConfig
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueTable, load_resources

TEXT = "\n".join(
    f'[site.S{n}.ce.c.queue.q]\nCPUTime = {1000 * n}\nMemory = {500 * n}\nTag = ["t{n}", "all"]\nBackend = "local"'
    for n in range(1, 5)
)
KEY = TaskQueueKey(
    owner="ann", group="g", vo="lab", norm_cpu_seconds=1_500, sites=("S1", "S3", "S4"), banned_sites=("S4",), tags=("all",)
)  # fmt: skip


TABLE = QueueTable(load_resources([("s.toml", TEXT)]), "lab")
OFFERS = offers_of(TABLE, "lab")


def config():
    return VOConfig(vo="lab", offers=OFFERS, table=TABLE)


def possible(found):
    return found.possible_queues(KEY, 0)


def residents():
    return Residents(frozenset(one.request for one in OFFERS))


def serving(found):
    return found.serving(KEY)


def seconds(found):
    return list(found.column("norm_cpu_seconds"))


def interrupted(ask, line):
    """Ask twice, the second time while the first one is at its `line`-th line; both answers, and whether it came so far."""
    left, second = [line], []

    def trace(frame, event, _):
        if "lodesman" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                second.append(ask())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first = ask()
    finally:
        sys.settrace(before)
    return [first, *second], bool(second)


@pytest.mark.parametrize(
    ("make", "ask"),
    [pytest.param(config, possible, marks=pytest.mark.slow), (config, seconds), (residents, serving)],
    ids=lambda one: one.__name__,
)
def test_a_thread_that_interrupts_another_finds_what_it_would_find_alone(make, ask):
    alone, line, more = ask(make()), 0, True
    assert alone
    while more:
        line += 1
        shared = make()
        found, more = interrupted(lambda shared=shared: ask(shared), line)
        assert [*found, ask(shared)] == [alone] * (len(found) + 1), f"interrupted at line {line}"
    assert line > 10
