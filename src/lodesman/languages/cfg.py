"""CFG, the configuration language of DIRAC: sections, options, order and positions kept.

    # a comment line                    Name { ... }, the brace on the same line or on a later one
    Section                             option = value      the rest of the line, without outer blanks
    {                                   option += value     appends ", value"
      option = a, b
    }

A value is text as it stands: `#`, braces and quotes have no meaning in it, and a list is text with commas. Names depend
on case, as in DIRAC. What is given twice is refused.

A slip within a line (something given twice, a value without `=`) does not hide what comes after it: a list of faults
that the caller gives gets all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lodesman.base.errors import InvalidConfig, SyntaxFault, TooLarge

_MAX_BYTES = 16 << 20
_MAX_DEPTH = 64
_MAX_ENTRIES = 1_000_000
_MAX_NAME = 1_024
_MAX_APPENDED = 10_000
_MAX_FAULTS = 100

_MARK = re.compile(r"[={}]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_BAD_NAME = re.compile(r"[={}\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]|\A[#\s]|\s\Z")
_BLANKS = re.compile(r"\s*+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CfgOption:
    """An option, its value as written, and its name's place."""

    name: str
    value: str
    line: int = field(default=0, compare=False)  # From 1; 0: it was not read.
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CfgSection:
    """A section, or a whole file, without name."""

    name: str = ""
    # By name, in the order of the text.
    entries: Mapping[str, CfgOption | CfgSection] = field(default_factory=dict)
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def get(self, name: str) -> str:
        """The value of an option, "" if there is none."""
        entry = self.entries.get(name)
        return entry.value if isinstance(entry, CfgOption) else ""

    def section(self, path: str) -> CfgSection:
        """`path` such as `/Resources/Sites/LCG`; an empty section if there is none."""
        current = self
        for name in filter(None, path.split("/")):
            entry = current.entries.get(name)
            current = entry if isinstance(entry, CfgSection) else CfgSection()
        return current

    def options(self) -> Iterator[CfgOption]:
        """The options, in order."""
        return (entry for entry in self.entries.values() if isinstance(entry, CfgOption))

    def sections(self) -> Iterator[CfgSection]:
        """The sub-sections, in order."""
        return (entry for entry in self.entries.values() if isinstance(entry, CfgSection))


def parse_cfg(
    text: str, *, source: str = "", max_bytes: int = _MAX_BYTES, faults: list[SyntaxFault] | None = None
) -> CfgSection:
    """`source` names the text in errors. Raises SyntaxFault or TooLarge.

    `faults` takes what is wrong in single lines, which are left out; unbalanced sections are raised all the same. The
    data of a fault has its `section`.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size > max_bytes:
        raise TooLarge(
            f"The configuration has {size} bytes; at most {max_bytes} are read.",
            hint="Split it, or leave out what is not used.",
            limit=max_bytes,
            size=size,
            **({"source": source} if source else {}),
        )
    return _CfgReader(source, faults).read(text.removeprefix("\ufeff"))


@dataclass(slots=True)
class _OpenSection:
    name: str
    line: int
    column: int
    entries: dict[str, CfgOption | CfgSection] = field(default_factory=dict)
    # Pieces of options that are appended to; joined once, however many they are.
    appended: dict[str, list[str]] = field(default_factory=dict)
    twice: bool = False

    def frozen(self) -> CfgSection:
        for name, pieces in self.appended.items():
            old = self.entries[name]
            value = ", ".join(pieces)
            self.entries[name] = CfgOption(name=name, value=value, line=old.line, column=old.column)
        return CfgSection(name=self.name, entries=self.entries, line=self.line, column=self.column)


class _CfgReader:
    """Reads by line with a stack of open sections; never recurses."""

    __slots__ = ("faults", "left", "line", "named", "raw", "source", "stack")

    def __init__(self, source: str, faults: list[SyntaxFault] | None) -> None:
        self.source = source
        self.faults = faults
        self.stack = [_OpenSection("", 1, 1)]
        self.named: _OpenSection | None = None
        self.left = _MAX_ENTRIES
        self.line = 0
        self.raw = ""

    def read(self, text: str) -> CfgSection:
        for self.line, self.raw in enumerate(text.split("\n"), 1):
            bad = _CONTROL.search(self.raw.rstrip("\r"))
            if bad:
                message = f"the character U+{ord(bad[0]):04X}, which no text has"
                self.slip(bad.start(), message, "Is this a program?")
                continue
            at = 0
            while at >= 0:
                at = self.step(at)
        self.no_name_pending()
        if len(self.stack) > 1:
            hint = "Put '}' on a line of its own: in a line with '=' it is part of the value."
            last = self.stack.pop()
            raise self.fault(last.column - 1, f"{last.name[:40]} is never closed", hint, last.line)
        return self.stack[0].frozen()

    def step(self, at: int) -> int:
        """Read one piece of the line from `at`; returns the offset of the rest, or -1."""
        at = _BLANKS.match(self.raw, at).end()  # type: ignore[union-attr]  # matches always
        if at >= len(self.raw) or self.raw[at] == "#":
            return -1
        match = _MARK.search(self.raw, at)
        if match is None:
            self.no_name_pending()
            self.named = self.new_name(at, len(self.raw))
            return -1
        mark, stop = match[0], match.start()
        if mark == "=":
            self.option(at, stop)
            return -1
        if mark == "{":
            self.open(at, stop)
        else:
            self.shut(at, stop)
        return stop + 1

    def option(self, at: int, stop: int) -> None:
        self.no_name_pending()
        append = stop > at and self.raw[stop - 1] == "+"
        if not self.raw[at : stop - append].strip():
            self.slip(at, "a value without a name", "Write: name = value")
            return
        name = self.new_name(at, stop - append)
        value = self.raw[stop + 1 :].strip()
        entries = self.stack[-1].entries
        first = entries.get(name.name)
        if append and isinstance(first, CfgOption):
            pieces = self.stack[-1].appended.setdefault(name.name, [first.value] if first.value else [])
            pieces.append(value)
            if len(pieces) > _MAX_APPENDED:
                message = f"{name.name[:40]} is appended to more than {_MAX_APPENDED} times"
                raise self.fault(at, message, "Write its values in one line: name = a, b, c")
        elif first is None:
            entries[name.name] = CfgOption(name=name.name, value=value, line=name.line, column=name.column)
        else:
            self.twice(name, first)

    def open(self, at: int, stop: int) -> None:
        if at < stop:
            self.no_name_pending()
            self.named = self.new_name(at, stop)
        if self.named is None:
            raise self.fault(stop, "a '{' without the name of its section", "Write: Name {")
        if len(self.stack) > _MAX_DEPTH:
            raise self.fault(stop, f"nested deeper than {_MAX_DEPTH} sections")
        first = self.stack[-1].entries.get(self.named.name)
        if first is not None:
            self.twice(self.named, first)
            # What it says counts for nothing, and is read on for its own faults.
            self.named.twice = True
        self.stack.append(self.named)
        self.named = None

    def shut(self, at: int, stop: int) -> None:
        if at < stop:
            self.slip(at, "text without '=' or '{' before a '}'", "A value is written: name = value.")
        self.no_name_pending()
        if len(self.stack) == 1:
            raise self.fault(stop, "a '}' that closes nothing")
        done = self.stack.pop()
        if not done.twice:
            self.stack[-1].entries[done.name] = done.frozen()

    def new_name(self, at: int, stop: int) -> _OpenSection:
        name = self.raw[at:stop].strip()
        if len(name) > _MAX_NAME:
            raise self.fault(at, f"a name of {len(name)} characters; at most {_MAX_NAME}")
        self.left -= 1
        if self.left < 0:
            raise self.fault(at, f"more than {_MAX_ENTRIES} options and sections")
        return _OpenSection(name, self.line, at + 1)

    def no_name_pending(self) -> None:
        if self.named:
            name, self.named = self.named, None
            message = f"{name.name[:40]} is followed by no '{{'"
            self.slip(name.column - 1, message, "A value is written: name = value.", name.line)

    def twice(self, name: _OpenSection, first: CfgOption | CfgSection) -> None:
        message = f"{name.name[:40]} is given twice, first at line {first.line}, column {first.column}"
        self.slip(name.column - 1, message, "Keep one of them; `+=` appends to an option.", name.line)

    def slip(self, at: int, message: str, hint: str, line: int = 0) -> None:
        """Add a fault that does not stop reading to the caller's list; without one, raise it."""
        fault = self.fault(at, message, hint, line)
        if self.faults is None:
            raise fault
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(fault)

    def fault(self, at: int, message: str, hint: str = "", line: int = 0) -> SyntaxFault:
        data = {"source": self.source} if self.source else {}
        if len(self.stack) > 1:
            data["section"] = "/" + "/".join(section.name for section in self.stack[1:])
        return SyntaxFault(f"{message}.", line=line or self.line, column=at + 1, hint=hint, **data)


def write_cfg(section: CfgSection) -> str:
    """Text that reads as these entries. Raises InvalidConfig for what CFG cannot say."""
    lines: list[str] = []
    _write(section, "", lines)
    text = "".join(f"{line}\n" for line in lines)
    # A reader takes one byte order mark away, which here would belong to a name.
    return "\ufeff" + text if text.startswith("\ufeff") else text


def _write(section: CfgSection, indent: str, lines: list[str]) -> None:
    if len(indent) > 2 * _MAX_DEPTH:
        raise InvalidConfig(f"CFG writes at most {_MAX_DEPTH} levels of sections.", section=section.name)
    for entry in section.entries.values():
        if not entry.name or len(entry.name) > _MAX_NAME or _BAD_NAME.search(entry.name):
            raise InvalidConfig(f"CFG cannot write the name {entry.name[:40]!r}.", section=section.name)
        if isinstance(entry, CfgSection):
            lines += [f"{indent}{entry.name}", f"{indent}{{"]
            _write(entry, indent + "  ", lines)
            lines.append(f"{indent}}}")
        elif entry.value != entry.value.strip() or _CONTROL.search(entry.value):
            message = f"CFG cannot write the value of {entry.name}: {entry.value[:40]!r}."
            raise InvalidConfig(message, section=section.name, hint="No line breaks and no outer blanks.")
        else:
            lines.append(f"{indent}{entry.name} = {entry.value}".rstrip())
