"""Times as people write them: how long, and when."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime


def duration(word: str) -> float:
    """Seconds of 90s, 30min, 2h, 3d, 1w; a bare number counts seconds. Raises ValueError for other words."""
    from lodesman.resources.model import BadValue
    from lodesman.resources.units import number_in

    try:
        seconds = float(number_in(word, "s"))
    except (BadValue, OverflowError):
        seconds = 0.0
    if not 0.0 < seconds < 1e10:
        raise ValueError(f"{word[:60]!r} is not a time; write 90s, 30min, 2h or 3d.")
    return seconds


def moment_of(word: str) -> float:
    """UNIX seconds of 2026-12-01, "2026-12-01 08:00", with a zone (Z, +01:00) or in local time. Raises ValueError."""
    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f'{word[:60]!r} is not a moment; write "2026-12-01 08:00".') from None


def past_moment(word: str) -> float:
    """UNIX seconds of a moment, or of how long ago it was: 2h, 7d. Raises ValueError."""
    if not word.isdigit():
        with suppress(ValueError):
            return time.time() - duration(word)
    try:
        return moment_of(word)
    except ValueError:
        raise ValueError(f'{word[:60]!r} is no time; write 2h, 7d or "2026-12-01 08:00".') from None
