"""Clocks that stand still, jobs, and pilots of no server."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from lodesman.base import kernel
from lodesman.pilot.context import PilotContext, PilotFile, PilotOptions
from lodesman.pilot.node import WorkerNode
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.protocol import AssignedJob, AttemptKey, PayloadLimits

STAMP = "s1"


class Hands:
    """A clock that goes only when moved."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class QuickContext(PilotContext):
    """Waits only for moments after failures, and notes how many there were in a row."""

    delays: list[int] = field(default_factory=list)

    def delay(self, failures: int) -> float:
        self.delays.append(failures)
        return 0.001


@pytest.fixture(autouse=True)
def _subreaper():
    """As every pilot: the wardens of payloads become children of this process. No longer than that: others wait until
    the daemons that they stopped are gone, which as our children they would never be.
    """
    kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
    yield
    kernel.set_attribute(kernel.CHILD_SUBREAPER, 0)


@pytest.fixture
def clock():
    return Hands()


@pytest.fixture
def lines():
    """What was logged, as (event, facts)."""
    return []


@pytest.fixture
def log(lines):
    return lambda event, **facts: lines.append((event, facts))


@pytest.fixture
def node():
    return WorkerNode("h", "os", "p", 2, 100, 200, "3.9", "0")


@pytest.fixture
def nursery():
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def make_context(tmp_path, log, clock, node, nursery):
    """A pilot's context; what it does not know are options of the pilot's file."""

    def make(*, kind=QuickContext, file=None, **more) -> PilotContext:
        fields = {name: more.pop(name) for name in list(more) if name in PilotContext.__dataclass_fields__}
        servers = ("http://127.0.0.1:1",)
        given = {
            "pilot_file": PilotFile(servers, "join", STAMP, PilotOptions(**more), **(file or {})),
            "node": node,
            "directory": tmp_path,
            "environment": {"PATH": "/usr/bin:/bin"},
            "log": log,
            "nursery": nursery,
            "rng": random.Random(1),
            "clock": clock,
            "ticker": clock,
        }
        return kind(**{**given, **fields})

    return make


@pytest.fixture
def context(make_context):
    return make_context()


@pytest.fixture
def make_job():
    def make(number: int = 1, executable: str = "/bin/true", *arguments: str, **more) -> AssignedJob:
        names = [name for name in more if name.startswith("limit_")]
        limits = PayloadLimits(**{name.removeprefix("limit_"): more.pop(name) for name in names})
        key = AttemptKey(number, more.pop("attempt", 1))
        return AssignedJob(key, executable, arguments=arguments, limits=limits, **more)

    return make
