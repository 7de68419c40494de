"""Records, which readers of all three languages return; limits, and positions.

A `Record` holds text, 64-bit integers, finite floats, truth values, lists and nested records. Positions are paths:
`Memory`, `Requirements/Memory`, `Steps[2]/Name`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from lodesman.base.errors import SyntaxFault, line_column
from lodesman.wire.vocabulary import Form

# Attribute name -> value, order and spelling kept.
Record = dict[str, Any]
# Path -> (line, column), both from 1.
PositionMap = Mapping[str, tuple[int, int]]
NO_POSITIONS: Final[PositionMap] = MappingProxyType({})

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
NAME_LENGTH = 255
PATH_LENGTH = 200
# Records whose names depend on case: environment variables (http_proxy, HTTP_PROXY).
EXACT_CASE = frozenset({"environment"})

_BAD_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BAD_IN_TEXT = re.compile(r"[\x00\ud800-\udfff]")


class TextLimits(Struct, frozen=True, kw_only=True):
    """How large a description may be."""

    text_bytes: int = 1 << 20
    depth: int = 32  # Of nesting; at most 100, as the readers recurse.
    nodes: int = 250_000  # Values in all.


DEFAULT_LIMITS = TextLimits()
# For descriptions that list a value for each of up to 1,000,000 members.
ARRAY_LIMITS = TextLimits(text_bytes=8 << 20, nodes=2_500_000)


class Positions(PositionMap):
    """Positions, found at the first question."""

    def __init__(self, text: str, find: Callable[[str], Mapping[str, int]]) -> None:
        self._text = text
        self._find = find

    @cached_property
    def _offsets(self) -> Mapping[str, int]:
        return self._find(self._text)

    def __getitem__(self, path: str) -> tuple[int, int]:
        return line_column(self._text, self._offsets[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


class ParsedRecord(Struct, frozen=True, kw_only=True):
    """A description with the positions of attributes, and its language."""

    record: Record
    positions: PositionMap
    form: Form


class _Problem(Struct, frozen=True, kw_only=True):
    path: str
    message: str
    hint: str = ""  # What would be right.

    @property
    def sentence(self) -> str:
        return f"{shown(self.path, 80)}: {self.message}." if self.path else f"{self.message}."


def check_record(record: Record, positions: PositionMap, limits: TextLimits) -> None:
    """Raise SyntaxFault if a record cannot travel between the languages."""
    problem = find_problem(record, limits)
    if problem is None:
        return
    # A name may be the problem and have no position of its own: that of its record, or of its attribute, is near.
    path = problem.path
    near = (path, path.rpartition("[")[0], path.partition("[")[0])
    line, column = next((positions[candidate] for candidate in near if candidate in positions), (1, 1))
    raise SyntaxFault(problem.sentence, line=line, column=column, hint=problem.hint)


def find_problem(record: Record, limits: TextLimits = DEFAULT_LIMITS) -> _Problem | None:
    """The first value that cannot travel between the languages. Never recurses."""
    left = limits.nodes
    todo: list[tuple[str, Any, int]] = [("", record, 0)]
    while todo:
        path, container, depth = todo.pop()
        left -= len(container)
        if depth >= limits.depth:
            return _Problem(path=path, message=f"nested deeper than {limits.depth} levels")
        if left < 0:
            return _Problem(path=path, message=f"more than {limits.nodes} values in all")
        problem = _names_problem(path, container) if isinstance(container, dict) else None
        if problem:
            return problem
        for key, child in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(child, (dict, list)):
                todo.append((child_path(path, key), child, depth + 1))
            elif message := _scalar_problem(child):
                return _Problem(path=child_path(path, key), message=message)
    return None


def child_path(path: str, key: Any) -> str:
    """`key`: a name or an index. Long paths are cut: they are for people."""
    if isinstance(key, int):
        return f"{path[:PATH_LENGTH]}[{key}]"
    name = str(key)[:NAME_LENGTH]
    return f"{path[:PATH_LENGTH]}/{name}" if path else name


def shown(text: str, length: int = 40) -> str:
    """For errors: short, with unprintable characters escaped."""
    short = text if len(text) <= length else f"{text[: length - 3]}..."
    return short if short.isprintable() else ascii(short)[1:-1]


def text_of(value: Any) -> str:
    """As it stands in a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _scalar_problem(value: Any) -> str:
    if isinstance(value, str):
        return "text with a NUL or half of a surrogate pair" if _BAD_IN_TEXT.search(value) else ""
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        return "" if INT_MIN <= value <= INT_MAX else "a whole number beyond 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a number that is not finite"
    if value is None:
        return "null has no meaning here; leave the attribute out"
    return f"a value of type {type(value).__name__}, which no description can hold"


def _names_problem(path: str, record: Record) -> _Problem | None:
    exact = path.rpartition("/")[2].lower() in EXACT_CASE
    seen: dict[str, str] = {}
    for name in record:
        message, hint = name_problem(name), ""
        if not message:
            first = seen.setdefault(name if exact else name.lower(), name)
            if first != name:
                message = f"{shown(name)} is given twice, first as {shown(first)}"
                hint = "Attribute names do not depend on case."
        if message:
            return _Problem(path=child_path(path, name), message=message, hint=hint)
    return None


def name_problem(name: Any) -> str:
    """Why this cannot name an attribute; empty if it can."""
    if not isinstance(name, str):
        return "an attribute name that is not text"
    if not name:
        return "an empty attribute name"
    if len(name) > NAME_LENGTH:
        return f"an attribute name of {len(name)} characters; at most {NAME_LENGTH}"
    return "a control character in an attribute name" if _BAD_IN_NAME.search(name) else ""


def tidy(path: str) -> str:
    """Without `.` and doubled slashes; a slash at the end, which means a folder, stays."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return f"{'/' * path.startswith('/')}{'/'.join(parts)}{'/' * (path.endswith('/') and bool(parts))}"
