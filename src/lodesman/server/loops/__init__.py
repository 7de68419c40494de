"""What the background process does: direct, launch, census, refresh, upkeep; each a `tick(now)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

__all__ = ["portions"]

_T = TypeVar("_T")


def portions(rows: Iterable[_T], most: int) -> Iterator[list[_T]]:
    """The rows in their order, at most this many at once."""
    left = iter(rows)
    while found := list(islice(left, most)):
        yield found
