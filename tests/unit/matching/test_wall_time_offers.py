"""A queue that ends pilots by the clock offers no more CPU time than fits into a pilot's life."""

from __future__ import annotations

import pytest

from lodesman.decide.matching.offers import offers_of
from lodesman.decide.resources import QueueTable, load_resources

HOUR = 3_600


def offered(lines: str, *, life_seconds: int = 0) -> int:
    resources = load_resources([("sites.toml", f"[site.S.ce.c.queue.q]\n{lines}\n")])
    (offer,) = offers_of(QueueTable(resources, "lab"), "lab", life_seconds=life_seconds)
    return offer.request.norm_cpu_seconds


@pytest.mark.parametrize(
    "lines", ['WallTime = "1 h"', 'walltime = "60 min"', 'WallTime = "1 h"\nCPUTime = "2 h"']
)
def test_the_clock_limits_what_is_offered(lines):
    assert HOUR - 300 < offered(lines) < HOUR


def test_a_limit_of_cpu_time_that_is_less_holds():
    assert offered('WallTime = "2 h"\nCPUTime = "1 h"') == HOUR


def test_the_less_of_wall_time_and_life_counts():
    assert offered('WallTime = "2 h"', life_seconds=HOUR) == offered('WallTime = "1 h"')
    assert offered('WallTime = "1 h"', life_seconds=2 * HOUR) == offered('WallTime = "1 h"')
    assert offered('WallTime = "1 h"\nCPUScalingFactor = 2') > HOUR


def test_without_one_there_is_no_such_limit():
    assert offered("WallTime = 0") == offered("Slots = 1") > 100 * HOUR
