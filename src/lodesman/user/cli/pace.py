"""When a command that waits says how it stands where no terminal shows it: in a log, a pipe, a batch script."""

from __future__ import annotations

_FIRST_SECONDS, _MOST_SECONDS, _LIFE_SECONDS = 10.0, 60.0, 600.0


class Pace:
    """A line after ten seconds, the next ones at growing distances up to a minute, each only if it says something else; and
    every ten minutes in any case, as a sign of life. Times are of one clock, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._last, self._rest, self._said = now, _FIRST_SECONDS, ""

    def is_due(self, now: float, words: str) -> bool:
        """Whether these words shall be said now: then they are taken as said."""
        silent = now - self._last
        if silent < (_LIFE_SECONDS if words == self._said else self._rest):
            return False
        self._last, self._said = now, words
        self._rest = min(2 * self._rest, _MOST_SECONDS)
        return True

    def seconds_left(self, now: float) -> float:
        """Until a change may be said."""
        return max(0.0, self._last + self._rest - now)
