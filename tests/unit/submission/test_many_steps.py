"""The smallest change with hundreds of steps: a sentence that can be read, and all of it as data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.decide.submission import find_exclusions, never_text

TEXT = '[site.S]\nVO = ["lab"]\n[site.S.ce.c.queue.q]\nCPUTime = 1000\n'
WORLD = Policy(load_resources([("s.toml", TEXT)])).vo_config("lab")
KEY = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=10)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "K000 left out"),
        (3, "K000 left out and Requirements.K001 left out and Requirements.K002 left out"),
        (200, "K000 left out and Requirements.K001 left out and Requirements.K002 left out and 197 more"),
    ],
)
def test_of_many_steps_the_first_few_are_listed_and_the_rest_counted(count, text):
    found = find_exclusions(KEY, {f"K{n:03}": 1 for n in range(count)}, WORLD)
    (best,) = found.job_changes(1)
    assert best.text == f"Requirements.{text}"
    assert len(best.change) == len(best.steps) == count
    assert len(never_text(found)) < 400


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "Tag without t0000"),
        (5, "Tag without t0000, t0001, t0002, t0003, t0004"),
        (5_000, "Tag without t0000, t0001, t0002, t0003, t0004, t0005, t0006, t0007 and 4992 more"),
    ],
)
def test_of_many_tags_the_first_few_are_listed_and_the_rest_counted(count, text):
    found = find_exclusions(replace(KEY, tags=tuple(f"t{n:04}" for n in range(count))), {}, WORLD)
    (best,) = found.job_changes(1)
    assert best.text == text
    assert len(never_text(found)) < 400
