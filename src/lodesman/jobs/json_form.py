"""JSON as a form of job descriptions: one object; what JSON knows and the other forms do not is refused.

msgspec does the reading. It keeps the last of two equal names and tells no positions, so the places of
names are found by a scan of their own, and only when somebody needs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from lodesman.errors import SyntaxFault
from lodesman.jobs.parsed import (
    ARRAY_LIMITS,
    DEFAULT_LIMITS,
    Limits,
    ParsedRecord,
    as_text,
    check_size,
    child_path,
    fault_at,
    find_problem,
    line_column,
    shown,
)
from lodesman.jobs.spec import Record

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}:,]|[^][{}:,"\s]++', re.DOTALL)
# What ends a name: a quote before a colon. Inside a string it stands behind a backslash, and then the
# count is too high, never too low.
_NAME_END = re.compile(r'"\s*+:')


class JsonPositions(Mapping[str, tuple[int, int]]):
    """Path -> (line, column); the text is scanned at the first question."""

    __slots__ = ("_found", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, int] | None = None

    def _offsets(self) -> dict[str, int]:
        if self._found is None:
            self._found = {}
            for name in _names(self._text):
                self._found.setdefault(name.path, name.offset)
        return self._found

    def __getitem__(self, path: str) -> tuple[int, int]:
        return line_column(self._text, self._offsets()[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets())

    def __len__(self) -> int:
        return len(self._offsets())


def read_json(text: str | bytes, *, limits: Limits = DEFAULT_LIMITS) -> ParsedRecord:
    """Read one description. Raises SyntaxFault or TooLarge."""
    check_size(text, limits)
    text = as_text(text)
    record = _decoded(text, limits)
    if not isinstance(record, dict):
        raise _no_object(text, record)
    positions = JsonPositions(text)
    problem = find_problem(record, limits)
    if problem:
        # A name can be the problem and then has no path of its own: its record is near enough.
        line, column = positions.get(problem.path, positions.get(problem.path.rpartition("[")[0], (1, 1)))
        raise SyntaxFault(problem.sentence, line=line, column=column, hint=problem.hint)
    if len(_NAME_END.findall(text)) != _count_names(record):
        _refuse_twice(text)
    return ParsedRecord(record=record, positions=positions, form="json")


def _no_object(text: str, value: Any) -> SyntaxFault:
    what, hint = "a description is one JSON object", '{"Executable": ...}'
    if isinstance(value, list):
        what = f"{what}, and this is a list"
        hint = "Write each job into a file of its own, or jobs that are alike as one, with Parameters."
    return fault_at(text, _first(text), what, hint=hint)


def write_json(record: Record) -> str:
    """A text that reads as exactly this record. Raises InvalidJob for values that no description has."""
    problem = find_problem(record, ARRAY_LIMITS)
    if problem:
        raise problem.as_invalid_job()
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def _decoded(text: str, limits: Limits) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise fault_at(
            text, _too_deep(text, limits.depth), f"nested deeper than {limits.depth} levels"
        ) from None
    except msgspec.MsgspecError:
        return _read_again(text)


def _read_again(text: str) -> Any:
    """Read what msgspec refused, for a better message; `find_problem` finds what Python lets pass."""
    try:
        return json.loads(text)
    except RecursionError:
        raise fault_at(text, 0, "nested too deep") from None
    except json.JSONDecodeError as error:
        message = f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}"
        raise fault_at(text, error.pos, message, hint="This is not JSON.") from None
    except ValueError:  # a whole number with thousands of digits
        found = re.search(r"[0-9]{4000}", text)
        at = found.start() if found else 0
        raise fault_at(text, at, "a whole number beyond 64 bits") from None


def _first(text: str) -> int:
    return len(text) - len(text.lstrip())


def _too_deep(text: str, depth: int) -> int:
    level = 0
    for match in _TOKEN.finditer(text):
        level += (match[0] in "[{") - (match[0] in "]}")
        if level > depth:
            return match.start()
    return 0


def _count_names(record: Record) -> int:
    count = 0
    todo: list[Any] = [record]
    while todo:
        container = todo.pop()
        if isinstance(container, dict):
            count += len(container)
            container = container.values()
        todo += [child for child in container if isinstance(child, (dict, list))]
    return count


def _refuse_twice(text: str) -> None:
    for name in _names(text):
        if name.first >= 0:
            line, column = line_column(text, name.first)
            message = f"{shown(name.name)} is given twice, first at line {line}, column {column}"
            raise fault_at(text, name.offset, message, hint="Keep one of them.")


class _Name(NamedTuple):
    """One name: its path, where it stands, and where its record had it before (-1: nowhere)."""

    path: str
    name: str
    offset: int
    first: int


class _Open:
    """An open bracket: its path, the names of a record so far, or the index in a list (-1: a record)."""

    __slots__ = ("index", "path", "seen")

    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.index = index
        self.seen: dict[str, int] = {}


def _names(text: str) -> Iterator[_Name]:
    """Every name of a text that is JSON."""
    stack: list[_Open] = []
    path = ""
    last: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == ":" and last:
            name, here = json.loads(last[0]), stack[-1]
            path = child_path(here.path, name)
            yield _Name(path, name, last.start(), here.seen.get(name, -1))
            here.seen[name] = last.start()
        elif mark in "[{":
            if stack and stack[-1].index >= 0:
                path = child_path(stack[-1].path, stack[-1].index)
            stack.append(_Open(path, -1 if mark == "{" else 0))
        elif mark in "]}":
            stack.pop()
        elif mark == "," and stack[-1].index >= 0:
            stack[-1].index += 1
        last = token
