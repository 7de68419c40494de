"""Loops of the background process: a step that fails is tried again, and none ends without a word."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import threading
import zlib

import apsw
import msgspec
import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.main.loops import _MANY_FAILURES, _STUCK_SECONDS, Loop, Loops
from lodesman.server.main.processes import (
    _LONG_LIFE_SECONDS,
    _MOST_RESTART_SECONDS,
    RESTART_SECONDS,
    next_rest,
)

PATIENCE = 20.0


def run(loops):
    """Run until a step says stop."""

    async def main():
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loops.stop = lambda: loop.call_soon_threadsafe(stop.set)
        async with asyncio.timeout(PATIENCE):
            await loops.run(stop)

    asyncio.run(main())


class Steps(Loops):
    """Loops of which a step may end all."""

    def __init__(self):
        super().__init__([])

    def add(self, *given):
        self.loops.append(Loop(*given))


def failing_then_stop(loops, faults):
    left = list(faults)

    def step():
        if left:
            raise left.pop(0)
        loops.stop()

    return step


@pytest.mark.parametrize(
    "fault",
    [
        apsw.IOError("disk"), apsw.FullError("full"), apsw.BusyError("busy"), RuntimeError("pool"), MemoryError(),
        RecursionError("deep"), KeyError("x"), OSError("gone"), AssertionError("bug"), Unavailable("away"),
        subprocess.TimeoutExpired("qstat", 5), TypeError("bug"), ZeroDivisionError(), NameError("bug"), StopIteration(),
        ModuleNotFoundError("bug"), msgspec.EncodeError("bug"), zlib.error("bug"), re.error("bug"),
    ],
    ids=lambda fault: type(fault).__name__,
)  # fmt: skip
def test_a_step_that_fails_is_tried_again(fault, caplog):
    loops = Steps()
    loops.add("director", 0.0, failing_then_stop(loops, [fault, fault]))
    with caplog.at_level(logging.WARNING):
        run(loops)
    (loop,) = loops.loops
    assert (loop.failures, loop.in_a_row, loop.fault) == (2, 0, "")
    assert loop.succeeded_at is not None
    told = [record for record in caplog.records if record.step == "director"]
    assert len(told) == 2
    assert all(record.exc_info for record in told) is not isinstance(fault, Unavailable)


def test_a_fault_without_words_costs_its_own_step_alone():
    class Wordless(Exception):
        def __str__(self):
            raise ValueError

    def odd():
        raise Wordless

    loops = Steps()
    loops.add("odd", 0.0, odd)
    loops.add("other", 0.0, lambda: loops.stop() if loops.loops[0].failures else None)
    run(loops)
    assert loops.loops[0].fault == "Wordless: it cannot be put into words"
    assert loops.loops[1].fault == ""


def test_what_is_no_exception_ends_the_process_aloud():
    class Odd(BaseException):
        pass

    def odd():
        raise Odd

    loops = Steps()
    loops.add("odd", 0.0, odd)
    loops.add("other", 60.0, lambda: None)
    with pytest.raises(Odd):
        run(loops)


def test_one_that_hangs_does_not_hold_up_the_others():
    loops = Steps()
    free, ran = threading.Event(), threading.Event()
    begun = [threading.Event() for _ in range(12)]

    def hang(number):
        begun[number].set()
        free.wait(PATIENCE)

    def last():
        if all(one.wait(PATIENCE) for one in begun):
            ran.set()
        free.set()
        loops.stop()

    for number in range(12):
        loops.add(f"hanging {number}", 0.0, lambda number=number: hang(number))
    loops.add("last", 0.0, last)
    run(loops)
    assert ran.is_set()


def test_no_step_begins_after_the_end():
    async def main():
        stop = asyncio.Event()
        stop.set()
        await Loops([Loop("late", 0.0, lambda: pytest.fail("a step began"))]).run(stop)

    asyncio.run(main())


def test_a_loop_may_join_the_others_at_any_time():
    ran = []

    async def main():
        stop = asyncio.Event()
        loops = Loops([Loop("first", 60.0, lambda: loops.add(Loop("second", 60.0, lambda: end(stop))))])
        own = asyncio.get_running_loop()

        def end(stop):
            ran.append("second")
            own.call_soon_threadsafe(stop.set)

        async with asyncio.timeout(PATIENCE):
            await loops.run(stop)

    asyncio.run(main())
    assert ran == ["second"]


def test_what_fails_again_and_again_is_named():
    loops = Steps()
    loops.add("fine", 1.0, lambda: None)
    loops.add("broken", 1.0, failing_then_stop(loops, [apsw.IOError("disk")] * 9))
    for _ in range(_MANY_FAILURES - 1):
        for loop in loops.loops:
            loop.once()
    assert loops.failing() == {}
    for loop in loops.loops:
        loop.once()
    assert loops.failing() == {"broken": "IOError: disk"}


def test_a_success_forgives():
    loop = Loop(name="x", seconds=1.0, step=failing_then_stop(None, [OSError("no")] * _MANY_FAILURES))
    for _ in range(_MANY_FAILURES):
        loop.once()
    assert loop.trouble(0.0)
    loop.step = lambda: None
    loop.once()
    assert loop.trouble(0.0) == ""
    assert loop.failures == _MANY_FAILURES


def test_a_step_that_does_not_end_is_named():
    loop = Loop(name="x", seconds=1.0, step=lambda: None)
    loop.begun_at = 100.0
    assert loop.trouble(100.0 + _STUCK_SECONDS) == ""
    assert "running for 301 s" in loop.trouble(100.0 + _STUCK_SECONDS + 1)
    loop.once()
    assert loop.trouble(1e9) == ""


def test_a_process_that_ends_at_once_is_started_later_each_time():
    rests, rest = [], 0.0
    for _ in range(8):
        rest = next_rest(rest, lived=1.0)
        rests.append(rest)
    assert rests[0] == RESTART_SECONDS
    assert rests == sorted(rests)
    assert rests[-1] == _MOST_RESTART_SECONDS
    assert next_rest(rest, lived=_LONG_LIFE_SECONDS + 1) == RESTART_SECONDS
