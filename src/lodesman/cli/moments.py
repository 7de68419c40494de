"""Times as people write them: how long, and when."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from functools import partial
from typing import Final

from lodesman.cli.arguments import Parsed, duration_of

_DAYS: Final = {"today": 0, "yesterday": 1}
_CLOCK: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_FORMS: Final = '2h30m or 7d (ago), now, today, yesterday, 08:00, 2026-12-01 or "2026-12-01 08:00"'


def moment_of(word: str) -> float:
    """UNIX seconds of 2026-12-01, "2026-12-01 08:00", with a zone (Z, +01:00) or in local time. Raises ValueError."""
    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f'{word[:60]!r} is not a moment; write "2026-12-01 08:00".') from None


def past_moment(word: str, *, utc: bool = False) -> float:
    """UNIX seconds of a moment, or of how long ago it was. `utc`: days and clock times without a zone are of UTC, not local.
    Raises ValueError.
    """
    text = " ".join(word.lower().split())
    if not text.isdigit():
        with suppress(ValueError):
            return time.time() - duration_of(text)
    with suppress(ValueError, OverflowError):
        return _by_clock(text, utc=utc)
    raise ValueError(f"{word[:60]!r} is no time; write {_FORMS}.")


def _by_clock(text: str, *, utc: bool) -> float:
    """Raises ValueError, OverflowError."""
    zone = UTC if utc else None
    now = datetime.fromtimestamp(time.time(), zone)
    is_clock = _CLOCK.fullmatch(text) is not None
    day, _, clock = ("", "", text) if is_clock else text.partition(" ")
    if text == "now":
        return now.timestamp()
    if not is_clock and day not in _DAYS:
        at = datetime.fromisoformat(text.upper())
        return at.replace(tzinfo=at.tzinfo or zone).timestamp()
    at = datetime.combine(now.date() - timedelta(_DAYS.get(day, 0)), _time_of(clock), zone)
    # A clock shows each time every day: the last one that was.
    return (at if day or at <= now else at - timedelta(1)).timestamp()


def _time_of(clock: str) -> clock_time:
    """Raises ValueError."""
    return clock_time.fromisoformat(f"0{clock}" if clock[1:2] == ":" else clock or "00:00")


PAST: Final = Parsed("time", past_moment)
PAST_UTC: Final = Parsed("time", partial(past_moment, utc=True))
