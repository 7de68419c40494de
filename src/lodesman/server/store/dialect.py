"""The SQL that databases spell differently, as SQLite has it; `store.spelling` translates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

# A list of numbers, texts, pairs or triples, given as one parameter: see `keys`.
GIVEN = "(SELECT value FROM json_each(?))"
GIVEN_TEXTS = "(SELECT value AS text FROM json_each(?))"
GIVEN_PAIRS = "(SELECT value ->> '$[0]', value ->> '$[1]' FROM json_each(?))"
GIVEN_TEXT_PAIRS = "(SELECT value ->> '$[0]' AS one, value ->> '$[1]' AS other FROM json_each(?))"
GIVEN_TEXT_TRIPLES = "(SELECT value ->> '$[0]', value ->> '$[1]', value ->> '$[2]' FROM json_each(?))"
# Joins the tables in the order in which they are written.
JOIN_IN_ORDER = "CROSS JOIN"


def keys(values: Iterable[Any]) -> str:
    """The parameter for one of these lists."""
    return msgspec.json.encode(list(values)).decode()


def by_index(name: str) -> str:
    """Stands after a table."""
    return f"INDEXED BY {name}"


def greatest(*values: str) -> str:
    """None of the values may be NULL."""
    return f"max({', '.join(values)})"


def least(*values: str) -> str:
    """None of the values may be NULL."""
    return f"min({', '.join(values)})"


def member(column: str, *path: str) -> str:
    """A member of a JSON text."""
    return f"{column} ->> '$.{'.'.join(path)}'"


def member_if_whole(column: str, *path: str) -> str:
    """NULL for a damaged text; PostgreSQL fails there."""
    return f"CASE WHEN json_valid({column}) THEN {member(column, *path)} END"


def holds_text(column: str) -> str:
    """Whether a column contains a text."""
    return f"instr({column}, ?) > 0"
