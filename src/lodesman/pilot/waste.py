"""What ended payloads would lose should the server not get their output."""

from __future__ import annotations

from typing import Callable

from lodesman.pilot.protocol import AttemptKey

# What has been handed in is forgotten with this number of ended payloads, or when somebody asks.
_FORGETS_AT = 1_000


class PendingWaste:
    """Core-seconds by attempt. `unsent` says of which attempts the server does not have the output yet."""

    def __init__(self, unsent: Callable[[], set[AttemptKey]]) -> None:
        self._unsent = unsent
        self._seconds: dict[AttemptKey, float] = {}
        self._forgets_at = _FORGETS_AT

    def add(self, key: AttemptKey, seconds: float) -> None:
        """An attempt has ended."""
        self._seconds[key] = seconds
        if len(self._seconds) >= self._forgets_at:
            self._forget()
            self._forgets_at = 2 * len(self._seconds) + _FORGETS_AT

    def total(self) -> float:
        """Of all that are not handed in."""
        self._forget()
        return sum(self._seconds.values())

    def _forget(self) -> None:
        unsent = self._unsent()
        self._seconds = {key: seconds for key, seconds in self._seconds.items() if key in unsent}
