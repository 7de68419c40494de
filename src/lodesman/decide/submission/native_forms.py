"""Texts of Grid Engine's values and what a description has instead: one canonical text for each meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from lodesman.base.errors import InvalidConfig
from lodesman.languages.gridengine.complexes import Complex
from lodesman.languages.gridengine.values import ComplexType, Value, is_numeric, read_value, write_value
from lodesman.languages.jobclass.attributes import truth
from lodesman.languages.jobs.record import INT_MAX, INT_MIN, text_of
from lodesman.languages.jobs.values import Mistake, whole

_MB: Final = 1 << 20
_MOST_CPU: Final = 10**9
_LOWEST, _HIGHEST, _LEVELS = -1023, 1024, 9  # of Grid Engine's priorities; levels above the usual one
_LONGEST: Final = 160  # no number that can be read has more characters
_INFINITY: Final = "INFINITY"
_WHOLE: Final = whole(INT_MIN, INT_MAX)
_RANGE: Final = re.compile(r"(\d{1,9})?(?:(-)(\d{1,9})?(?::(\d{1,9}))?)?", re.ASCII)
_TASKS: Final = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)


class Form(Struct, frozen=True, kw_only=True):
    """A value in two languages. `number` reads a text of Grid Engine (None: it is none), `text` writes a number (None: there
    is no text for it); without them the text is the same in both. What cannot be read stands as it is.
    """

    number: Callable[[str], int | None] | None = None
    text: Callable[[int], str | None] | None = None

    def to_record(self, text: str) -> str | int:
        """The value of a description."""
        found = self.number(text) if self.number else None
        return text if found is None else found

    def to_native(self, value: Any) -> str:
        """The canonical text for a value of a description."""
        try:
            found = self.text(_WHOLE(value)) if self.text else None
        except Mistake:
            found = None
        return text_of(value) if found is None else found

    def times(self, text: str, count: int) -> str | int:
        """The value of a description for `count` times the amount."""
        found = self.to_record(text)
        return found * count if isinstance(found, int) else found

    def share(self, value: Any, count: int) -> str:
        """The canonical text of one of `count` equal parts of a value of a description."""
        with suppress(Mistake):
            value = -(-_WHOLE(value) // count)
        return self.to_native(value)

    def canonical(self, text: str) -> str:
        """The text that stands for all with its meaning."""
        return self.to_native(self.to_record(text))

    def largest(self, one: str, other: str) -> str:
        """The larger of two amounts; no limit is more than any. One that cannot be read wins, so that it is seen."""

        def size(text: str) -> float:
            found = self.number(text) if self.number else None
            return math.inf if found is None or text == _INFINITY else found

        return max(one, other, key=size)


@lru_cache(maxsize=10_000)  # of few different texts; exact numbers are slow to read
def _value(kind: ComplexType, text: str) -> Value | None:
    try:
        return read_value(kind, text)
    except InvalidConfig:
        return None


def _amount(kind: ComplexType, text: str) -> int | float | None:
    found = _value(kind, text) if len(text) < _LONGEST else None
    if found is None or isinstance(found, str) or found < 0:
        return None
    return math.inf if found == math.inf else math.ceil(found)


def _seconds(infinite: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        found = _amount(ComplexType.TIME, text)
        return infinite if found == math.inf else None if found is None else int(found)

    return read


def _megabytes(text: str) -> int | None:
    found = _amount(ComplexType.MEMORY, text)
    return None if found is None else 0 if found == math.inf else -(-int(found) // _MB)


def _memory_text(megabytes: int) -> str | None:
    return write_value(ComplexType.MEMORY, megabytes * _MB) if megabytes >= 0 else None


def number_in(text: str) -> int | None:
    """A whole number that is written with digits."""
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) else None


def smallest_slots(text: str) -> int | None:
    """The smallest number of a range of slots, as in `1-4,8`; an open range begins with 1. None: it is no range."""
    found = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None or not match[0]:
            return None
        found.append(int(match[1] or 1))
    return min(found)


def _level(text: str) -> int | None:
    """0 below the usual priority, 1 for it, and the nine steps above it."""
    priority = number_in(text)
    if priority is None or not _LOWEST <= priority <= _HIGHEST:
        return None
    return 0 if priority < 0 else 1 + -(-priority * _LEVELS // _HIGHEST)


def _priority(level: int) -> str | None:
    """The highest priority of a level, but for 0 the lowest."""
    if not 0 <= level <= _LEVELS + 1:
        return None
    return str(_HIGHEST * (level - 1) // _LEVELS if level else _LOWEST)


_ATTEMPTS: Final = {"y": 3, "n": 1}
_TEXT: Final = Form()
_TIME: Final = Form(number=_seconds(0), text=lambda seconds: str(seconds) if seconds else _INFINITY)
FORMS: Final[Mapping[str, Form]] = {
    **dict.fromkeys(("CMDNAME", "N", "P", "pe_name"), _TEXT),
    "p": Form(number=_level, text=_priority),
    "pe_range": Form(number=smallest_slots, text=str),
    "r": Form(number=lambda text: _ATTEMPTS.get(truth(text)), text=lambda most: "n" if most == 1 else "y"),
    "h_rt": _TIME,
    "h_cpu": Form(number=_seconds(_MOST_CPU), text=str),
    "h_vmem": Form(number=_megabytes, text=_memory_text),
}
"""By attribute, and by resource of `l_hard`."""


def amount_text(resource: Complex | None, text: str | None) -> str | None:
    """The canonical text of a request; a truth value that has none is TRUE. What cannot be read stands as it is."""
    if resource is None:
        return text
    if text is None:
        return "TRUE" if resource.kind is ComplexType.BOOL else None
    if not is_numeric(resource.kind) or len(text) >= _LONGEST:
        return text.lower() if resource.kind is ComplexType.HOST else text
    found = _value(resource.kind, text)
    return text if found is None else write_value(resource.kind, found)


def task_numbers(text: str) -> tuple[int, int, int] | None:
    """First, last and step of `first-last:step`; the last is one that the steps meet."""
    found = _TASKS.fullmatch(text)
    first, last, step = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    last, step = last or first, step or 1
    if not 0 < first <= last:
        return None
    last -= (last - first) % step
    return first, last, step if last > first else 1


def canonical_tasks(text: str) -> str:
    """As `first-last:step`; a text that is none stands as it is."""
    found = task_numbers(text)
    return "{}-{}:{}".format(*found) if found else text


def tasks_of(parameters: Mapping[str, Any]) -> str:
    """The tasks of the attributes of parameters, by lower-case name: their numbers if they rise from at least 1, else 1 to
    how many there are; "" without any, or if there is no such number.
    """
    given = next(
        (value for name, value in parameters.items() if name.partition(".")[0] == "parameters"), None
    )
    plain = parameters.get("parameters")
    try:
        count = len(given) if isinstance(given, list) else _WHOLE(given)
        parts = {name: _WHOLE(parameters.get(f"parameter{name}", usual)) for name, usual in _USUAL.items()}
    except Mistake:
        return "" if given is None or isinstance(given, list) else text_of(given)
    first, step = parts["start"], parts["step"]
    if isinstance(plain, list) or plain is None or first < 1 or step < 1 or parts["factor"] != 1:
        first, step = 1, 1
    return canonical_tasks(f"{first}-{first + (count - 1) * step}:{step}") if count > 0 else text_of(given)


_USUAL: Final = {"start": 1, "step": 0, "factor": 1}
