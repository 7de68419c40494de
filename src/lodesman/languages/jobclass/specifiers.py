"""Access specifiers, and the values of attributes that stand behind them.

    value     = base { "," "[" variant "]" }
    variant   = [ specifier ] name "=" base          its specifier stands before its name
    base      = [ specifier ] "UNSPECIFIED" | [ specifier ] text | [ specifier with "+" ] entry { "," entry }
    entry     = [ specifier without "+" ] key [ "=" value ]
    specifier = "{" one or more of + - ~, each once "}"

Without a specifier a value is fixed; `~` lets jobs change it, `-` remove it, `+` add entries to a list, or set what is
UNSPECIFIED. In front of a list a specifier belongs to the whole list if it has `+`, else to the first entry. A bracket
replaces the whole base value for its variant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.languages.gridengine.values import UnreadableValue, split_outside_brackets
from lodesman.languages.jobclass.attributes import AttributeKind, JobValue, key_and_value
from lodesman.languages.jobs.record import shown

ReportFault = Callable[[str], None]
"""Takes one fault: a sentence without its full stop."""

_LETTERS = "+-~"
_UNSPECIFIED, _NONE = "UNSPECIFIED", "NONE"


class ClassScalar(Struct, frozen=True, kw_only=True):
    """One text of a class."""

    text: str | None  # None: UNSPECIFIED.
    grants: str = ""  # The letters of its specifier.


class ClassEntry(Struct, frozen=True, kw_only=True):
    """One entry of a list."""

    key: str  # Of a positional list: the position from "0".
    value: str | None = None
    grants: str = ""


class ClassList(Struct, frozen=True, kw_only=True):
    """A list of a class."""

    entries: tuple[ClassEntry, ...] | None  # None: UNSPECIFIED.
    grants: str = ""  # Empty, or with `+`, for the whole list.


ClassValue = ClassScalar | ClassList


class ByVariant(Struct, frozen=True, kw_only=True):
    """One attribute of a class."""

    base: ClassValue
    variants: Mapping[str, ClassValue] = field(default_factory=dict)  # What some have instead of `base`.

    def of(self, variant: str) -> ClassValue:
        """The value of a variant."""
        return self.variants.get(variant, self.base)


def join_grants(letters: str, more: str) -> str:
    """The letters that are in either specifier, in canonical order."""
    return "".join(letter for letter in _LETTERS if letter in letters or letter in more)


def braces(letters: str) -> str:
    """As written; nothing without letters."""
    return f"{{{letters}}}" if letters else ""


def free(kind: AttributeKind) -> ClassValue:
    """The value of a fresh template: nothing, and jobs may have any."""
    if kind is AttributeKind.SCALAR:
        return ClassScalar(text=None, grants="+")
    return ClassList(entries=None, grants="+")


def size_of(value: ClassValue) -> int:
    """Letters of a value, about."""
    if isinstance(value, ClassScalar):
        return len(value.text or "")
    return sum(len(entry.key) + len(entry.value or "") + 2 for entry in value.entries or ())


def length_of(value: ClassValue) -> int:
    """A scalar has no entries."""
    return len(value.entries or ()) if isinstance(value, ClassList) else 0


def job_value(kind: AttributeKind, value: ClassValue) -> JobValue:
    """An empty value if the job gets nothing."""
    if isinstance(value, ClassScalar):
        return value.text or ""
    entries = value.entries or ()
    if kind is AttributeKind.POSITIONAL:
        return tuple(entry.value or "" for entry in entries)
    return {entry.key: entry.value for entry in entries}


# --- text -> value --------------------------------------------------------------------------------


def read_value(
    kind: AttributeKind, text: str, variants: Collection[str], say: ReportFault
) -> ByVariant | None:
    """None if the base cannot be read; `say` gets every fault."""
    try:
        pieces = split_outside_brackets(text)
    except UnreadableValue as fault:
        say(str(fault))
        return None
    count = next((at for at, piece in enumerate(pieces) if piece.strip().startswith("[")), len(pieces))
    base = read_base(kind, ",".join(pieces[:count]), say)
    others: dict[str, ClassValue] = {}
    for piece in pieces[count:]:
        try:
            name, value = _bracket(kind, piece.strip(), variants, say)
            if name in others:
                raise UnreadableValue(f"the variant {shown(name)} has two brackets")
            others[name] = value
        except UnreadableValue as fault:
            say(str(fault))
    return None if base is None else ByVariant(base=base, variants=others)


def read_base(kind: AttributeKind, text: str, say: ReportFault) -> ClassValue | None:
    """A value without brackets of variants; `say` gets every fault."""
    try:
        letters, rest = _specifier(text.strip())
        if kind is AttributeKind.SCALAR:
            return _scalar(letters, rest)
        return _list(kind, letters, rest, say) if "+" in letters else _list(kind, "", text.strip(), say)
    except UnreadableValue as fault:
        say(str(fault))
    return None


def _bracket(
    kind: AttributeKind, piece: str, variants: Collection[str], say: ReportFault
) -> tuple[str, ClassValue]:
    if not piece.startswith("["):
        raise UnreadableValue(f"{shown(piece)!r} stands behind the brackets of variants")
    inner = piece[1:-1].strip()
    if not piece.endswith("]"):
        raise UnreadableValue(f"{shown(piece)!r} goes on behind its bracket")
    split_outside_brackets(inner)
    letters, rest = _specifier(inner)
    name, equals, body = rest.partition("=")
    name = name.strip()
    if not equals:
        raise UnreadableValue(f"the bracket [{shown(inner)}] has no '='; write [variant=value]")
    if name not in variants:
        raise UnreadableValue(f"{shown(name)!r} is not in variant_list")
    if kind is AttributeKind.SCALAR:
        return name, _scalar(letters, body.strip())
    listed = _list(kind, letters, body.strip(), say)
    if "+" in letters or not listed.entries:
        return name, replace(listed, grants=letters if "+" in letters else "")
    # Without "+" no entry can come that a specifier of the list would be for: each entry has it.
    spread = tuple(replace(entry, grants=join_grants(entry.grants, letters)) for entry in listed.entries)
    return name, ClassList(entries=spread)


def _specifier(text: str) -> tuple[str, str]:
    if not text.startswith("{"):
        return "", text
    inner, brace, rest = text[1:].partition("}")
    if not brace:
        raise UnreadableValue("a '{' is never closed")
    if not inner or len(set(inner)) < len(inner) or not set(inner) <= set(_LETTERS):
        written = f"{{{shown(inner)}}}"
        raise UnreadableValue(f"{written} is no access specifier: one or more of + - ~, each once")
    return join_grants(inner, ""), rest.strip()


def _scalar(letters: str, text: str) -> ClassScalar:
    _check_text(text)
    if text == _UNSPECIFIED:
        return ClassScalar(text=None, grants=letters)
    if "+" in letters:
        raise UnreadableValue("+ in front of a single value is for UNSPECIFIED only")
    return ClassScalar(text=text, grants=letters)


def _list(kind: AttributeKind, letters: str, text: str, say: ReportFault) -> ClassList:
    if text in (_UNSPECIFIED, _NONE):
        return ClassList(entries=None if text == _UNSPECIFIED else (), grants=letters)
    entries: dict[str, ClassEntry] = {}
    for at, piece in enumerate(split_outside_brackets(text)):
        try:
            entry = _entry(kind, piece.strip(), at)
            if entry.key in entries:
                raise UnreadableValue(f"{shown(entry.key)} is given twice")
            entries[entry.key] = entry
        except UnreadableValue as fault:
            say(str(fault))
    return ClassList(entries=tuple(entries.values()), grants=letters)


def _entry(kind: AttributeKind, piece: str, at: int) -> ClassEntry:
    letters, rest = _specifier(piece)
    if "+" in letters:
        raise UnreadableValue(f"+ is for the whole list, not for the entry {shown(rest)!r}")
    _check_text(rest)
    if rest in (_UNSPECIFIED, _NONE):
        raise UnreadableValue(f"{rest} stands alone, without entries or a specifier of an entry")
    if kind is AttributeKind.POSITIONAL:
        return ClassEntry(key=str(at), value=rest, grants=letters)
    key, value = key_and_value(rest)
    if not key:
        raise UnreadableValue(f"{shown(rest)!r} has no key in front of '='")
    return ClassEntry(key=key, value=value, grants=letters)


def _check_text(text: str) -> None:
    if not text:
        raise UnreadableValue("a value is missing; what the class leaves open is UNSPECIFIED")
    if text.startswith("{"):
        raise UnreadableValue("two access specifiers stand in front of one value")
    if text.startswith("["):
        raise UnreadableValue("a value stands inside two brackets")
    if text.endswith("\\"):
        raise UnreadableValue("a value ends with a backslash")


# --- value -> text --------------------------------------------------------------------------------


def write_value(kind: AttributeKind, value: ByVariant) -> str:
    """A text that reads as this value."""
    brackets = (
        f",[{write_base(kind, class_value, name + '=')}]" for name, class_value in value.variants.items()
    )
    return write_base(kind, value.base) + "".join(brackets)


def write_base(kind: AttributeKind, value: ClassValue, name: str = "") -> str:
    """Without variants; `name` stands behind its specifier."""
    if isinstance(value, ClassScalar):
        body = value.text
    elif value.entries is None:
        body = None
    else:
        body = ",".join(braces(entry.grants) + _write_entry(kind, entry) for entry in value.entries) or _NONE
    return braces(value.grants) + name + (_UNSPECIFIED if body is None else body)


def _write_entry(kind: AttributeKind, entry: ClassEntry) -> str:
    if kind is AttributeKind.POSITIONAL:
        return entry.value or ""
    return entry.key if entry.value is None else f"{entry.key}={entry.value}"
