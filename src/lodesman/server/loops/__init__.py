"""The steps of the background process: direct, launch, census, refresh, upkeep; each a `tick(now)`.

Decisions: docs/adr/README.md, Processes and loops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

__all__ = ["Passes", "portions"]

_T = TypeVar("_T")


def portions(rows: Iterable[_T], most: int) -> Iterator[list[_T]]:
    """Lists of at most `most` rows."""
    left = iter(rows)
    while portion := list(islice(left, most)):
        yield portion


@dataclass(slots=True, kw_only=True)
class Passes:
    """Work through everything, again and again, in steps of about `work_seconds`."""

    work_seconds: float = 0.05
    ticker: Callable[[], float] = time.monotonic  # seconds of a clock that is never set
    _work: Iterator[None] | None = None
    _due: float | None = None

    def rest(self) -> float:
        """Seconds until a pass is due; 0 within one, and before the first step."""
        return 0.0 if self._work is not None or self._due is None else self._due - self.ticker()

    def work(self, begin: Callable[[], Iterator[None]], seconds: float, *, first: float = 0.0) -> None:
        """Work a little if a pass is due: `first` seconds after the start, later `seconds` after the last step."""
        at = self.ticker()
        if self._due is None:
            self._due = at + first
        if self._work is None and at >= self._due:
            self._work = begin()
        if self._work is None:
            return
        # Should a step fail, the next pass finds again what this one left.
        work, self._work, self._due = self._work, None, at + seconds
        for _ in work:
            if self.ticker() - at >= self.work_seconds:
                self._work = work
                return
