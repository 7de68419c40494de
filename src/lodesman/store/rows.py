"""Writing many rows with few statements.

Each step of a statement gives other threads the interpreter, and the writer must wait to have it back: a batch
of claims that steps once for each row waits longer than it works.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import apsw

# Rows of one statement, most first. Few widths, so that the statements stay prepared; below SQLite's 32,766 values.
WIDTHS = (64, 16, 4)
VALUES = re.compile(r"\bVALUES\s*(\(\?(?:,\?)*\))\s*\Z")


def write_rows(db: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run `sql` for each row; an INSERT of one row is widened to take many at a time, in the same order."""
    values = _values(sql) if len(rows) >= WIDTHS[-1] else None
    if values is None:
        db.executemany(sql, rows)
        return
    left = iter(rows)
    count = len(rows)
    for width in WIDTHS:
        while count >= width:
            db.execute(_widened(sql, width), tuple(chain.from_iterable(islice(left, width))))
            count -= width
    if count:
        db.executemany(sql, left)


@lru_cache(maxsize=256)
def _values(sql: str) -> str | None:
    """The list of values of an INSERT of one row; None for any other statement."""
    found = VALUES.search(sql)
    return found[1] if found else None


@lru_cache(maxsize=1024)
def _widened(sql: str, width: int) -> str:
    return sql + f",{_values(sql)}" * (width - 1)
