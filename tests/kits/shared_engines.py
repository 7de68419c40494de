"""The batch systems that the tests of a process share. Each test finds them empty, whatever others left there.

They are stopped when the session ends: xdist kills a worker that takes more than ten seconds after that, with its `atexit`.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE_S = 180.0
# Jobs that were told to end, and have not, are killed.
GRACE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedEngine:
    """left: lines of its own lists, of jobs of all accounts in all states and of slots that are taken; `` if there are none.

    clear: ends all jobs, and with True whatever they do against it.
    """

    name: str
    left: Callable[[], str]
    clear: Callable[[bool], object]

    def empty(self) -> None:
        """Nothing is left in it."""
        begun = time.monotonic()
        while left := self.left().strip():
            waited = time.monotonic() - begun
            assert waited < PATIENCE_S, f"{self.name} cannot be emptied:\n{left}"
            self.clear(waited > GRACE_S)
            threading.Event().wait(0.1)


_running: list[SharedEngine] = []


def share(engine: SharedEngine) -> None:
    """It runs until this process ends."""
    _running.append(engine)


def empty_all() -> None:
    for one in _running:
        one.empty()


_ends: list[Callable[[], object]] = []


def at_end(stop: Callable[[], object]) -> None:
    """Call this when the tests of this process have ended, before what was given earlier."""
    _ends.append(stop)


@atexit.register
def stop_all() -> None:
    """Stop what runs; also a process that is no session of pytest leaves nothing."""
    _running.clear()
    while _ends:
        _ends.pop()()
