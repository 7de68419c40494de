"""Lists by what jobs say, which may take seconds: what one caller's leave to the others, and their end with the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from lodesman.languages.jobs.likeness import StepBudget
from lodesman.server.http.wire import Receive, unless_gone
from lodesman.server.store.read import job_lists

_T = TypeVar("_T")

# Of the threads that read (`CostlyReads`): one is left to plain lists.
_MOST: Final = 2


class Searches:
    """One at a time for each user, two in all. Belongs to the event loop."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._places = asyncio.Semaphore(_MOST)

    async def run(self, user: str, receive: Receive, read: Callable[[StepBudget], Awaitable[_T]]) -> _T:
        """What `read` returns, which spends the steps of this budget in a thread. Raises Disconnected if the client is gone,
        and SelectionTooDear.
        """
        return await unless_gone(receive, self._run(user, read))

    async def _run(self, user: str, read: Callable[[StepBudget], Awaitable[_T]]) -> _T:
        async with self._of.setdefault(user, asyncio.Lock()), self._places:
            budget = StepBudget(job_lists.MOST_STEPS)
            work = asyncio.ensure_future(read(budget))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                # Its thread is in use until it finds that.
                budget.end()
                await asyncio.gather(work, return_exceptions=True)
                raise
