"""Texts for people. A terminal obeys what it is shown: names, reasons and hosts go through `plain` first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lodesman.base.errors import counted as counted  # noqa: PLC0414 - texts for people, as the next
from lodesman.base.errors import plain as plain  # noqa: PLC0414
from lodesman.wire.vocabulary import JobState

if TYPE_CHECKING:
    from lodesman.wire.nodes import NodeBelow, Place
    from lodesman.wire.pilots import Pilot

_MINUTE, HOUR, _DAY = 60.0, 3_600.0, 86_400.0
NOTHING = "-"


def plain_lines(text: str) -> str:
    """As `plain`, with line ends and tabs."""
    return plain(text, keep="\n\t")


def span(seconds: float | None) -> str:
    """`3 s`, `12 min`, `5.5 h`, `3 d`; `-` for none."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    seconds = max(0.0, seconds)
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / HOUR:.1f} h"
    return f"{seconds / _DAY:.0f} d"


def age(then: float | None, now: float | None = None) -> str:
    """`0 s` for a time that is a little ahead."""
    if then is None or not math.isfinite(then):
        return NOTHING
    seconds = max(0.0, (time.time() if now is None else now) - then)
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else span(seconds)


def moment(then: float | None, *, utc: bool = False, now: float | None = None) -> str:
    """`14:03:22` of today, else with the day; local, or UTC with a Z."""
    if then is None or not math.isfinite(then):
        return NOTHING
    zone = UTC if utc else None
    try:
        at, today = (
            datetime.fromtimestamp(seconds, zone) for seconds in (then, time.time() if now is None else now)
        )
    except (OverflowError, ValueError, OSError):
        return NOTHING
    return at.strftime("%H:%M:%S" if at.date() == today.date() else "%Y-%m-%d %H:%M") + ("Z" if utc else "")


def iso(then: float, *, utc: bool = False) -> str:
    """'' if no clock shows it."""
    try:
        at = datetime.fromtimestamp(then, UTC) if utc else datetime.fromtimestamp(then).astimezone()
    except (OverflowError, ValueError, OSError):
        return ""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def number(value: float | None) -> str:
    """Thousands apart, at most three digits after the point."""
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if math.isfinite(value) else plain(value)


def hours(seconds: float) -> str:
    """To a tenth; below one to a thousandth."""
    value = seconds / HOUR
    return number(round(value, 1 if value >= 1 else 3))


def percent(part: float, whole: float = 1.0) -> str:
    """A part of a whole; `-` of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else NOTHING


def megabytes(value: float) -> str:
    """Memory for reading."""
    return f"{value:,.0f} MB"


def size(count: float | None) -> str:
    """Bytes in powers of 1024."""
    if count is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def joined(values: Iterable[object]) -> str:
    """In one line; `-` for none."""
    return ", ".join(plain(value) for value in values) or NOTHING


def shown(value: Any) -> str:
    """Any JSON value in a word or two."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return joined(shown(item) for item in value)
    if isinstance(value, Mapping):
        return joined(f"{plain(name)}={shown(item)}" for name, item in value.items())
    return plain(value)


def located(message: str, source: str = "", section: str = "", line: int = 0) -> str:
    """File, line, section, and what is wrong."""
    where = ", ".join(filter(None, (source, f"line {line}" if line else "", section)))
    return plain(f"{where}: {message}" if where else message)


def path_of(node: Place | NodeBelow | Pilot) -> str:
    """SITE, SITE/CE or SITE/CE/QUEUE."""
    return "/".join(filter(None, (node.site, node.ce, node.queue)))


def states(counts: Mapping[str, int]) -> str:
    """`3 Running, 1,200 Waiting`, in the order of a job's life."""
    order: dict[str, int] = {name: place for place, name in enumerate(STATES)}
    named = sorted(counts.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
    return ", ".join(f"{count:,} {plain(name)}" for name, count in named if count) or "none"


# In the order of a job's life.
STATES = tuple(JobState)
FINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.KILLED, JobState.DELETED})
