"""Jobs as people write them on the command line: `12`, `12-40`, `12,15,20-22`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click

from lodesman.errors import InvalidRequest, LodesmanError

_MOST_ID = 2**53 - 1
_MOST_RANGES = 1_000
_PART = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


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


def parse_ranges(words: Iterable[str], *, what: str = "job") -> tuple[Range, ...]:
    """The ranges in all words together: ascending, none touching another; of `what` they are.

    Raises InvalidRequest.
    """
    found = [_range(part, what) for word in words for part in word.split(",") if part.strip()]
    merged: list[Range] = []
    for one in sorted(found):
        if merged and one.first <= merged[-1].last + 1:
            merged[-1] = Range(merged[-1].first, max(merged[-1].last, one.last))
        else:
            merged.append(one)
    if len(merged) > _MOST_RANGES:
        raise InvalidRequest(f"{len(merged)} separate ranges are too many at once; at most {_MOST_RANGES}.")
    return tuple(merged)


def total(ranges: Sequence[Range]) -> int:
    """How many ids, all ranges together."""
    return sum(one.size for one in ranges)


def _range(part: str, what: str) -> Range:
    match = _PART.fullmatch(part.strip())
    if match is None:
        raise InvalidRequest(f"{part.strip()[:60]!r} is no {what}.", hint="Write 12, 12-40 or 12,15,20-22.")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise InvalidRequest(f"{first}-{last} runs backwards.", hint=f"Write {last}-{first}.")
    if not 1 <= first <= last <= _MOST_ID:
        raise InvalidRequest(
            f"There is no {what} {part.strip()}.", hint=f"{what.capitalize()} ids count from 1."
        )
    return Range(first, last)


class JobRanges(click.ParamType[Range, Any]):
    """A job or a range of jobs."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The ranges of one word. A usage error for what is none."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_ranges([value], what=self.name)
        except LodesmanError as fault:
            self.fail(str(fault), param, ctx)


class JobId(click.ParamType[int, Any]):
    """One job."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The id. A usage error for a range and for what is no id."""
        if isinstance(value, int):
            return value
        try:
            (one,) = parse_ranges([value])
        except (LodesmanError, ValueError):
            one = Range(0, 0)
        if not one.first or one.size != 1:
            self.fail(f"{value[:60]!r} is not one job; write its number.", param, ctx)
        return one.first


def merged(words: Iterable[tuple[Range, ...]]) -> tuple[Range, ...]:
    """The ranges of all arguments together, ascending. Raises InvalidRequest for too many."""
    return parse_ranges(str(one) for word in words for one in word)
