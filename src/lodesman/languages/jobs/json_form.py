"""JSON descriptions: one object. What only JSON knows is refused.

Positions of names are scanned only when needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from lodesman.base.errors import fault_at, line_column
from lodesman.languages.jobs.record import (
    ParsedRecord,
    Positions,
    Record,
    TextLimits,
    check_record,
    child_path,
    shown,
)

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}:,]|[^][{}:,"\s]++', re.DOTALL)


def read_json(text: str, limits: TextLimits) -> ParsedRecord:
    """Read one description. Raises SyntaxFault."""
    any_twice = False

    def record_of(pairs: list[tuple[str, Any]]) -> Record:
        nonlocal any_twice
        record = dict(pairs)
        any_twice |= len(record) < len(pairs)
        return record

    record = _decode(text, record_of, limits)
    if not isinstance(record, dict):
        message, hint = "a description is one JSON object", '{"Executable": ...}'
        if isinstance(record, list):
            message = f"{message}, and this is a list"
            hint = "Write each job into a file of its own, or jobs that are alike as one, with Parameters."
        raise fault_at(text, len(text) - len(text.lstrip()), message, hint=hint)
    positions = Positions(text, _offsets)
    check_record(record, positions, limits)
    if any_twice:
        _offsets(text, refuse_twice=True)
    return ParsedRecord(record=record, positions=positions, form="json")


def write_json(record: Record) -> str:
    """A text that reads as exactly this record."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def _decode(text: str, record_of: Callable[[list[tuple[str, Any]]], Record], limits: TextLimits) -> Any:
    """`find_problem` finds what Python lets pass."""
    try:
        return json.loads(text, object_pairs_hook=record_of)
    except RecursionError:
        level = 0
        for match in _TOKEN.finditer(text):
            level += (match[0] in "[{") - (match[0] in "]}")
            if level > limits.depth:
                break
        raise fault_at(text, match.start(), f"nested deeper than {limits.depth} levels") from None
    except json.JSONDecodeError as error:
        message = f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}"
        raise fault_at(text, error.pos, message, hint="This is not JSON.") from None
    except ValueError:  # a whole number with thousands of digits
        digits = re.search(r"[0-9]{4000}", text)
        at = digits.start() if digits else 0
        raise fault_at(text, at, "a whole number beyond 64 bits") from None


def _offsets(text: str, *, refuse_twice: bool = False) -> dict[str, int]:
    first: dict[str, int] = {}
    # Of each open bracket its path, and the index in a list (-1: a record).
    paths, indexes, path = [""], [-1], ""
    last: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == ":" and last:
            name, offset = json.loads(last[0]), last.start()
            path = child_path(paths[-1], name)
            if first.setdefault(path, offset) != offset and refuse_twice:
                line, column = line_column(text, first[path])
                message = f"{shown(name)} is given twice, first at line {line}, column {column}"
                raise fault_at(text, offset, message, hint="Keep one of them.")
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
    return first
