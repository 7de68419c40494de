"""JSON as a form of job descriptions: one object; what JSON knows and the other forms do not is refused.

msgspec does the reading. It keeps the last of two equal names and reports no positions; a scan of its own finds
the positions of names, and only when they are needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from lodesman.errors import SyntaxFault
from lodesman.jobs.record import (
    ParsedRecord,
    Positions,
    Record,
    TextLimits,
    check_record,
    child_path,
    fault_at,
    line_column,
    shown,
)

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}:,]|[^][{}:,"\s]++', re.DOTALL)
# What ends a name: a quote before a colon. Inside a string it stands behind a backslash, and then the
# count is too high, never too low.
_NAME_END = re.compile(r'"\s*+:')


def read_json(text: str, limits: TextLimits) -> ParsedRecord:
    """Read one description. Raises SyntaxFault."""
    record = _decoded(text, limits)
    if not isinstance(record, dict):
        what, hint = "a description is one JSON object", '{"Executable": ...}'
        if isinstance(record, list):
            what = f"{what}, and this is a list"
            hint = "Write each job into a file of its own, or jobs that are alike as one, with Parameters."
        raise fault_at(text, len(text) - len(text.lstrip()), what, hint=hint)
    positions = Positions(text, _offsets)
    check_record(record, positions, limits)
    if len(_NAME_END.findall(text)) != _count_names(record):
        _offsets(text, refuse_twice=True)
    return ParsedRecord(record=record, positions=positions, form="json")


def write_json(record: Record) -> str:
    """A text that reads as exactly this record."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def _decoded(text: str, limits: TextLimits) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep(text, limits.depth) from None
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


def _too_deep(text: str, depth: int) -> SyntaxFault:
    level = 0
    for match in _TOKEN.finditer(text):
        level += (match[0] in "[{") - (match[0] in "]}")
        if level > depth:
            break
    return fault_at(text, match.start(), f"nested deeper than {depth} levels")


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


def _offsets(text: str, *, refuse_twice: bool = False) -> dict[str, int]:
    first: dict[str, int] = {}
    for path, name, offset in _names(text):
        if first.setdefault(path, offset) != offset and refuse_twice:
            line, column = line_column(text, first[path])
            message = f"{shown(name)} is given twice, first at line {line}, column {column}"
            raise fault_at(text, offset, message, hint="Keep one of them.")
    return first


def _names(text: str) -> Iterator[tuple[str, str, int]]:
    """Path, name and offset of every name of a text that is JSON."""
    # Of each open bracket its path, and the index in a list (-1: a record).
    paths, indexes, path = [""], [-1], ""
    last: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == ":" and last:
            name = json.loads(last[0])
            path = child_path(paths[-1], name)
            yield path, name, last.start()
        elif mark in "[{":
            if indexes[-1] >= 0:
                path = child_path(paths[-1], indexes[-1])
            paths.append(path)
            indexes.append(-1 if mark == "{" else 0)
        elif mark in "]}":
            paths.pop()
            indexes.pop()
        elif mark == "," and indexes[-1] >= 0:
            indexes[-1] += 1
        last = token
