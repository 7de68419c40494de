"""Ending requests whose body does not come in time: one look a second at all of them.

A timer for each request costs a tenth of a claim; hardly any body is late.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

LOOK_SECONDS = 1.0


class Deadlines:
    """The tasks of one event loop that wait for bodies, each with its deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[asyncio.Task[Any], float] = {}
        self._overdue: set[asyncio.Task[Any]] = set()
        self._looking = False

    def enter(self, task: asyncio.Task[Any], seconds: float) -> None:
        """The task begins to wait; it is cancelled when it waits longer than that."""
        self._due[task] = self._loop.time() + seconds
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_SECONDS, self._look)

    def leave(self, task: asyncio.Task[Any]) -> bool:
        """The task waits no more; true if its deadline cancelled it."""
        self._due.pop(task, None)
        if task not in self._overdue:
            return False
        self._overdue.discard(task)
        return True

    def _look(self) -> None:
        now = self._loop.time()
        for task in [task for task, due in self._due.items() if due < now]:
            del self._due[task]
            self._overdue.add(task)
            task.cancel()
        self._looking = bool(self._due)
        if self._looking:
            self._loop.call_later(LOOK_SECONDS, self._look)


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()


def deadlines_here() -> Deadlines:
    """The deadlines of the running loop."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOP.get(loop)
    if found is None:
        found = _OF_LOOP[loop] = Deadlines(loop)
    return found
