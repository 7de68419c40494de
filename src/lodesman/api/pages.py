"""Long lists in pages: how much there is, and where the next page begins.

A cursor names the last row of a page; clients give it as `after` and need not know what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from lodesman.errors import InvalidRequest

R = TypeVar("R")

_NUMBERS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


def page(rows: Sequence[R], limit: int, cursor_of: Callable[[R], object]) -> tuple[list[R], dict[str, Any]]:
    """At most `limit` rows, and what the answer says of the others: `more`, `cursor`."""
    some = list(rows[:limit])
    if len(rows) <= limit:
        return some, {}
    return some, {"more": True, "cursor": str(cursor_of(some[-1])) if some else ""}


def following(rows: Iterable[R], after: str, limit: int, cursor_of: Callable[[R], object]) -> list[R]:
    """The rows after a cursor, one more than `limit` if there are as many. Raises InvalidRequest if its row is gone."""
    left = iter(rows)
    if after and not any(str(cursor_of(row)) == after for row in left):
        raise InvalidRequest(
            "The row that `after` names is not in the list any more.", hint="Begin again without it."
        )
    return list(islice(left, limit + 1))


def numbers(after: str, count: int) -> tuple[int, ...] | None:
    """The numbers of a cursor that is made of them; None without one. Raises InvalidRequest."""
    if not after:
        return None
    found = tuple(map(int, after.split("."))) if _NUMBERS.fullmatch(after) else ()
    if len(found) != count:
        raise InvalidRequest("`after` is no cursor of this list.", hint="Give `cursor` of the page before.")
    return found
