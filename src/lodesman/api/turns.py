"""Turns of users at the writer: what acts on many jobs leaves others at least half of its time (ADR 0035)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Protocol
from weakref import WeakValueDictionary

_FEW = 100


class _Timed(Protocol):
    """An outcome that knows how many seconds of the writer it took."""

    seconds: float


class Turns:
    """One action at a time for each user; commands of all users together rest as long as they worked, if others came.

    Their own time is counted and doubled, since the commit of what they wrote takes about as long again. Those about many
    jobs come one after the other; those about few share commits. `applied`: how many commands the writer has applied.
    """

    def __init__(self, post: Callable[[Any], Awaitable[Any]], applied: Callable[[], int]) -> None:
        self._post, self._applied = post, applied
        self._own = self._others = 0
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._of_many = asyncio.Lock()
        self._free_at = 0.0

    def of(self, user: str) -> asyncio.Lock:
        """What a user's action holds until it has ended."""
        return self._of.setdefault(user, asyncio.Lock())

    async def command(self, command: Any, *, jobs: int) -> Any:
        """Post a command about that number of jobs when it is time, and wait for its answer. Raises the LodesmanError that
        refused it.
        """
        loop = asyncio.get_running_loop()
        async with self._of_many if jobs > _FEW else nullcontext():
            # Since the last one was posted: what waited behind it was applied together with it.
            if self._applied() - self._own > self._others:
                await asyncio.sleep(max(0.0, self._free_at - loop.time()))
            self._others = self._applied() - self._own
            outcome: _Timed = await self._post(command)
            self._own += 1
            self._free_at = max(self._free_at, loop.time()) + 2 * outcome.seconds
        return outcome
