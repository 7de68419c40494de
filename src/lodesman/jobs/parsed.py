"""What the readers of all three languages give back and the limits they share.

A `Record` holds text, 64-bit integers, finite floats, truth values, lists and nested records; nothing else
travels between JDL, CFG and JSON. Positions are paths: `Memory`, `Requirements/Memory`, `Steps[2]/Name`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lodesman.errors import InvalidJob, SyntaxFault, TooLarge
from lodesman.jobs.spec import Record

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
NAME_LENGTH = 255
PATH_LENGTH = 200
# Records whose names are told apart by case too: environment variables (http_proxy, HTTP_PROXY).
EXACT_CASE = frozenset({"environment"})

_BAD_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BAD_IN_TEXT = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How big a description may be: bytes of text, depth of nesting (at most 100), values in all."""

    text_bytes: int = 1 << 20
    depth: int = 32
    nodes: int = 250_000

    def __post_init__(self) -> None:
        if self.depth > 100:
            raise ValueError("depth: the readers recurse; at most 100")


DEFAULT_LIMITS = Limits()
# For descriptions that list a value for each of up to 1,000,000 members.
ARRAY_LIMITS = Limits(text_bytes=8 << 20, nodes=2_500_000)


class Positions(Mapping[str, tuple[int, int]]):
    """Path -> (line, column), both from 1. Offsets are turned into lines only when somebody asks."""

    __slots__ = ("_offsets", "_text")

    def __init__(self, text: str, offsets: Mapping[str, int]) -> None:
        self._text = text
        self._offsets = offsets

    def __getitem__(self, path: str) -> tuple[int, int]:
        return line_column(self._text, self._offsets[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRecord:
    """A description as read, with the place of each attribute and the language it came in."""

    record: Record
    positions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    form: str = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A value that no description can hold: where, what, and what would be right."""

    path: str
    message: str
    hint: str = ""

    @property
    def sentence(self) -> str:
        """Where and what."""
        return f"{shown(self.path, 80)}: {self.message}." if self.path else f"{self.message}."

    def as_invalid_job(self) -> InvalidJob:
        """The problem as the error of a record that nobody wrote as text."""
        sentence = self.sentence if self.path else self.sentence[:1].upper() + self.sentence[1:]
        return InvalidJob(sentence, hint=self.hint, attribute=shown(self.path, 80))


def line_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column (from 1) of an offset; lines end with a newline character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def fault_at(text: str, offset: int, message: str, *, hint: str = "") -> SyntaxFault:
    """A SyntaxFault for the character at `offset`; `message` comes without its full stop."""
    line, column = line_column(text, offset)
    message = f"{message}."
    return SyntaxFault(message, line=line, column=column, hint=hint)


def check_size(text: str | bytes, limits: Limits) -> None:
    """Refuse a text over the limit before anything looks at it. Raises TooLarge."""
    size = len(text)
    if size <= limits.text_bytes and isinstance(text, str) and not text.isascii():
        size = len(text.encode("utf-8", "replace"))
    if size > limits.text_bytes:
        raise TooLarge(
            f"The description has {size} bytes; at most {limits.text_bytes} are read.",
            hint="Send large data as an input sandbox; write many similar jobs as one with Parameters.",
            limit=limits.text_bytes,
            size=size,
        )


def as_text(text: str | bytes) -> str:
    """The text without a byte order mark. Raises SyntaxFault for what is not UTF-8 and for NUL."""
    if isinstance(text, bytes):
        text = _decoded(text)
    text = text.removeprefix("\ufeff")
    if not text.isascii():
        bad = re.search(r"[\ud800-\udfff]", text)
        if bad:
            raise fault_at(text, bad.start(), "half of a surrogate pair", hint="Write the text as UTF-8.")
    if "\0" in text:
        raise fault_at(text, text.index("\0"), "a NUL byte", hint="A description is text; is this a program?")
    return text


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8")
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise fault_at(good, len(good), message, hint="Save the file as UTF-8.") from None


def find_problem(record: Record, limits: Limits = DEFAULT_LIMITS) -> Problem | None:
    """The first thing in a record that cannot travel between the languages, or None. Never recurses."""
    left = limits.nodes
    todo: list[tuple[str, Any, int]] = [("", record, 0)]
    while todo:
        path, container, depth = todo.pop()
        left -= len(container)
        if depth >= limits.depth:
            return Problem(path=path, message=f"nested deeper than {limits.depth} levels")
        if left < 0:
            return Problem(path=path, message=f"more than {limits.nodes} values in all")
        problem = _names_problem(path, container) if isinstance(container, dict) else None
        if problem:
            return problem
        for key, child in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(child, (dict, list)):
                todo.append((child_path(path, key), child, depth + 1))
            elif message := _scalar_problem(child):
                return Problem(path=child_path(path, key), message=message)
    return None


def child_path(path: str, key: Any) -> str:
    """The path of what stands under `key` (a name or an index). Long paths are cut: they serve people."""
    if isinstance(key, int):
        return f"{path[:PATH_LENGTH]}[{key}]"
    name = str(key)[:NAME_LENGTH]
    return f"{path[:PATH_LENGTH]}/{name}" if path else name


def shown(text: str, length: int = 40) -> str:
    """Text from outside as an error may show it: short, and nothing unprintable raw."""
    short = text if len(text) <= length else f"{text[: length - 3]}..."
    return short if short.isprintable() else ascii(short)[1:-1]


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


def _names_problem(path: str, record: Record) -> Problem | None:
    exact = path.rpartition("/")[2].lower() in EXACT_CASE
    seen: dict[str, str] = {}
    for name in record:
        at = child_path(path, name)
        message = name_problem(name)
        if message:
            return Problem(path=at, message=message)
        key = name if exact else name.lower()
        if key in seen:
            return Problem(
                path=at,
                message=f"{shown(name)} is given twice, first as {shown(seen[key])}",
                hint="Attribute names do not depend on case.",
            )
        seen[key] = name
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
