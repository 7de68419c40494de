"""Values of complexes by type (sge_types(1), complex(5)): text, canonical text, comparison.

Numbers of all types are as the real parser reads them: decimal with fraction and exponent, octal (`010`), hexadecimal,
then a multiplier: K M G T are powers of 1024, k m g t of 1000. They are exact (int, else Fraction), so that what is
booked and given back adds up to nothing.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from fnmatch import fnmatchcase
from fractions import Fraction

from lodesman.base.errors import InvalidConfig

Number = int | Fraction | float
"""Exact; of texts only INFINITY is a float, and load values may be any."""

Value = Number | str
"""A number (seconds, bytes; TRUE is 1), or text."""


class ComplexType(StrEnum):
    """The types of complexes."""

    INT = "INT"
    DOUBLE = "DOUBLE"
    MEMORY = "MEMORY"
    TIME = "TIME"
    BOOL = "BOOL"
    STRING = "STRING"
    CSTRING = "CSTRING"
    RESTRING = "RESTRING"
    HOST = "HOST"


class RelOp(StrEnum):
    """How a request compares with what is offered."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EXCL = "EXCL"


_TEXTS = frozenset({ComplexType.STRING, ComplexType.CSTRING, ComplexType.RESTRING, ComplexType.HOST})
_UNITS: dict[str, int] = {"": 1, **{letter: 1000**power for power, letter in enumerate("kmgt", 1)}}
_UNITS |= {letter.upper(): 1024**power for power, letter in enumerate("kmgt", 1)}
_NUMBER = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]{1,16})|(\d{1,60}\.?\d{0,90}|\.\d{1,90})(?:[eE]([+-]?\d{1,2}))?)([kKmMgGtT]?)",
    re.ASCII,
)
_OCTAL = re.compile(r"0[0-7]+")
_CLOCK = re.compile(r"(?:(\d{0,9}):)?(\d{0,9}):(\d{0,9})", re.ASCII)
_BEYOND, _FINEST = 10**60, 10**90
_TRUTH = {"true": 1, "1": 1, "false": 0, "0": 0}
_HINTS = {
    ComplexType.TIME: "Write seconds, or hours:minutes:seconds.",
    ComplexType.BOOL: "Write TRUE or FALSE.",
    ComplexType.MEMORY: "Write a number with K, M, G or T (1024) or k, m, g, t (1000).",
}


def is_numeric(kind: ComplexType) -> bool:
    """Whether its values are numbers."""
    return kind not in _TEXTS


def read_value(kind: ComplexType, text: str) -> Value:
    """Raises InvalidConfig without a position."""
    if kind in _TEXTS:
        read: Value | None = text.lower() if kind is ComplexType.HOST else text
        read = read or None
    elif text.upper() == "INFINITY" and kind is not ComplexType.BOOL:
        read = math.inf
    elif kind is ComplexType.BOOL:
        read = _TRUTH.get(text.lower())
    else:
        read = _number(text)
        if kind is ComplexType.TIME:
            read = _seconds(text) if read is None else math.floor(read + Fraction(1, 2))
    if read is None:
        hint = _HINTS.get(kind, "")
        raise InvalidConfig(
            f"{text[:40]!r} is no value of type {kind}.", hint=hint, value=text[:40], type=kind
        )
    return read


def exact(number: Number) -> Number:
    """An int if it is whole: sums of these are quick."""
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number


def _number(text: str) -> Number | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, hexadecimal, plain, exponent, unit = match.groups()
    if hexadecimal:
        size: int | Fraction = int(hexadecimal, 16)
    elif _OCTAL.fullmatch(plain) and not exponent:
        size = int(plain, 8)
    elif plain.isdecimal() and not exponent:
        size = int(plain)
    else:
        size = Fraction(plain) * Fraction(10) ** int(exponent or 0)
    number = size * _UNITS[unit] * (-1 if sign == "-" else 1)
    # What is written can be read again.
    if not -_BEYOND < number < _BEYOND or number.denominator > _FINEST:
        return None
    return exact(number)


def _seconds(text: str) -> int | None:
    match = _CLOCK.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (hours * 60 + minutes) * 60 + seconds


def write_value(kind: ComplexType, value: Value) -> str:
    """Canonical: it reads as the same value, and equal values have one text."""
    if isinstance(value, str):
        return value
    if kind is ComplexType.BOOL:
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return "INFINITY" if math.isinf(value) else f"{value:.15g}"
    if isinstance(value, Fraction) and value.denominator != 1:
        return _decimal(value)
    whole = int(value)
    if kind is ComplexType.MEMORY and whole:
        for unit in "TGMK":
            if whole % _UNITS[unit] == 0:
                return f"{whole // _UNITS[unit]}{unit}"
    return str(whole)


def _decimal(value: Fraction) -> str:
    places = 1
    while 10**places % value.denominator and places < 90:
        places += 1
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def holds(kind: ComplexType, relation: RelOp, requested: Value, offered: Value) -> bool:
    """Whether "requested relation offered" is true.

    Texts: a request is a shell pattern, several with `|` (any) and `&` (all), each with `!` (not); CSTRING and HOST
    ignore case.
    """
    if isinstance(requested, str) or isinstance(offered, str):
        request, offer = str(requested), str(offered)
        if kind in (ComplexType.CSTRING, ComplexType.HOST):
            request, offer = request.lower(), offer.lower()
        if relation in (RelOp.EQ, RelOp.NE, RelOp.EXCL):
            return _fits(request, offer) is not (relation is RelOp.NE)
        return _compare_sign(relation, (request > offer) - (request < offer))
    return _compare_sign(relation, (requested > offered) - (requested < offered))


def _compare_sign(relation: RelOp, sign: int) -> bool:
    match relation:
        case RelOp.LT:
            return sign < 0
        case RelOp.LE:
            return sign <= 0
        case RelOp.GT:
            return sign > 0
        case RelOp.GE:
            return sign >= 0
        case RelOp.NE:
            return sign != 0
        case RelOp.EQ | RelOp.EXCL:
            return sign == 0


def _fits(request: str, offer: str) -> bool:
    return any(
        all(
            fnmatchcase(offer, pattern.removeprefix("!")) is not pattern.startswith("!")
            for pattern in either.split("&")
        )
        for either in request.split("|")
    )


# --- texts with brackets, and names of classes ---------------------------------------------------------------


class UnreadableValue(ValueError):
    """The text is a sentence without a full stop."""


_BRACKET_OR_COMMA = re.compile(r"[\[\],]")


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas outside brackets. Raises UnreadableValue for brackets that do not close."""
    if "[" not in text and "]" not in text:
        return text.split(",")
    pieces, start, depth = [], 0, 0
    for mark in _BRACKET_OR_COMMA.finditer(text):
        if mark[0] == "[":
            depth += 1
        elif mark[0] == "]":
            depth -= 1
            if depth < 0:
                raise UnreadableValue("a ']' closes nothing")
        elif not depth:
            pieces.append(text[start : mark.start()])
            start = mark.end()
    if depth:
        raise UnreadableValue("a '[' is never closed")
    return [*pieces, text[start:]]


_NAME = re.compile(r"\w[\w+-]*\Z")
_MAX_NAME = 255


def class_name_problem(name: str) -> str:
    """What is wrong with a name of a job class or variant, without a full stop; "" if nothing."""
    if len(name) > _MAX_NAME:
        return f"has {len(name)} characters; at most {_MAX_NAME}"
    if _NAME.match(name):
        return ""
    wrong = next((letter for letter in name if not _NAME.match(f"a{letter}")), name[:1])
    return (
        f"contains {wrong!r}; it has letters, digits and _, and behind the first + and -"
        if wrong
        else "is empty"
    )
