"""What tests cost: a quick one that costs more than it may fails the run, however fast the machine is."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from time import process_time
from types import SimpleNamespace
from typing import cast

import pytest
from _pytest.runner import runtestprotocol

MOST_CPU_SECONDS = 1 / 3
_MEASURE_ROUNDS = 200_000
# What `_measure` takes on the machine for which the limit is meant.
_MEASURE_SECONDS = 0.0085
# Set in the process that has one test.
_ALONE = "LODE_COST_ALONE"
_MARKS = ("slow", "thorough", "e2e", "engines")


class CostWatch:
    """Fails each unmarked test that costs more CPU time than a quick one may, its processes included.

    What is done once for many tests (imports, caches, fixtures of a session) is no cost of the test that comes first, and
    what other tests left in the process is none either (a search for garbage goes through all of it): a test over the
    limit is run again where the former is there, then in a process of its own, and only what is over the limit in each
    of these runs fails. On a slow or a loaded machine the limit is higher.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        begun = _cpu_seconds()
        result = yield
        if _cpu_seconds() - begun > MOST_CPU_SECONDS and not any(map(item.get_closest_marker, _MARKS)):
            spent = self._repeat(item, nextitem)
            is_dear = spent > MOST_CPU_SECONDS * slowness()
            if is_dear and (_ALONE in os.environ or _is_dear_alone(item)):
                self._report(item, spent)
        return result

    @staticmethod
    def _repeat(item: pytest.Item, nextitem: pytest.Item | None) -> float:
        """What a test costs that finds all fixtures which others may share, alone the least of three. They end as before."""
        beside = cast("pytest.Item", SimpleNamespace(listchain=lambda: item.listchain()[:-1]))
        least = math.inf
        for _ in range(3 if _ALONE in os.environ else 1):
            begun = _cpu_seconds()
            runtestprotocol(item, log=False, nextitem=beside)
            least = min(least, _cpu_seconds() - begun)
            if least <= MOST_CPU_SECONDS:
                break
        runtestprotocol(item, log=False, nextitem=nextitem)
        return least

    @staticmethod
    def _report(item: pytest.Item, spent: float) -> None:
        said = f"{item.nodeid} takes {spent:.2f} s of CPU time: make it cheaper, or mark it slow"
        item.ihook.pytest_runtest_logreport(
            report=pytest.TestReport(
                nodeid=item.nodeid, location=item.location, keywords={}, outcome="failed", longrepr=said, when="teardown"
            )
        )  # fmt: skip


def _is_dear_alone(item: pytest.Item) -> bool:
    """Whether the test fails for its cost in a process where nothing else ran, too."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={item.config.rootpath}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", item.config.option.markexpr, item.nodeid],
        cwd=item.config.rootpath, check=False, capture_output=True,
        env={**{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}, _ALONE: "yes"},
    )  # fmt: skip
    return done.returncode != 0


def _cpu_seconds() -> float:
    own, others = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def slowness() -> float:
    """How many times longer than the machine for which limits are meant this one computes now; at least 1."""
    return max(1.0, _measure() / _MEASURE_SECONDS)


def _measure() -> float:
    """How long this machine computes now for a piece of work that is always the same: the least of three."""
    tries = []
    for _ in range(3):
        begun = process_time()
        sum(number % 7 for number in range(_MEASURE_ROUNDS))
        tries.append(process_time() - begun)
    return min(tries)
