r"""The native text of a job class, as `qconf -sjc` prints it and `-Ajc` reads it.

    jcname          app                     a line for each attribute: its name, blanks, its value
    variant_list    default,large
    l_hard          {+~}a=1, \              a backslash at its end joins a line with the next one
                    [large=a=2]
    # a comment

What a text does not have is taken from the template. Attributes that are unknown are kept as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.base.errors import SyntaxFault, TooLarge
from lodesman.languages.gridengine.values import class_name_problem
from lodesman.languages.jobclass.attributes import KINDS, AttributeKind, CanonicalKey, kind_of
from lodesman.languages.jobclass.model import DEFAULT_VARIANT, JobClass, fresh_template
from lodesman.languages.jobclass.specifiers import ByVariant, ClassList, read_value, write_value
from lodesman.languages.jobs.record import shown
from lodesman.wire.jobs import Notice

_MAX_BYTES = 1 << 20
_MAX_FAULTS = 100
_MAX_VARIANTS = 1_000
_OWN = ("jcname", "variant_list", "owner", "user_lists", "xuser_lists")
_ATTRIBUTE = re.compile(r"[A-Za-z]\w*\Z", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


class ClassText(Struct, frozen=True, kw_only=True):
    """A class, or else faults."""

    job_class: JobClass | None
    faults: tuple[SyntaxFault, ...] = ()
    notices: tuple[Notice, ...] = ()  # What was kept without a meaning.
    lines: Mapping[str, int] = field(default_factory=dict)  # Of the attributes that the text has.


def read_class(
    text: str,
    *,
    source: str = "",
    template: JobClass | None = None,
    canonical: CanonicalKey,
    first_line: int = 1,
) -> ClassText:
    """Raises TooLarge.

    `template` gives what the text lacks (None: the fresh one). `canonical` finds entries with one key under two names.
    Lines count from `first_line`.
    """
    check_size(text, source)
    class_text = _ClassReader(source, template or fresh_template(), canonical).read(text, first_line)
    if class_text.job_class:
        # What is read can be written, and read again.
        check_size(write_class(class_text.job_class), source)
    return class_text


class ClassPiece(NamedTuple):
    """A part of a text."""

    line: int  # Where it begins.
    name: str  # Of its class; '' if it has none.
    text: str


def split_classes(text: str) -> list[ClassPiece]:
    """Each part begins with its `jcname`, the first with what stands before."""
    heads = [line for line in _join_lines(text) if line.text.split(None, 1)[:1] == ["jcname"]]
    lines = text.removeprefix("\ufeff").split("\n")
    bounds = [1, *(head.number for head in heads[1:]), len(lines) + 1]
    names = ["".join(head.text.split(None, 1)[1:]) for head in heads] or [""]
    return [
        ClassPiece(begin, name, "\n".join(lines[begin - 1 : end - 1]))
        for name, (begin, end) in zip(names, pairwise(bounds), strict=True)
    ]


def check_size(text: str, source: str = "") -> None:
    """Raise TooLarge for a text that would not be read."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _MAX_BYTES:
        message = f"A job class has at most {_MAX_BYTES} bytes; this one has {size}."
        raise TooLarge(message, limit=_MAX_BYTES, size=size, source=source)


class _Line(NamedTuple):
    number: int
    text: str = ""


class _ClassReader:
    __slots__ = ("canonical", "faults", "first", "lines", "notices", "source", "template", "unknown")

    def __init__(self, source: str, template: JobClass, canonical: CanonicalKey) -> None:
        self.source = source
        self.template = template
        self.canonical = canonical
        self.faults: list[SyntaxFault] = []
        self.notices: list[Notice] = []
        self.lines: dict[str, _Line] = {}
        self.unknown: dict[str, str] = {}
        self.first = _Line(number=1)

    def read(self, text: str, first_line: int) -> ClassText:
        self.first = _Line(number=first_line)
        for line in _join_lines(text, first_line):
            self.split(line)
        name, variants = self.name(), self.variants()
        attributes = self.kept_of_template(variants)
        for attribute, line in self.lines.items():
            if attribute in KINDS:
                value = self.value(attribute, line, frozenset(variants))
                if value:
                    attributes[attribute] = value
        job_class = JobClass(
            name=name,
            variants=variants,
            owner=self.names("owner", self.template.owner),
            user_lists=self.names("user_lists", self.template.user_lists),
            xuser_lists=self.names("xuser_lists", self.template.xuser_lists),
            attributes=attributes,
            unknown={**self.template.unknown, **self.unknown},
        )
        faults = tuple(sorted(self.faults, key=lambda fault: int(fault.data["line"])))[:_MAX_FAULTS]
        return ClassText(
            job_class=None if faults else job_class,
            faults=faults,
            notices=tuple(self.notices[:_MAX_FAULTS]),
            lines={name: line.number for name, line in self.lines.items()},
        )

    def split(self, line: _Line) -> None:
        attribute, value = (*line.text.split(None, 1), "", "")[:2]
        bad = _CONTROL.search(line.text)
        if bad:
            self.say(attribute, line, f"the character U+{ord(bad[0]):04X}, which no text has")
        elif not _ATTRIBUTE.match(attribute):
            self.say(attribute, line, f"{shown(attribute)!r} is no name of an attribute")
        elif not value:
            self.say(attribute, line, "a value is missing; write `attribute value`")
        elif attribute in self.lines:
            first = self.lines[attribute].number
            self.say(attribute, line, f"the attribute is given twice, first at line {first}")
        elif value.endswith("\\"):
            self.say(attribute, line, "a value ends with a backslash")
        else:
            self.lines[attribute] = _Line(number=line.number, text=value)
            if attribute not in KINDS and attribute not in _OWN:
                self.unknown[attribute] = value
                message = f"{shown(attribute)} is no known attribute: it is kept and has no effect."
                self.notices.append(Notice(attribute=attribute, message=message, line=line.number, column=1))

    def name(self) -> str:
        line = self.lines.get("jcname")
        if line is None:
            self.say("jcname", self.first, "the name of the job class is missing")
            return ""
        problem = class_name_problem(line.text)
        if problem:
            self.say("jcname", line, f"Job class name {problem}")
        return line.text

    def variants(self) -> tuple[str, ...]:
        names = self.names("variant_list", self.template.variants) or (DEFAULT_VARIANT,)
        line = self.lines.get("variant_list", self.first)
        for name in names:
            problem = class_name_problem(name)
            if problem:
                self.say("variant_list", line, f"the name {shown(name)!r} of a variant {problem}")
        if len(names) > _MAX_VARIANTS:
            self.say(
                "variant_list", line._replace(text=""), f"{len(names)} variants; at most {_MAX_VARIANTS}"
            )
            return (DEFAULT_VARIANT,)
        if DEFAULT_VARIANT not in names:
            self.say("variant_list", line, f"the variant {DEFAULT_VARIANT!r} is missing")
        return names

    def names(self, attribute: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        line = self.lines.get(attribute)
        if line is None or line.text == "NONE":
            return otherwise if line is None else ()
        listed = tuple(name.strip() for name in line.text.split(","))
        if len(set(listed)) < len(listed):
            self.say(attribute, line, "a name is given twice")
        if any(
            not name or re.search(r"\s", name) or name == "NONE" or name.endswith("\\") for name in listed
        ):
            self.say(attribute, line, "names stand between commas, without blanks; NONE stands alone")
        return listed

    def kept_of_template(self, mine: tuple[str, ...]) -> dict[str, ByVariant]:
        return {
            name: replace(
                value, variants={variant: own for variant, own in value.variants.items() if variant in mine}
            )
            for name, value in self.template.attributes.items()
        }

    def value(self, attribute: str, line: _Line, variants: frozenset[str]) -> ByVariant | None:
        read = read_value(
            kind_of(attribute), line.text, variants, lambda message: self.say(attribute, line, message)
        )
        for class_value in (read.base, *read.variants.values()) if read else ():
            if (
                isinstance(class_value, ClassList)
                and class_value.entries
                and kind_of(attribute) is AttributeKind.KEYED
            ):
                self.check_keys(attribute, line, [entry.key for entry in class_value.entries])
        return read

    def check_keys(self, attribute: str, line: _Line, keys: list[str]) -> None:
        seen: dict[str, str] = {}
        for key in keys:
            name = self.canonical(attribute, key)
            if name in seen:
                self.say(attribute, line, f"{shown(seen[name])} and {shown(key)} are two names of one key")
            seen[name] = key

    def say(self, attribute: str, line: _Line, message: str) -> None:
        if len(self.faults) >= 10 * _MAX_FAULTS:
            return
        value = f' "{shown(line.text)}"' if line.text else ""
        text = f"Error during parsing of attribute value{value} of {shown(attribute)}: {message}."
        more = {"source": self.source} if self.source else {}
        self.faults.append(SyntaxFault(text, line=line.number, column=1, attribute=attribute, **more))


def _join_lines(text: str, first_line: int = 1) -> list[_Line]:
    """Lines with content, joined where a backslash ends one."""
    joined: list[_Line] = []
    parts: list[str] = []
    start = 0
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), first_line):
        line = raw.strip()
        if not parts and (not line or line.startswith("#")):
            continue
        start = start if parts else number
        goes_on = line.endswith("\\")
        parts.append(line[:-1].strip() if goes_on else line)
        if not goes_on:
            joined.append(_Line(number=start, text=" ".join(parts).strip()))
            parts = []
    return [*joined, _Line(number=start, text=" ".join(parts).strip())] if parts else joined


def write_class(job_class: JobClass) -> str:
    """Canonical; reads as an equal class."""
    own = (job_class.variants if job_class.variants != (DEFAULT_VARIANT,) else ()), job_class.owner
    lists = (*own, job_class.user_lists, job_class.xuser_lists)
    pairs = [("jcname", job_class.name)]
    pairs += [(name, ",".join(names) or "NONE") for name, names in zip(_OWN[1:], lists, strict=True)]
    pairs += [
        (name, write_value(kind, job_class.attributes[name]))
        for name, kind in KINDS.items()
        if name in job_class.attributes
    ]
    pairs += job_class.unknown.items()
    return "".join(f"{name:<15} {value}\n" for name, value in pairs)
