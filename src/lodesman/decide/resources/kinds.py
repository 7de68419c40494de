"""Parameter types: what a parameter is and how a requirement is judged (docs/how-to/sites.md; seed
rfc7-job-requirements).

An undeclared parameter is deduced value by value: beside a true number, the other side must be a number or spell one,
and capacity >= requirement; beside a truth value, it must be the same or spell it; otherwise texts are equal, letter
case counting.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lodesman.decide.resources import model
from lodesman.decide.resources.model import BadValue, Scalar, Value, fold
from lodesman.decide.resources.units import Number, convert, number_in, plain_number
from lodesman.wire.vocabulary import Kind

AT_LEAST = ">="
EQUAL = "=="
ANY_OF = "any"

OPERATORS: Mapping[Kind, tuple[str, ...]] = {  # the first is the default
    Kind.NUMBER: (AT_LEAST, EQUAL),
    Kind.STRING: (EQUAL,),
    Kind.LIST: (ANY_OF,),
    Kind.VERSION: (AT_LEAST, EQUAL),
    Kind.BOOLEAN: (EQUAL,),
    Kind.DEDUCED: (ANY_OF,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterType:
    """A declared type."""

    name: str
    kind: Kind
    unit: str = ""
    operator: str = ""
    merge: bool = False  # values of all levels are united instead of replaced

    def __post_init__(self) -> None:
        if not self.operator:
            object.__setattr__(self, "operator", OPERATORS[self.kind][0])


class TypeTable:
    """Declared types; names regardless of case. Immutable."""

    __slots__ = ("_types", "version")

    def __init__(self, types: Iterable[ParameterType] = ()) -> None:
        self._types = {fold(item.name): item for item in (*WELL_KNOWN, *types)}
        # `merge` is left out: it changes what resources offer, never what a requirement is.
        rows = [
            [name, declared.kind.value, declared.unit, declared.operator]
            for name, declared in sorted(self._types.items())
        ]
        self.version = hashlib.sha256(json.dumps(rows).encode("ascii")).hexdigest()[:16]
        """Changes whenever the identity of a requirement set could."""

    def get(self, name: str) -> ParameterType | None:
        """None if undeclared."""
        return self._types.get(fold(name))

    def get_folded(self, folded: str) -> ParameterType | None:
        """`get` for a folded name."""
        return self._types.get(folded)

    def all(self) -> tuple[ParameterType, ...]:
        """Sorted by name."""
        return tuple(self._types[name] for name in sorted(self._types))


def parse_type(name: str, declaration: object) -> ParameterType:
    """Read "number MB", "list merge", "version ==", or a mapping of type, unit, operator, merge. Raises BadValue."""
    if isinstance(declaration, str):
        fields = _fields_of_words(declaration.split())
    elif isinstance(declaration, Mapping):
        fields = {fold(str(key)): value for key, value in declaration.items()}
    else:
        raise BadValue(f"{declaration!r} declares no type")
    if unknown := sorted(set(fields) - {"type", "unit", "operator", "merge"}):
        raise BadValue(f"{unknown[0]!r} is not a property of a type (type, unit, operator, merge)")
    kind = kind_of_word(str(fields.get("type", "")))
    if kind is None:
        raise BadValue(f"type {fields.get('type', '')!r} is none of {', '.join(KIND_WORDS)}")
    unit, operator = str(fields.get("unit", "")), str(fields.get("operator", ""))
    merge = boolean_of(fields.get("merge", False))
    if operator and operator not in OPERATORS[kind]:
        raise BadValue(f"operator {operator!r} does not fit a {kind.value} ({' '.join(OPERATORS[kind])})")
    if unit and kind is not Kind.NUMBER:
        raise BadValue(f"a {kind.value} has no unit")
    if merge and kind is not Kind.LIST:
        raise BadValue(f"only a list is merged, not a {kind.value}")
    return _as_operational(ParameterType(name=name, kind=kind, unit=unit, operator=operator, merge=merge))


def _as_operational(declared: ParameterType) -> ParameterType:
    """What the program itself uses has its own kind, and its own unit if none is declared."""
    needed = WELL_KNOWN_BY_NAME.get(fold(declared.name))
    if needed is None:
        return declared
    if declared.kind is not needed.kind:
        raise BadValue(f"the program itself needs a {needed.kind.value}")
    if declared.unit:
        convert(1, unit=declared.unit, to=needed.unit)
    return replace(declared, unit=declared.unit or needed.unit)


def _fields_of_words(words: list[str]) -> dict[str, object]:
    fields: dict[str, object] = {"type": words[0] if words else ""}
    for word in words[1:]:
        is_operator, is_merge = word in {AT_LEAST, EQUAL, ANY_OF}, word.lower() == "merge"
        key = "operator" if is_operator else "merge" if is_merge else "unit"
        if key in fields:
            raise BadValue(f"{key} is given twice")
        fields[key] = is_merge or word
    return fields


# the kinds that can be declared
KIND_WORDS: Mapping[str, Kind] = {kind.value: kind for kind in OPERATORS if kind is not Kind.DEDUCED}


def kind_of_word(word: str) -> Kind | None:
    """The declarable kind that a word names, or None."""
    return KIND_WORDS.get(word.strip().lower())


_QUOTED = re.compile(r'"([^"]*)"')
_TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


def boolean_of(value: object) -> bool:
    """A truth value as people write it; raises BadValue."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        truth = _TRUTH.get(model.as_text(value).lower())
        if truth is not None:
            return truth
    raise BadValue(f"{value!r} is neither true nor false")


def scalar_of(value: Scalar, kind: Kind, unit: str = "") -> Scalar:
    """A value in the form that its kind compares; idempotent. Raises BadValue."""
    match kind:
        case Kind.STRING | Kind.LIST | Kind.EXPRESSION:
            return model.as_text(value)
        case Kind.NUMBER:
            return number_in(value, unit)
        case Kind.BOOLEAN:
            return boolean_of(value)
        case Kind.VERSION:
            if isinstance(value, float):
                raise BadValue(
                    f"{value} is a number, which has lost its last zeros (3.10 is 3.1): put it in quotes"
                )
            return canonical_version(model.as_text(value))
        case Kind.DEDUCED:
            if isinstance(value, str):
                return value.strip()
            return value if isinstance(value, bool) else number_in(value)


def typed_value(raw: object, declared: ParameterType | None, *, commas: bool = False) -> Value:
    """Numbers in the declared unit, lists as tuples; ANY stays. With `commas` (CFG), a text with commas is a list,
    unless it is in quotes or the program takes it for one text. An undeclared text stays a text. Raises BadValue.
    """
    is_list = declared is not None and declared.kind is Kind.LIST
    many = isinstance(raw, list | tuple)
    items: list[Any] = list(raw) if isinstance(raw, list | tuple) else [raw]
    if is_list:
        items = [
            part for item in items for part in (model.split_list(item) if isinstance(item, str) else [item])
        ]
    elif commas and isinstance(raw, str) and not _is_one_text(declared):
        quoted = _QUOTED.fullmatch(raw.strip())
        items = [quoted[1]] if quoted else model.split_list(raw) if "," in raw else items
    scalars = [_scalar(item, declared) for item in items]
    return scalars[0] if len(scalars) == 1 and not (is_list or many) else model.without_repetition(scalars)


def _is_one_text(declared: ParameterType | None) -> bool:
    """Whether the program itself reads commas in a text of CFG."""
    return declared is not None and declared.kind is Kind.STRING and fold(declared.name) in WELL_KNOWN_BY_NAME


def _scalar(raw: object, declared: ParameterType | None) -> Scalar:
    if not isinstance(raw, str | int | float):
        raise BadValue("expected a text, a number, a truth value or a list of these")
    if isinstance(raw, str) and raw.strip().upper() == model.ANY:
        return model.ANY
    if isinstance(raw, float) and not math.isfinite(raw):
        raise BadValue(f"{raw!r} is not a finite number")
    if declared is not None:
        return scalar_of(raw, declared.kind, declared.unit)
    return model.as_text(raw) if isinstance(raw, str) else raw


def admits(kind: Kind, operator: str, wanted: Scalar, offered: Scalar) -> bool:
    """Whether an offered value fulfils a wanted one: the one predicate of requirements."""
    match kind:
        case Kind.NUMBER:
            return _at_least(wanted, offered) if operator == AT_LEAST else offered == wanted
        case Kind.VERSION:
            wanted_key, offered_key = version_key(str(wanted)), version_key(str(offered))
            return offered_key >= wanted_key if operator == AT_LEAST else offered_key == wanted_key
        case Kind.STRING | Kind.LIST | Kind.BOOLEAN | Kind.EXPRESSION:
            return offered == wanted
        case Kind.DEDUCED:
            return _deduced(wanted, offered)


def _deduced(wanted: Scalar, offered: Scalar) -> bool:
    if isinstance(wanted, bool) or isinstance(offered, bool):
        left, right = truth_of(wanted), truth_of(offered)
        return left is not None and left == right
    if isinstance(wanted, str) and isinstance(offered, str):
        return wanted == offered
    return _at_least(spelled_number(wanted), spelled_number(offered))


def _at_least(wanted: Scalar | None, offered: Scalar | None) -> bool:
    return isinstance(wanted, int | float) and isinstance(offered, int | float) and offered >= wanted


def truth_of(value: Scalar) -> bool | None:
    """The truth value that an undeclared value is or spells."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def spelled_number(value: Scalar) -> Number | None:
    """The number that an undeclared value is or spells."""
    if isinstance(value, bool):
        return None
    return plain_number(value) if isinstance(value, str) else value


def _number(name: str, unit: str = "") -> ParameterType:
    return ParameterType(name=name, kind=Kind.NUMBER, unit=unit)


WELL_KNOWN: tuple[ParameterType, ...] = (
    _number("Memory", "MB"),
    _number("MaxRAM", "MB"),
    _number("CPUTime", "s"),
    _number("maxCPUTime", "min"),
    _number("WallTime", "s"),
    _number("CPUScalingFactor"),
    _number("SI00"),
    _number("NumberOfProcessors"),
    _number("MaxTotalJobs"),
    _number("MaxRunningJobs"),
    _number("MaxHeldJobs"),
    _number("Slots"),
    _number("MaxWaitingJobs"),
    _number("WaitingToRunningRatio"),
    ParameterType(name="Tag", kind=Kind.LIST, merge=True),
    ParameterType(name="RequiredTag", kind=Kind.LIST, merge=True),
    ParameterType(name="Platform", kind=Kind.LIST),
    ParameterType(name="VO", kind=Kind.LIST),
    ParameterType(name="Backend", kind=Kind.STRING),
    ParameterType(name="CEType", kind=Kind.STRING),
    ParameterType(name="GenericPilots", kind=Kind.BOOLEAN),
    ParameterType(name="Mode", kind=Kind.STRING),
    ParameterType(name="Forwards", kind=Kind.BOOLEAN),
    ParameterType(name="JcList", kind=Kind.STRING),
)  # parameters that the program itself works with (`settings`), in its units
WELL_KNOWN_BY_NAME: Mapping[str, ParameterType] = {fold(declared.name): declared for declared in WELL_KNOWN}


# --- versions -------------------------------------------------------------------------------------------

_VersionKey = tuple[tuple[int, int, str], ...]

_MAX_VERSION = 128

_VERSION_PART = re.compile(r"[0-9]+|[a-z]+")
_VERSION = re.compile(r"[A-Za-z0-9_.+\-~:/ ]+")
_PRE_RELEASE = frozenset({"a", "alpha", "b", "beta", "rc", "pre", "preview", "dev", "snapshot"})
_PRE, _END, _WORD, _NUMBER = range(4)


@lru_cache(maxsize=4096)
def version_key(text: str) -> _VersionKey:
    """Orders versions: `1.2` < `1.10`, `1.0rc1` < `1.0` < `1.0.1`, `v7r2` < `v7r2p13`, `1` = `1.0`. Raises BadValue.

    A text is cut at `.`, `-`, `_`, `+`, `/`, blanks and wherever letters meet digits. A pre-release word (alpha, beta,
    rc, pre, dev ...) is before the end of the text, the end before any other word, a word before a number. Zeros that
    end a run of numbers say nothing.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > _MAX_VERSION or not _VERSION.fullmatch(stripped):
        raise BadValue(f"{stripped[:_MAX_VERSION]!r} is not a version")
    parts: list[tuple[int, int, str]] = []
    for part in _VERSION_PART.findall(stripped.lower()):
        if part[0].isdecimal():
            parts.append((_NUMBER, int(part), ""))
            continue
        _drop_zeros(parts)
        parts.append((_PRE if part in _PRE_RELEASE else _WORD, 0, part))
    if not parts:
        raise BadValue(f"{stripped!r} is not a version")
    _drop_zeros(parts)
    return (*parts, (_END, 0, ""))


def canonical_version(text: str) -> str:
    """One spelling for equal versions."""
    spelled = ""
    before = None
    for rank, number, word in version_key(text)[:-1]:
        is_number = rank == _NUMBER
        spelled += "." if before is is_number else ""  # where letters meet digits no mark is needed
        spelled += str(number) if is_number else word
        before = is_number
    return spelled or "0"


def _drop_zeros(parts: list[tuple[int, int, str]]) -> None:
    while parts and parts[-1][:2] == (_NUMBER, 0):
        parts.pop()
