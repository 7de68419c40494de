"""Times and sizes with their units, as people write them: "90 min", "1h30m", "1-12:00:00", "4 GB".

Sizes are binary, as batch systems count memory: 1 GB is 1024 MB of 2^20 bytes. What is no whole number is rounded up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from lodesman.languages.jobs.values import Reader, whole

_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,5}):([0-5][0-9]):([0-5][0-9])\Z")
_PARTS = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,9})?[ ]?[A-Za-z]+[ ]?)+\Z")
_PART = re.compile(r"([0-9.]+) ?([A-Za-z]+)")
_TIMES: Final = {
    word: seconds
    for seconds, words in (
        (1, "s sec second seconds"), (60, "m min minute minutes"), (3600, "h hour hours"),
        (86_400, "d day days"), (604_800, "w week weeks"),
    )
    for word in words.split()
}  # fmt: skip
_SIZES: Final = {
    f"{letter}{rest}": Fraction(1024) ** power
    for power, letter in enumerate("kmgtp", -1)
    for rest in ("", "b", "ib")
}


def seconds(least: int, most: int) -> Reader:
    """Whole seconds within bounds, also as a text with units or as DAYS-HOURS:MINUTES:SECONDS (or without days)."""
    return _measured(least, most, _TIMES)


def megabytes(least: int, most: int) -> Reader:
    """Whole MB within bounds, also as a text with a unit."""
    return _measured(least, most, _SIZES)


def _measured(least: int, most: int, units: Mapping[str, int | Fraction]) -> Reader:
    plain = whole(least, most)

    def read(value: Any) -> int:
        found = _amount(value.strip(), units) if isinstance(value, str) else None
        number: int = plain(value if found is None else found)
        return number

    return read


def _amount(text: str, units: Mapping[str, int | Fraction]) -> int | None:
    """The number that a text with units is; None for any other text."""
    if units is _TIMES and (clock := _CLOCK.match(text)):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not _PARTS.match(text):
        return None
    parts = [(Fraction(number), units.get(unit.lower())) for number, unit in _PART.findall(text)]
    known = [number * factor for number, factor in parts if factor is not None]
    is_one = len(parts) == 1 or units is _TIMES
    return math.ceil(sum(known)) if is_one and len(known) == len(parts) else None
