"""What the hot process hears of the background process: it says every few seconds that it lives, and what fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# It says a word every 5 seconds. The first one may take longer: it has a world to read.
SILENT_SECONDS: Final = 30.0
START_SECONDS: Final = 120.0
# Ended so often within so long: it is started again in vain.
MANY_RESTARTS: Final = 3
RESTARTS_WITHIN: Final = 900.0


@dataclass(slots=True)
class BackgroundWord:
    """Times by the clock that never jumps. `since`: when a first word was awaited. Belongs to the event loop."""

    since: float
    heard_at: float | None = None
    failing: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    _ended_at: deque[float] = field(default_factory=lambda: deque(maxlen=MANY_RESTARTS))

    def heard(self, ticks: float, failing: Mapping[str, str]) -> None:
        """It lives; `failing`: its steps that do not succeed, with the last fault."""
        self.heard_at, self.failing = ticks, failing

    def ended(self, ticks: float) -> None:
        """The process ended and will be started again."""
        self.restarts += 1
        self._ended_at.append(ticks)

    @property
    def heard_or_since(self) -> float:
        """When it was last heard of, or since when a first word is awaited."""
        return self.since if self.heard_at is None else self.heard_at

    def standing(self, ticks: float) -> str:
        """ok, starting, failing (some of its steps), restarting (again and again) or silent."""
        if ticks - self.heard_or_since > (START_SECONDS if self.heard_at is None else SILENT_SECONDS):
            return "silent"
        if len(self._ended_at) == MANY_RESTARTS and ticks - self._ended_at[0] < RESTARTS_WITHIN:
            return "restarting"
        if self.heard_at is None:
            return "starting"
        return "failing" if self.failing else "ok"

    def in_short(self, ticks: float) -> dict[str, Any]:
        """As JSON values; the faults themselves are for the log."""
        age = None if self.heard_at is None else ticks - self.heard_at
        return {
            "standing": self.standing(ticks),
            "age_seconds": age,
            "restarts": self.restarts,
            "failing": sorted(self.failing),
        }
