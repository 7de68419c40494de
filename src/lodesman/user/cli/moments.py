"""Times as people write them: how long, and when."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from functools import partial
from typing import Final

from lodesman.user.cli.arguments import Parsed, duration_of

_DAYS: Final = {"today": 0, "yesterday": 1}
_COMING_DAYS: Final = {"today": 0, "tomorrow": -1}
_COMING_FORMS: Final = '+2h30m, 08:00, tomorrow, "2026-12-01 08:00" or with a zone "2026-12-01 08:00+01:00"'
_CLOCK: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_FORMS: Final = '2h30m or 7d (ago), now, today, yesterday, 08:00, 2026-12-01 or "2026-12-01 08:00"'


def coming_moment(word: str) -> float:
    """UNIX seconds of a moment, or of how long it is until then (+2h). A clock time is the next one. Raises ValueError."""
    text = " ".join(word.lower().split())
    if text.startswith("+"):
        return time.time() + duration_of(text[1:].strip())
    with suppress(ValueError, OverflowError):
        return _by_clock(text, utc=False, days=_COMING_DAYS)
    raise ValueError(f"{word[:60]!r} is not a moment; write {_COMING_FORMS}.")


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


def _by_clock(text: str, *, utc: bool, days: Mapping[str, int] = _DAYS) -> float:
    """`days`: words for some, and how long ago they were. Raises ValueError, OverflowError."""
    zone = UTC if utc else None
    now = datetime.fromtimestamp(time.time(), zone)
    is_clock = _CLOCK.fullmatch(text) is not None
    day, _, clock = ("", "", text) if is_clock else text.partition(" ")
    if text == "now":
        return now.timestamp()
    if not is_clock and day not in days:
        at = datetime.fromisoformat(text.upper())
        return at.replace(tzinfo=at.tzinfo or zone).timestamp()
    at = datetime.combine(now.date() - timedelta(days.get(day, 0)), _time_of(clock), zone)
    # A clock shows each time every day: the last one that was, or the next one.
    if not day and days is _COMING_DAYS:
        return (at if at > now else at + timedelta(1)).timestamp()
    return (at if day or at <= now else at - timedelta(1)).timestamp()


def _time_of(clock: str) -> clock_time:
    """Raises ValueError."""
    return clock_time.fromisoformat(f"0{clock}" if clock[1:2] == ":" else clock or "00:00")


COMING: Final = Parsed("moment", coming_moment)
PAST: Final = Parsed("time", past_moment)
PAST_UTC: Final = Parsed("time", partial(past_moment, utc=True))
