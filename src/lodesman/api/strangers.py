"""Those who have no token that is good: counted by address for the audit trail, and made to wait when they are too many.

The server answers all requests on one event loop: a loop that is busy with refusals delays each claim of a pilot many times.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from lodesman.answers.audit import AuditNote
from lodesman.api.wire import Scope

# Different addresses and tokens that are counted apart until they are noted.
_MOST = 1_000
_OTHERS = ("many addresses", "")
_SHOWN = 12
_WAIT_SECONDS = 1.0
_MOST_WAITING = 2_000


class Strangers:
    """Belongs to the event loop. `most`: refusals of one address in a second that are answered at once; `most_open`: its
    requests of what needs no token.
    """

    def __init__(self, *, most: int = 20, most_open: int = 100) -> None:
        self.most, self.most_open = most, most_open
        self._refused: Counter[tuple[str, str]] = Counter()
        self._second, self._lately = 0, Counter[tuple[str, bool]]()
        self._waiting, self._never = 0, asyncio.Event()

    async def wait_if_many(self, origin: str, *, is_open: bool = False) -> bool:
        """Count a refusal, or a request that `is_open` to all; if there were too many of that address in this second,
        keep it waiting. Returns whether.
        """
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
        """A request from this address was refused. `token`: the beginning of its hash, '' without one."""
        key = (origin, token)
        self._refused[key if key in self._refused or len(self._refused) < _MOST else _OTHERS] += 1

    def take(self) -> list[AuditNote]:
        """What was counted since the last time."""
        found, self._refused = self._refused, Counter()
        return [
            AuditNote("login-refused", token[:_SHOWN] or "no token", "", origin, count)
            for (origin, token), count in found.items()
        ]


def origin_of(scope: Scope) -> str:
    """The address that a request comes from, '' if it has none."""
    client = scope.get("client")
    return str(client[0]) if client else ""
