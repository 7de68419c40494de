"""Loops that are woken, and how the hot process tells the background one that there may be work."""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import threading
from concurrent.futures import Executor, Future
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from lodesman.server.main import loops as module
from lodesman.server.main.background import BackgroundProcess
from lodesman.server.main.loops import Loop, Loops
from lodesman.server.main.parts import BackgroundParts
from lodesman.server.main.processes import Announcer, woken_by
from lodesman.wire.vocabulary import Waking

PATIENCE = 20.0


class Leap(selectors.SelectSelector):
    """Nothing is waited for: the time of the loop leaps to what comes next."""

    now = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "nothing will ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class AtOnce(Executor):
    """Threads that have done their work before they are asked for the result."""

    def submit(self, what, /, *given, **named):
        done: Future[object] = Future()
        done.set_result(what(*given, **named))
        return done


class Days:
    """A loop of the given pace in leaping time; `plan`: at which times it is woken. `took`: how long its step takes."""

    def __init__(self, *, seconds, gap, until, plan=(), took=0.0, idle=0.0):
        self.begun: list[float] = []
        selector = Leap()
        self._loop = asyncio.SelectorEventLoop(selector)
        self._loop.time = lambda: selector.now  # type: ignore[method-assign]
        self._selector, self._took = selector, took
        self._one = Loop("director", seconds, self._step, gap=gap, idle=lambda: idle)
        try:
            self._loop.run_until_complete(self._run(plan, until))
        finally:
            self._loop.close()

    def _step(self):
        self.begun.append(round(self._selector.now, 3))
        self._selector.now += self._took

    async def _run(self, plan, until):
        stop, all_loops = asyncio.Event(), Loops([self._one])
        for at in plan:
            self._loop.call_at(at, all_loops.wake, "director")
        self._loop.call_at(until, stop.set)
        running = asyncio.ensure_future(self._one.run(AtOnce(), stop))
        await stop.wait()
        self._one.wake()
        await running


def test_time_alone_wakes_a_loop():
    assert Days(seconds=60.0, gap=5.0, until=200.0).begun == [0.0, 60.0, 120.0, 180.0]


def test_the_length_of_a_step_does_not_move_the_next_ones():
    """Else loops of one pace would drift apart, and each would wake the process for itself."""
    assert Days(seconds=1.0, gap=0.0, until=4.5, took=0.003).begun == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert Days(seconds=0.5, gap=0.0, until=2.2, took=0.3).begun == [0.0, 0.75, 1.5]  # it rests, too


@pytest.mark.parametrize(
    ("idle", "begun"),
    [(0.0, [0.0, 10.0, 14.0, 24.0]), (13.0, [0.0, 13.0, 14.0, 27.0]), (1e6, [0.0, 14.0, 74.0])],
)
def test_a_loop_with_nothing_to_do_rests_a_minute_at_most_unless_it_is_woken(idle, begun):
    assert Days(seconds=10.0, gap=0.5, until=begun[-1] + 5.0, plan=[14.0], idle=idle).begun == begun


def idle_process():
    """The loops of a process without pilots, whose passes are not due."""
    process = object.__new__(BackgroundProcess)
    process.parts = MagicMock()
    process.parts.config.polling_seconds = 60.0
    process.parts.local.is_idle = True
    for part in ("retention", "usage", "accounting", "reconciler", "sizes"):
        getattr(process.parts, part).rest.return_value = 60.0
    return process


def test_an_idle_process_does_few_steps():
    loops = idle_process()._loops()
    assert sum(60.0 / loop.period() for loop in loops) < 5.5 * 60
    assert max(loop.period() for loop in loops if loop.name != "purge") <= 60.0


def test_what_rests_long_can_be_woken():
    gaps = {loop.name: loop.gap for loop in idle_process()._loops()}
    assert {name: gaps[name] for name in ("cancel", "backend", "usage") if gaps[name] > 1.0} == {}


def test_local_pilots_that_have_not_ended_are_looked_at_twice_a_second():
    process = idle_process()
    process.parts.local.is_idle = False
    assert [loop.period() for loop in process._loops() if loop.name == "backend"] == [0.5]


def test_an_order_to_cancel_pilots_wakes_who_carries_it_out():
    parts, waked = MagicMock(), list[str]()
    parts.loops.wake_soon = waked.append
    BackgroundParts._cancel(parts, "excess")  # type: ignore[arg-type]
    parts.cancelling.order.assert_called_once_with("excess")
    assert waked == ["cancel"]


def test_what_happens_wakes_it_at_once_when_it_has_rested():
    assert Days(seconds=60.0, gap=5.0, until=100.0, plan=[20.0]).begun == [0.0, 20.0, 80.0]


def test_however_much_happens_the_least_gap_is_kept():
    plan = [0.5 + n / 10 for n in range(120)]
    assert Days(seconds=60.0, gap=5.0, until=40.0, plan=plan).begun == [0.0, 5.0, 10.0, 15.0]


def test_what_is_told_while_it_works_counts_for_the_next_step():
    class Working(Days):
        def _step(self):
            super()._step()
            if len(self.begun) == 1:
                self._one.wake()

    assert Working(seconds=60.0, gap=5.0, until=30.0).begun == [0.0, 5.0]


def test_a_job_that_comes_after_a_slow_first_iteration_does_not_wait_for_a_period(monkeypatch):
    """That one waits for the first loads, 10 s if need be."""
    ticks = iter([0.0, 10.0, *map(float, range(10, 99))])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(ticks))
    assert Days(seconds=60.0, gap=5.0, until=50.0, plan=[1.0]).begun == [0.0, 10.0]


class Failing(Days):
    """Its first three steps fail."""

    def _step(self):
        super()._step()
        if len(self.begun) <= 3:
            raise OSError("busy")


@pytest.mark.parametrize("gap", [5.0, float("inf")])
def test_what_failed_is_tried_again_before_a_period_is_over(gap):
    assert Failing(seconds=60.0, gap=gap, until=100.0).begun == [0.0, 5.0, 15.0, 35.0, 95.0]


def test_what_fails_is_not_tried_more_often_than_it_is_done():
    assert Failing(seconds=2.0, gap=5.0, until=7.0).begun == [0.0, 2.0, 4.0, 6.0]


def test_whatever_is_announced_wakes_the_director():
    assert [one.name for one in Waking if "director" not in woken_by(one.value.encode())] == []


@pytest.mark.parametrize(("iterated_at", "woken"), [(None, []), (5.0, ["director"])])
def test_first_loads_that_come_after_an_iteration_wake_the_director(iterated_at, woken):
    waked: list[str] = []
    director = SimpleNamespace(iterated_at=iterated_at)
    process = SimpleNamespace(director=director, loops=SimpleNamespace(wake_soon=waked.append))
    watch = SimpleNamespace(polled=threading.Event(), tick=lambda _now: None)
    look = partial(BackgroundParts.look_at, process, watch)  # type: ignore[arg-type]
    look()
    assert waked == []  # it had no answer yet
    watch.tick = lambda _now: watch.polled.set()
    for _ in range(3):
        look()
    assert waked == woken


def test_a_loop_whose_gap_is_not_given_is_not_woken():
    assert Days(seconds=60.0, gap=float("inf"), until=100.0, plan=[20.0]).begun == [0.0, 60.0]


def test_a_loop_that_is_quicker_than_the_gap_keeps_its_pace():
    assert Days(seconds=1.0, gap=5.0, until=3.5, plan=[0.2]).begun == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("clock", "rest"), [("thread_time", 20.0), ("monotonic", 8.0)])
def test_a_step_that_takes_long_is_woken_less_often(monkeypatch, clock, rest):
    """Ten times as long as it worked, as long as it waited."""
    ticks = iter(
        range(0, 10_000, 2 if clock == "thread_time" else 8)
    )  # each step takes so long by this clock
    monkeypatch.setattr(module.time, clock, lambda: float(next(ticks)))
    plan = [float(n) for n in range(1, 60)]
    begun = Days(seconds=60.0, gap=5.0, until=45.0, plan=plan).begun
    assert begun[:3] == [0.0, rest, 2 * rest]


def test_woken_loops_of_a_process_run_at_once_and_end_with_it():
    """With real threads, and paces that no test lives to see."""
    ran = []

    async def main():
        stop, own = asyncio.Event(), asyncio.get_running_loop()

        def step():
            ran.append(1)
            own.call_soon_threadsafe(stop.set if len(ran) == 3 else lambda: all_loops.wake("quick"))

        never = Loop("never", 1e6, lambda: None, gap=1e6)
        all_loops = Loops([Loop("quick", 1e6, step, gap=0.0), never])
        async with asyncio.timeout(PATIENCE):
            await all_loops.run(stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_REST", 0.0)
        asyncio.run(main())
    assert len(ran) == 3


# --- the words ----------------------------------------------------------------------------------------------


def test_words_travel_as_bytes_and_what_is_not_known_is_left_out():
    assert woken_by("".join(one.value for one in Waking).encode()) == {"director", "configuration"}
    assert woken_by(b"pp?\n\xff") == {"director"}
    assert woken_by(b"") == set()


@pytest.mark.parametrize("word", [Waking.AD, Waking.JOBS])
def test_an_ad_and_new_jobs_bring_a_refresh_of_the_submit_pools_that_ask_for_something_in_ads(word):
    assert "configuration" in woken_by(word.encode())


async def child_that(code):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


def test_many_words_of_a_kind_are_told_once():
    async def main():
        child = await child_that("import os; print(os.read(0, 99).decode())")
        announcer = Announcer(lambda: child)
        for _ in range(1_000):
            announcer.announce(Waking.JOBS)
        announcer.announce(Waking.AD)
        said, _ = await child.communicate()
        return said

    assert asyncio.run(main()).strip() == b"aj"


def test_nothing_is_kept_for_a_process_that_does_not_read():
    """Its socket is full: words are lost, and take no memory."""

    async def main():
        child = await child_that("import signal; signal.pause()")
        assert child.stdin is not None
        child.stdin.write(b"?" * (1 << 22))
        full = child.stdin.transport.get_write_buffer_size()
        announcer = Announcer(lambda: child)
        for _ in range(3):
            announcer.announce(Waking.JOBS)
            announcer._say()
        left = child.stdin.transport.get_write_buffer_size()
        child.kill()
        await child.wait()
        return full, left

    full, left = asyncio.run(main())
    assert 0 < left <= full


@pytest.mark.parametrize("state", ["none", "ended"])
def test_what_is_told_while_there_is_no_process_is_lost(state):
    async def main():
        child = await child_that("")
        await child.wait()
        announcer = Announcer(lambda: child if state == "ended" else None)
        announcer.announce(Waking.JOBS)
        assert announcer._waiting
        announcer._say()
        assert not announcer._waiting

    asyncio.run(main())


def test_a_refresh_of_submit_pools_wakes_the_director(monkeypatch):
    """It may bind jobs then that no queue served before."""
    causes, ran = ["", "ads of sites"], threading.Semaphore(0)

    class Refreshing(BackgroundProcess):
        def __init__(self):
            self.parts = SimpleNamespace(
                submit_pools=SimpleNamespace(tick=lambda _policy, _now: causes.pop(0)),
                policy=None,
                loops=Loops([Loop("director", 1_000.0, ran.release, gap=0.0)]),
                reload=lambda: None,
            )

    async def main():
        one, stop = Refreshing(), asyncio.Event()
        one._refresh()
        running = asyncio.create_task(one.parts.loops.run(stop))
        assert await asyncio.to_thread(ran.acquire, timeout=PATIENCE), "the first time"
        await asyncio.to_thread(one._refresh)
        assert await asyncio.to_thread(ran.acquire, timeout=PATIENCE)
        stop.set()
        await running

    asyncio.run(main())


class Background(BackgroundProcess):
    """Only what hears."""

    def __init__(self):
        loops = Loops([Loop("director", 1.0, lambda: None), Loop("other", 1.0, lambda: None)])
        self.parts = SimpleNamespace(loops=loops)


def test_the_director_is_woken_by_words_and_all_ends_with_them(monkeypatch):
    async def main():
        ours, theirs = os.pipe()
        with os.fdopen(ours) as there, os.fdopen(theirs, "wb", buffering=0) as here:
            monkeypatch.setattr(sys, "stdin", there)
            one, stop, told = Background(), asyncio.Event(), asyncio.Event()
            director, other = one.parts.loops.loops
            asyncio.get_running_loop().add_reader(ours, lambda: (one._hear(stop), told.set()))
            for words, woken in ((b"?", False), (b"p", True)):
                here.write(words)
                await told.wait()
                told.clear()
                assert (director._woken.is_set(), other._woken.is_set()) == (woken, False)
            here.close()
            async with asyncio.timeout(PATIENCE):
                await stop.wait()

    asyncio.run(main())
