"""Costly looks at the database, for all who ask: made in a thread, one at a time, and used for a while.

The event loop of the reading process answers everybody; what goes through all jobs may not hold it up, and a crowd that
asks for the same at once costs one look.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from lodesman.store import Reader, open_reader

T = TypeVar("T")

# A look that took less is made anew for each who asks: they see what they have just done.
CHEAP_SECONDS: Final = 0.05
REST: Final = 100.0  # a look that took a second is used for so many, times the patience
MOST_SECONDS: Final = 120.0
KEEP: Final = 256


@dataclass(slots=True)
class _Look:
    """What was found; `begun` and `cost` in seconds. One at a time looks anew."""

    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    found: Any = None
    begun: float | None = None
    cost: float = 0.0


class Snapshots:
    """Threads with read connections of their own. Belongs to one event loop."""

    def __init__(
        self, path: Path, *, patience: float, threads: int = 3, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._patience = patience
        self._ticks = ticks
        self._mine = threading.local()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="look")
        self._looking = asyncio.Lock()
        self._looks: OrderedDict[Hashable, _Look] = OrderedDict()

    async def get(self, key: Hashable, look: Callable[[Reader], T]) -> T:
        """What `look` finds, or found not long ago under this key."""
        asked = self._ticks()
        known = self._looks.setdefault(key, _Look())
        self._looks.move_to_end(key)
        if len(self._looks) > KEEP:
            self._looks.popitem(last=False)
        async with known.looking:
            # Whoever waited while another began to look takes what that one found.
            if known.begun is None or known.begun < asked - self._use(known):
                begun = self._ticks()
                known.found = await self.run(look)
                known.begun, known.cost = begun, self._ticks() - begun
            found: T = known.found
            return found

    async def run(self, work: Callable[[Reader], T]) -> T:
        """Do it in a thread, now."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)

    def _work(self, work: Callable[[Reader], T]) -> T:
        db: Reader | None = getattr(self._mine, "db", None)
        if db is None:
            db = self._mine.db = open_reader(self._path)
        return work(db)

    def _use(self, look: _Look) -> float:
        """For how long a look is used."""
        return 0.0 if look.cost < CHEAP_SECONDS else min(MOST_SECONDS, look.cost * REST * self._patience)
