r"""Lines of Grid Engine's texts: one that ends in `\` goes on in the next; `#` begins a comment."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from msgspec import Struct

from lodesman.base.errors import SyntaxFault, TooLarge

_MAX_CHARACTERS = 16 << 20
MAX_FAULTS = 100

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_WORD = re.compile(r"\S+")


class LogicalLine(Struct, frozen=True, kw_only=True):
    """A line joined with its continuations."""

    text: str
    starts: tuple[tuple[int, int, int], ...]  # Offset, line and column of each piece.
    source: str = ""

    def place(self, offset: int) -> tuple[int, int]:
        """Both from 1."""
        piece = bisect_right(self.starts, offset, lo=1, key=lambda start: start[0]) - 1
        begin, line, column = self.starts[piece]
        return line, column + offset - begin

    @property
    def line(self) -> int:
        """Of its first line."""
        return self.starts[0][1]

    def words(self) -> list[tuple[int, str]]:
        """What blanks separate, with offsets."""
        return [(match.start(), match[0]) for match in _WORD.finditer(self.text)]

    def fault(self, offset: int, message: str, hint: str = "") -> SyntaxFault:
        """`message`: without a full stop."""
        line, column = self.place(offset)
        data = {"source": self.source} if self.source else {}
        return SyntaxFault(f"{message}.", line=line, column=column, hint=hint, **data)


def note(faults: list[SyntaxFault], fault: SyntaxFault) -> None:
    """Add a fault, up to a hundred: what is no text at all is not reported line by line."""
    if len(faults) < MAX_FAULTS:
        faults.append(fault)


def logical_lines(text: str, *, faults: list[SyntaxFault], source: str = "") -> Iterator[LogicalLine]:
    """Lines with content; one with characters that no text has is a fault. Raises TooLarge."""
    if len(text) > _MAX_CHARACTERS:
        message = f"The text has {len(text)} characters; at most {_MAX_CHARACTERS} are read."
        raise TooLarge(message, hint="Split it.", limit=_MAX_CHARACTERS, size=len(text))
    parts: list[str] = []
    starts: list[tuple[int, int, int]] = []
    size = 0
    for number, whole in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        raw = whole.rstrip()
        if raw.lstrip().startswith("#"):
            continue
        goes_on = raw.endswith("\\")
        if not parts and not goes_on:
            text = raw.lstrip()
            yield from _check_line(text, [(0, number, len(raw) - len(text) + 1)], source, faults)
            continue
        piece = raw[:-1].rstrip() if goes_on else raw
        indent = len(piece) - len(piece.lstrip())
        # A list that is broken after a comma is joined without a blank: it may be a list that allows none.
        if parts and not parts[-1].endswith(","):
            parts.append(" ")
            size += 1
        starts.append((size, number, indent + 1))
        parts.append(piece[indent:])
        size += len(piece) - indent
        if not goes_on:
            yield from _check_line("".join(parts), starts, source, faults)
            parts, starts, size = [], [], 0
    if parts:
        yield from _check_line("".join(parts), starts, source, faults)


def _check_line(
    text: str, starts: list[tuple[int, int, int]], source: str, faults: list[SyntaxFault]
) -> Iterator[LogicalLine]:
    bad = _CONTROL.search(text)
    if not bad and (text := text.rstrip()):
        yield LogicalLine(text=text, starts=tuple(starts), source=source)
    elif bad and len(faults) < MAX_FAULTS:
        message = f"the character U+{ord(bad[0]):04X}, which no text has"
        line = LogicalLine(text=text, starts=tuple(starts), source=source)
        note(faults, line.fault(bad.start(), message, "Is this a program?"))
