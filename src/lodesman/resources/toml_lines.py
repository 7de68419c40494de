"""On which line a table or key of a TOML text stands; `tomllib` does not tell.

The text has been read by `tomllib` before, so it is well formed: only the heads of statements are looked at,
strings and brackets are followed just far enough to know where a statement ends.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

Path = tuple[str, ...]

# What can open or close something that runs over line ends: comments, the four kinds of string, brackets.
_TOKEN = re.compile(
    r"""\#[^\n]*|\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[\[\]{}]|\n|=""",
    re.DOTALL,
)


def lines_of(text: str) -> dict[Path, int]:
    """The line (from 1) of every table head and every key, by path."""
    found: dict[Path, int] = {}
    table: Path = ()
    for line, head in _statements(text.replace("\r\n", "\n")):
        if head.startswith("["):
            table = _path(head.strip("[]"))
            _note(found, (), table, line)
        else:
            _note(found, table, _path(head), line)
    return found


def _note(found: dict[Path, int], table: Path, key: Path, line: int) -> None:
    """Note a path and, as tables come into being by the mention of what is in them, those above it."""
    for length in range(len(key), 0, -1):
        if found.setdefault(table + key[:length], line) != line:
            break


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of a path, or of the longest beginning of it that has one; 0 if none has."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return 0


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Line and head of each statement: a table head with its brackets, or a key without its value."""
    line = 1
    start = 0
    depth = 0
    head_end = -1
    first_line = 1
    for token in _TOKEN.finditer(text + "\n"):
        mark = token[0]
        if mark == "=" and depth == 0 and head_end < 0:
            head_end = token.start()
        elif mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "\n" and depth <= 0:
            head = _head(text[start : head_end if head_end >= 0 else token.start()])
            if head:
                yield first_line, head
            start, head_end, depth, first_line = token.end(), -1, 0, line + 1
        line += mark.count("\n")


def _head(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("#"):
        return ""
    if stripped.startswith("["):
        return stripped[: _closing(stripped)]
    return stripped


def _closing(head: str) -> int:
    """Where the brackets of a table head end: before a comment, if there is one."""
    end = len(head)
    for token in _TOKEN.finditer(head):
        if token[0] == "]":
            end = token.end()
        elif token[0].startswith("#"):
            break
    return end


_BARE = re.compile(r"[A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*")


def _path(dotted: str) -> Path:
    """The parts of a dotted key."""
    if _BARE.fullmatch(dotted.strip()):
        return tuple(part.strip() for part in dotted.split("."))
    parts: list[str] = []
    inner: object = tomllib.loads(f"{dotted} = 0")
    while isinstance(inner, dict):
        part, inner = next(iter(inner.items()))
        parts.append(part)
    return tuple(parts)
