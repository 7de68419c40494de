"""Deadlines of bodies: one look at all, and only what is late is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from lodesman.api import deadlines
from lodesman.api.deadlines import Deadlines, deadlines_here


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(deadlines, "LOOK_SECONDS", 0.001)


async def wait_for_ever(found: Deadlines, seconds: float) -> str:
    task = asyncio.current_task()
    assert task is not None
    found.enter(task, seconds)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "late" if found.leave(task) else "cancelled"
    return "never"


def run(main):
    return asyncio.run(asyncio.wait_for(main, 10))


def test_what_is_late_is_cancelled_and_knows_it():
    async def main():
        return await wait_for_ever(deadlines_here(), 0.0)

    assert run(main()) == "late"


def test_who_is_not_late_waits_on():
    async def main():
        found = deadlines_here()
        patient = asyncio.ensure_future(wait_for_ever(found, 1_000.0))
        assert await wait_for_ever(found, 0.0) == "late"
        assert not patient.done()
        patient.cancel()
        return await patient

    assert run(main()) == "cancelled"


def test_who_left_in_time_is_left_alone():
    async def main():
        found = deadlines_here()
        task = asyncio.current_task()
        assert task is not None
        found.enter(task, 0.0)
        assert found.leave(task) is False
        other = asyncio.ensure_future(wait_for_ever(found, 0.0))
        return await other, task.cancelling()

    assert run(main()) == ("late", 0)


def test_looking_ends_when_nobody_waits_and_begins_again():
    async def main():
        found = deadlines_here()
        results = []
        for _ in range(3):
            results.append(await asyncio.ensure_future(wait_for_ever(found, 0.0)))
            assert not found._looking
        return results

    assert run(main()) == ["late"] * 3


def test_each_loop_has_its_own():
    async def main():
        assert deadlines_here() is deadlines_here()
        return deadlines_here()

    assert asyncio.run(main()) is not asyncio.run(main())
