r"""Rows of SQLite with texts that are no UTF-8, as a disk or a hand may leave them.

The library gives up the query. Here such bytes stand as `\xff`: each reader finds the damage in its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw


class TextCursor(apsw.Cursor):
    """The rows of one query."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        damaged: Iterator[Any] | None = None
        while True:
            try:
                # The library goes on behind a row that it cannot give.
                yield from iter(super().__next__, None)
            except UnicodeDecodeError:
                if not self.is_readonly:
                    raise
            else:
                return
            # Nothing keeps the fault, whose frame keeps this query: half read, it would keep the connection at its moment.
            if damaged is None:
                damaged = iter(_damaged(self))
            yield next(damaged)

    def fetchone(self) -> Any:
        """None after the last."""
        try:
            return super().fetchone()
        except UnicodeDecodeError:
            if not self.is_readonly:
                raise
        return _damaged(self)[0]


def _damaged(cursor: apsw.Cursor) -> list[tuple[Any, ...]]:
    names = [f"c{number}" for number in range(len(cursor.description))]
    values = ", ".join(
        f"typeof({name}) = 'text', CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
        for name in names
    )
    query = f"WITH damaged({', '.join(names)}) AS ({cursor.expanded_sql}) SELECT {values} FROM damaged"
    damaged = []
    for row in list(cursor.connection.execute(query)):
        texts = [(value, is_text) for is_text, value in zip(row[::2], row[1::2], strict=True)]
        if any(is_text and not _is_whole(value) for value, is_text in texts):
            damaged.append(
                tuple(
                    value.decode(errors="backslashreplace") if is_text else value for value, is_text in texts
                )
            )
    return damaged


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
