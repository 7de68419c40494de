"""Those who have no token that is good: counted by address, for the audit trail."""

from __future__ import annotations

from collections import Counter

from lodesman.answers.audit import AuditNote
from lodesman.api.wire import Scope

# Different addresses and tokens that are counted apart until they are noted.
_MOST = 1_000
_OTHERS = ("many addresses", "")
_SHOWN = 12


class Strangers:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._refused: Counter[tuple[str, str]] = Counter()

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
