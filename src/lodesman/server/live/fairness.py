"""Turns of users at the writer, and waits of strangers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Protocol
from weakref import WeakValueDictionary

from lodesman.wire.accounts import AuditNote

# Different addresses and tokens that are counted apart until they are noted.
_MOST = 1_000
_OTHERS = ("many addresses", "")
_WAIT_SECONDS = 1.0
_MOST_WAITING = 2_000


class Strangers:
    """Requests without a good token. Belongs to the event loop."""

    def __init__(self, *, most: int = 20, most_open: int = 100) -> None:
        # Of one address in a second, answered at once: refusals, and requests of what needs no token.
        self.most, self.most_open = most, most_open
        self._refused: Counter[tuple[str, str]] = Counter()
        self._second, self._lately = 0, Counter[tuple[str, bool]]()
        self._waiting, self._never = 0, asyncio.Event()

    async def wait_if_many(self, origin: str, *, is_open: bool = False) -> bool:
        """Count a refusal, or a request `is_open` to all. Beyond the limit it waits, which is returned."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._lately = second, Counter()
        self._lately[origin, is_open] += 1
        if self._lately[origin, is_open] <= (self.most_open if is_open else self.most):
            return False
        if self._waiting < _MOST_WAITING:
            self._waiting += 1
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._never.wait()
            except TimeoutError:
                pass
            finally:
                self._waiting -= 1
        return True

    def refused(self, origin: str, token: str) -> None:
        """`token`: in words or the beginning of its hash, '' for none."""
        key = (origin, token)
        self._refused[key if key in self._refused or len(self._refused) < _MOST else _OTHERS] += 1

    def take(self) -> list[AuditNote]:
        """The counts since the last time."""
        counts, self._refused = self._refused, Counter()
        return [
            AuditNote("login-refused", token or "no token", "", origin, count)
            for (origin, token), count in counts.items()
        ]


_FEW = 100


class _Timed(Protocol):
    seconds: float


class Turns:
    """One action at a time for each user. Together they rest as long as they worked, if others came.

    Work counts twice, for its commit. Commands about many jobs go one by one.
    """

    def __init__(self, post: Callable[[Any], Awaitable[Any]], applied: Callable[[], int]) -> None:
        self._post, self._applied = post, applied  # applied: commands of all, by the writer
        self._own = self._others = 0
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._of_many = asyncio.Lock()
        self._free_at = 0.0

    def of(self, user: str) -> asyncio.Lock:
        """The lock of a user's actions."""
        return self._of.setdefault(user, asyncio.Lock())

    async def command(self, command: Any, *, jobs: int) -> Any:
        """Run it when it is time. Raises LodesmanError."""
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
