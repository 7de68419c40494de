"""The loops of the background process: each repeats one blocking step in a thread of its own.

A step that fails with an `Exception` is logged and tried again. Anything else ends the process, which is started again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from lodesman.errors import LodesmanError

log = logging.getLogger(__name__)

# A step that failed this often in a row, or takes this long, is reported as failing (lode server health).
_MANY_FAILURES: Final = 3
_STUCK_SECONDS: Final = 300.0


@dataclass(slots=True, kw_only=True)
class Loop:
    """One step and its record: `begun_at` while it runs, the last `fault` ('' after a success).

    `succeeded_at` is in UNIX seconds.
    """

    name: str
    seconds: float
    step: Callable[[], Any]
    failures: int = 0
    in_a_row: int = 0
    fault: str = ""
    begun_at: float | None = None
    succeeded_at: float | None = None

    def once(self) -> None:
        """Run the step; its faults are logged."""
        self.begun_at = time.monotonic()
        try:
            self.step()
        except LodesmanError as fault:
            self._failed(fault)
            log.warning("a step of upkeep failed: %s", fault, extra={"step": self.name})
        except Exception as fault:
            self._failed(fault)
            log.exception("a step of upkeep failed", extra={"step": self.name})
        else:
            self.in_a_row, self.fault, self.succeeded_at = 0, "", time.time()
        finally:
            self.begun_at = None

    def _failed(self, fault: Exception) -> None:
        self.failures += 1
        self.in_a_row += 1
        self.fault = f"{type(fault).__name__}: {fault}"[:500]

    def trouble(self, ticks: float) -> str:
        """Its fault, '' if there is none."""
        begun = self.begun_at
        if begun is not None and ticks - begun > _STUCK_SECONDS:
            return f"it has been running for {ticks - begun:.0f} s"
        return self.fault if self.in_a_row >= _MANY_FAILURES else ""


@dataclass(slots=True)
class Loops:
    """All loops of a process."""

    loops: list[Loop] = field(default_factory=list)

    def add(self, name: str, seconds: float, step: Callable[[], Any]) -> None:
        """One more, before they are started."""
        self.loops.append(Loop(name=name, seconds=seconds, step=step))

    def failing(self) -> Mapping[str, str]:
        """The faults by the names of the steps."""
        ticks = time.monotonic()
        return {loop.name: trouble for loop in self.loops if (trouble := loop.trouble(ticks))}

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Raises what is not an `Exception`, and sets `stop`."""
        with ThreadPoolExecutor(len(self.loops) or 1, thread_name_prefix="upkeep") as threads:
            tasks = [asyncio.create_task(every(loop, threads, stop), name=loop.name) for loop in self.loops]
            try:
                await asyncio.gather(*tasks)
            finally:
                stop.set()
                await asyncio.gather(*tasks, return_exceptions=True)


async def every(loop: Loop, threads: Executor, stop: asyncio.Event) -> None:
    """Run one loop."""
    while not stop.is_set():
        await asyncio.get_running_loop().run_in_executor(threads, loop.once)
        try:
            async with asyncio.timeout(loop.seconds):
                await stop.wait()
        except TimeoutError:
            continue
