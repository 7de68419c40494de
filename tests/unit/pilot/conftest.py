"""Clocks that stand still, and jobs."""

from __future__ import annotations

import pytest

from lodesman.pilot.protocol import Job, Limits


class Hands:
    """A clock that goes only when told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


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
def make_job():
    def make(number: int = 1, executable: str = "/bin/true", *arguments: str, **more) -> Job:
        names = Limits.__dataclass_fields__
        limits = Limits(
            **{
                name.removeprefix("limit_"): more.pop(name)
                for name in list(more)
                if name.startswith("limit_")
            }
        )
        assert set(vars(limits)) == set(names)
        return Job(
            id=number,
            attempt=more.pop("attempt", 1),
            executable=executable,
            arguments=arguments,
            limits=limits,
            **more,
        )

    return make
