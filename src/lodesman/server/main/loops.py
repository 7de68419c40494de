"""The loops of the background process: each repeats a step in a thread, by time and when woken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import floor, inf
from typing import Any, Final

from lodesman.base.errors import LodesmanError, words_of
from lodesman.server.store import let_go

log = logging.getLogger(__name__)

# A step that failed this often in a row, or takes this long, is reported as failing (lode server health).
_MANY_FAILURES: Final = 3
_STUCK_SECONDS: Final = 300.0
# A loop that is woken rests at least so many times as long as it worked: events never fill a core. What it waited for (first
# loads, the database, a core) counts once: else a job that comes meanwhile would wait for a whole period.
_AT_REST: Final = 10.0
# A step that failed is tried again after that long, then twice that, and so on.
_AGAIN_SECONDS: Final = 5.0
# Steps begin at multiples of this on the clock of the event loop: those of one moment wake the process once.
_MARK_SECONDS: Final = 0.25
# A step that has nothing to do rests for so long at most: a clock may be set meanwhile.
_LONGEST_REST: Final = 60.0
# Threads are started when they are needed.
_MOST_THREADS: Final = 256


@dataclass(slots=True)
class Loop:
    """One step, and the record of it."""

    name: str
    seconds: float  # between two steps, if nothing wakes it
    step: Callable[[], Any]
    failures: int = 0
    in_a_row: int = 0
    fault: str = ""  # of the last step, '' after a success
    begun_at: float | None = None  # monotonic, while the step runs
    succeeded_at: float | None = None  # UNIX seconds
    gap: float = inf  # least seconds to the next step when it is woken
    rest: float = 0.0  # the same, by the length of the last step
    idle: Callable[[], float] = lambda: 0.0  # seconds until it has something to do, unless it is woken
    _woken: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def wake(self) -> None:
        """Do the step soon; if it runs, once more. On the event loop."""
        self._woken.set()

    def once(self) -> None:
        """Run the step; its faults are logged."""
        self.begun_at, worked = time.monotonic(), time.thread_time()
        try:
            self.step()
        except Exception as fault:
            let_go(fault)
            self.failures += 1
            self.in_a_row += 1
            self.fault = words_of(fault)
            if isinstance(fault, LodesmanError):
                log.warning("a step of upkeep failed: %s", fault, extra={"step": self.name})
            else:
                log.exception("a step of upkeep failed", extra={"step": self.name})
        else:
            self.in_a_row, self.fault, self.succeeded_at = 0, "", time.time()
        finally:
            work, took = time.thread_time() - worked, time.monotonic() - self.begun_at
            self.rest, self.begun_at = max(took, _AT_REST * work), None

    async def run(self, threads: Executor, stop: asyncio.Event) -> None:
        """Again and again until `stop` is set."""
        while not stop.is_set():
            self._woken.clear()
            await asyncio.get_running_loop().run_in_executor(threads, self.once)
            period = to_mark(asyncio.get_running_loop().time(), self.period())
            gap = min(max(self.gap, self.rest), period)
            await _within(gap, stop)
            if not stop.is_set():  # whoever sets it wakes all
                await _within(period - gap, self._woken)

    def period(self) -> float:
        """The seconds to its next step if nothing wakes it: fewer after first failures."""
        if self.in_a_row:
            return min(self.seconds, _AGAIN_SECONDS * 2.0 ** min(self.in_a_row - 1, 10))
        return max(self.seconds, min(self.idle(), _LONGEST_REST))

    def trouble(self, ticks: float) -> str:
        """Its fault, '' if there is none."""
        begun = self.begun_at
        if begun is not None and ticks - begun > _STUCK_SECONDS:
            return f"it has been running for {ticks - begun:.0f} s"
        return self.fault if self.in_a_row >= _MANY_FAILURES else ""


def to_mark(now: float, seconds: float) -> float:
    """At most `seconds`, to a moment at which other steps begin, too; short ones are as they are."""
    if seconds < 2 * _MARK_SECONDS:
        return seconds
    return floor((now + seconds) / _MARK_SECONDS) * _MARK_SECONDS - now


async def _within(seconds: float, event: asyncio.Event) -> None:
    if seconds > 0 and not event.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


@dataclass(slots=True)
class Loops:
    """All loops of a process; any thread may add one."""

    loops: list[Loop]
    _begin: Callable[[Loop], object] | None = field(default=None, init=False)
    _wake: Callable[[str], object] | None = field(default=None, init=False)

    def failing(self) -> Mapping[str, str]:
        """The faults, by step."""
        ticks = time.monotonic()
        return {loop.name: trouble for loop in self.loops if (trouble := loop.trouble(ticks))}

    def wake(self, name: str) -> None:
        """Wake those of this name; on the event loop."""
        for loop in self.loops:
            if loop.name == name:
                loop.wake()

    def wake_soon(self, name: str) -> None:
        """The same from any thread; nothing while they do not run."""
        if self._wake is not None:
            self._wake(name)

    def add(self, loop: Loop) -> None:
        """Run one more, now or together with the others."""
        self.loops = [*self.loops, loop]
        if self._begin is not None:
            self._begin(loop)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises what is not an `Exception`, and sets `stop`."""
        tasks: list[asyncio.Task[None]] = []
        running = asyncio.get_running_loop()
        with ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="upkeep") as threads:

            def begin(loop: Loop) -> None:
                tasks.append(asyncio.create_task(loop.run(threads, stop), name=loop.name))
                tasks[-1].add_done_callback(lambda _: stop.set())  # a loop ends by itself only with a fault

            for loop in self.loops:
                begin(loop)
            self._begin = lambda loop: running.call_soon_threadsafe(begin, loop)
            self._wake = lambda name: running.call_soon_threadsafe(self.wake, name)
            try:
                await stop.wait()
            finally:
                stop.set()
                for loop in self.loops:
                    loop.wake()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
        for fault in ended:
            if isinstance(fault, BaseException):
                raise fault
