"""Numbers, durations and untrusted texts in short form; None is "unknown". Pure."""

from __future__ import annotations

import math
from typing import Literal

UNKNOWN = "unknown"
_STEPS = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"))


def number(value: float | None, width: int, *, digits: int = 0) -> str:
    """A number with thousands separated, in powers of ten if it would not fit into `width`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    return text if len(text) <= width else f"{value:.1e}"


def duration(seconds: float | None) -> str:
    """A time in a unit that suits it: `0.25 s`, `74 s`, `12.5 min`, `5.1 h`, `3.2 d`; negative is unknown."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    for limit, unit_seconds, unit in _STEPS:
        if seconds < limit:
            return f"{seconds / unit_seconds:.{0 if unit == 's' else 1}f} {unit}"
    return f"{number(seconds / 86_400, 8, digits=1)} d"


def percent(part: float | None, whole: float) -> str:
    """Part of the whole; unknown of nothing."""
    if part is None or not whole:
        return UNKNOWN
    return f"{100 * part / whole:.1f} %"


def plain(text: str) -> str:
    """One line without control characters: other white space becomes a blank, the rest `?`."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def clip(text: str, width: int, *, keep: Literal["start", "ends", "end"] = "start") -> str:
    """A plain text cut to `width`, with three dots for the part that was cut.

    `start` keeps the start, `end` the end, `ends` both.
    """
    text = plain(text)
    if len(text) <= width:
        return text
    if width <= 3:
        return "." * max(width, 0)
    room = width - 3
    first = {"start": room, "ends": room // 2, "end": 0}[keep]
    return text[:first] + "..." + text[len(text) - (room - first) :]
