"""Ids, states and lengths of time as users write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, Final, NamedTuple

from lodesman.base.errors import InvalidRequest
from lodesman.wire.vocabulary import JobState

_MOST_ID: Final = 2**53 - 1
MOST_RANGES: Final = 1_000
_PART = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_SPAN_PART = re.compile(r"[0-9.]+ ?[a-zA-Z]+")
_SPAN_PARTS = re.compile(r"(?:[0-9.]+ ?[a-zA-Z]+ ?){2,5}")
_AT_ONCE = "a job is Waiting, or Held, as soon as it is submitted"
# Of DIRAC's states those that no job is ever in here, and what there is instead (ADR 0026).
ELSEWHERE = {
    "Submitting": _AT_ONCE,
    "Received": _AT_ONCE,
    "Checking": _AT_ONCE,
    "Scouting": f"no scout jobs are sent, and {_AT_ONCE}",
    "Staging": f"no data are staged, and {_AT_ONCE}",
    "Rescheduled": "a job that goes back to its task queue is Waiting again",
    "Completed": "a job is Completing while its output is handed in, and then Done",
}


class Range(NamedTuple):
    """Job ids from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many ids."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def parse_ranges(words: Iterable[str], *, what: str = "job", most: int = MOST_RANGES) -> tuple[Range, ...]:
    """Ascending, each id once; joined only where they overlap, so that each has its answer. Raises InvalidRequest, also for
    an empty word.
    """
    merged = join_ranges(span for word in words for span in _ranges(word, what))
    if len(merged) > most:
        raise InvalidRequest(
            f"{len(merged)} separate {what}s or ranges are given; the maximum number is {most}.",
            hint="Write those that follow one another as a range: 12-40.",
        )
    return tuple(merged)


def join_ranges(ranges: Iterable[Range], *, beside: bool = False) -> list[Range]:
    """Ascending, overlapping ones joined; `beside`: neighbours, too."""
    joined: list[Range] = []
    for span in sorted(ranges):
        if joined and span.first <= joined[-1].last + beside:
            joined[-1] = Range(joined[-1].first, max(joined[-1].last, span.last))
        else:
            joined.append(span)
    return joined


def _ranges(word: str, what: str) -> list[Range]:
    ranges = [_range(part, what) for part in word.split(",") if part.strip()]
    if not ranges:
        raise InvalidRequest(f"{word[:60]!r} names no {what}.", hint="Write 12, 12-40 or 12,15,20-22.")
    return ranges


def _range(part: str, what: str) -> Range:
    match = _PART.fullmatch(part.strip())
    if match is None:
        raise InvalidRequest(
            f"{part.strip()[:60]!r} is not a {what}.", hint="Write 12, 12-40 or 12,15,20-22."
        )
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise InvalidRequest(f"{first}-{last} runs backwards.", hint=f"Write {last}-{first}.")
    if not 1 <= first <= last <= _MOST_ID:
        raise InvalidRequest(
            f"There is no {what} {part.strip()}.", hint=f"{what.capitalize()} ids count from 1."
        )
    return Range(first, last)


def total(ranges: Sequence[Range]) -> int:
    """How many ids, all ranges together."""
    return sum(span.size for span in ranges)


def id_of(number: Any) -> int:
    """Raises InvalidRequest for what is no id."""
    try:
        value = 0 if isinstance(number, bool) else index(number)
    except TypeError:
        value = 0
    if not 1 <= value <= _MOST_ID:
        hint = 'An id is a whole number from 1 on; several: client.jobs("12-511") or client.jobs([12, 15]).'
        raise InvalidRequest(f"{str(number)[:60]!r} is not the id of a job.", hint=hint)
    return int(value)


def state_of(word: str) -> JobState:
    """Raises InvalidRequest, for a state of DIRAC with the one here."""
    name = word.strip().capitalize()
    if name in ELSEWHERE:
        raise InvalidRequest(f"{name} is a state of DIRAC, not of this program: {ELSEWHERE[name]}.")
    for state in JobState:
        if state.value == name:
            return state
    raise InvalidRequest(f"{word.strip()[:60]!r} is not a state.", hint=f"There are {', '.join(JobState)}.")


def duration_of(word: str) -> float:
    """Seconds of 90s, 10min, 2h30m, 3d, 1w or a bare number. Raises ValueError."""
    from lodesman.decide.resources.model import BadValue
    from lodesman.decide.resources.units import number_in

    parts = _SPAN_PART.findall(word) if _SPAN_PARTS.fullmatch(word) else [word]
    try:
        seconds = float(sum(number_in(part, "s") for part in parts))
    except (BadValue, OverflowError):
        seconds = 0.0
    if not 0.0 < seconds < 1e10:
        raise ValueError(f"{word[:60]!r} is not a time; write 90s, 30min, 2h30m or 3d.")
    return seconds


def seconds_of(value: Any) -> float:
    """A number of seconds, or a text. Raises InvalidRequest."""
    if isinstance(value, str):
        try:
            return duration_of(value)
        except ValueError as fault:
            raise InvalidRequest(f"timeout: {fault}") from None
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if math.isnan(seconds):
        hint = 'Give seconds, or a text as "10m".'
        raise InvalidRequest(f"timeout: {str(value)[:60]!r} is not a time.", hint=hint)
    return seconds
