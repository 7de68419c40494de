"""Values of ClassAds and their operators: three-valued logic, with UNDEFINED and ERROR.

value = bool | int | float | str | tuple of values | Ad | AbsTime | RelTime | UNDEFINED | ERROR

Whole numbers have 64 bits. Texts are compared without regard to ASCII case, but for `=?=` and `=!=`, as in HTCondor.
What a number cannot hold is ERROR (HTCondor wraps it round).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias

from msgspec import Struct

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
MAX_TEXT: Final = 1 << 16
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code + 32: code for code in range(ord("A"), ord("Z") + 1)}


class Special(Enum):
    """No data: nothing is known, or something is wrong."""

    UNDEFINED = "undefined"
    ERROR = "error"

    def __bool__(self) -> bool:
        raise TypeError(f"{self.value} is neither true nor false")


UNDEFINED: Final = Special.UNDEFINED
ERROR: Final = Special.ERROR


class NestedAd:
    """An ad as a value; `ads.Ad` is the only kind."""

    __slots__ = ()


class AbsTime(Struct, frozen=True):
    """Seconds since 1970, and the seconds that its zone is ahead of UTC."""

    seconds: int
    ahead: int


class RelTime(Struct, frozen=True):
    """A span of time."""

    seconds: float


Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | NestedAd | AbsTime | RelTime | Special"
Operation = Callable[[Value, Value], Value]
_Number = (int, float)  # bool is a number, too


def lower(text: str) -> str:
    """ASCII letters only."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def upper(text: str) -> str:
    """ASCII letters only."""
    return text.upper() if text.isascii() else text.translate(_UPPER)


def steps_of(value: Value) -> int:
    """The cost to go through a text; other values cost nothing. Case of letters beyond ASCII is dear."""
    if not isinstance(value, str):
        return 0
    return len(value) >> (5 if value.isascii() else 2)


def truth(value: Value) -> bool | Special:
    """A condition: numbers count; a text, a list or an ad is ERROR."""
    if value is True or value is False or isinstance(value, Special):
        return value
    return value != 0 if isinstance(value, _Number) else ERROR


def is_true(value: Value) -> bool:
    """Whether a match may follow: true, or a number but zero."""
    return value is True or (isinstance(value, _Number) and value != 0)


def number(value: float) -> Value:
    """ERROR if 64 bits do not hold it."""
    if isinstance(value, int):
        return value if INT_MIN <= value <= INT_MAX else ERROR
    return value if math.isfinite(value) else ERROR


def _special(left: Value, right: Value) -> Value:
    if left is ERROR or right is ERROR:
        return ERROR
    return UNDEFINED if left is UNDEFINED or right is UNDEFINED else ERROR


_Timed = Callable[[Value, Value], "Value | None"]


def _sum_of_times(left: Value, right: Value) -> Value | None:
    if isinstance(left, RelTime) and isinstance(right, AbsTime):
        left, right = right, left
    if isinstance(right, RelTime):
        if isinstance(left, AbsTime):
            return AbsTime(left.seconds + int(right.seconds), left.ahead)
        return RelTime(left.seconds + right.seconds) if isinstance(left, RelTime) else None
    return None


def _difference_of_times(left: Value, right: Value) -> Value | None:
    if isinstance(left, AbsTime) and isinstance(right, AbsTime):
        return RelTime(float(left.seconds - right.seconds))
    return _sum_of_times(left, RelTime(-right.seconds)) if isinstance(right, RelTime) else None


def _product_of_times(left: Value, right: Value) -> Value | None:
    if isinstance(left, RelTime):
        left, right = right, left
    if isinstance(right, RelTime) and type(left) in {int, float}:
        return RelTime(left * right.seconds)  # type: ignore[operator]  # a number
    return None


def _part_of_times(left: Value, right: Value) -> Value | None:
    if isinstance(left, RelTime) and type(right) in {int, float} and right != 0:
        return RelTime(left.seconds / right)  # type: ignore[operator]  # a number
    return None


def _of_times(timed: _Timed, left: Value, right: Value) -> Value:
    result = timed(left, right)
    if result is None:
        return _special(left, right)
    return result if isinstance(result, (AbsTime, RelTime)) and abs(result.seconds) < INT_MAX else ERROR


def _arithmetic(compute: Callable[[float, float], float], timed: _Timed) -> Operation:
    def operation(left: Value, right: Value) -> Value:
        if isinstance(left, _Number) and isinstance(right, _Number):
            try:
                return number(compute(left, right))
            except (ZeroDivisionError, OverflowError):
                return ERROR
        return _of_times(timed, left, right)

    return operation


def _divide(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _remainder(left: Value, right: Value) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return ERROR if right == 0 else int(left - right * _divide(left, right))
    return _special(left, right)


def _bitwise(compute: Callable[[int, int], int]) -> Operation:
    def operation(left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            return _to_signed(compute(left, right))
        return _special(left, right)

    return operation


def _to_signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _unsigned_shift(value: int, by: int) -> int:
    return (value % (1 << 64)) >> (by % 64)


def _compare(compare: Callable[[float, float], bool], texts: Callable[[str, str], bool]) -> Operation:
    def operation(left: Value, right: Value) -> Value:
        if isinstance(left, str):
            if isinstance(right, str):
                return texts(lower(left), lower(right))
        elif isinstance(left, _Number) and isinstance(right, _Number):
            # As in HTCondor a whole number becomes a real one beside a real one.
            mixed = isinstance(left, float) is not isinstance(right, float)
            return compare(float(left), float(right)) if mixed else compare(left, right)
        elif isinstance(left, (AbsTime, RelTime)) and type(left) is type(right):
            return compare(left.seconds, right.seconds)
        return _special(left, right)

    return operation


def same(left: Value, right: Value) -> Value:
    """`=?=`, which is `is`: never UNDEFINED. Types and the case of texts count; two lists and two ads are ERROR."""
    if type(left) is not type(right):
        return False
    return ERROR if isinstance(left, (tuple, NestedAd)) else left == right


def is_ad(value: Value) -> bool:
    """Whether it is a nested ad."""
    return isinstance(value, NestedAd)


def _differ(left: Value, right: Value) -> Value:
    equal = same(left, right)
    return equal if equal is ERROR else equal is not True


STRICT: Final[Mapping[str, Operation]] = {
    "+": _arithmetic(operator.add, _sum_of_times),
    "-": _arithmetic(operator.sub, _difference_of_times),
    "*": _arithmetic(operator.mul, _product_of_times),
    "/": _arithmetic(_divide, _part_of_times),
    "%": _remainder,
    "&": _bitwise(operator.and_),
    "|": _bitwise(operator.or_),
    "^": _bitwise(operator.xor),
    "<<": _bitwise(lambda value, by: value << (by % 64)),
    ">>": _bitwise(lambda value, by: value >> (by % 64)),
    ">>>": _bitwise(_unsigned_shift),
    "<": _compare(operator.lt, operator.lt),
    "<=": _compare(operator.le, operator.le),
    ">": _compare(operator.gt, operator.gt),
    ">=": _compare(operator.ge, operator.ge),
    "==": _compare(operator.eq, operator.eq),
    "!=": _compare(operator.ne, operator.ne),
    "=?=": same,
    "=!=": _differ,
}
"""Operators that need both values, as written."""

UnaryName = Literal["-", "+", "!", "~"]


def unary(name: UnaryName, value: Value) -> Value:
    """One of the operators before a value."""
    if isinstance(value, Special):
        return value
    if name == "!":
        condition = truth(value)
        return condition if isinstance(condition, Special) else not condition
    if name == "~":
        return ~value if type(value) is int else ERROR
    if isinstance(value, RelTime) and name == "-":
        return RelTime(-value.seconds)
    if isinstance(value, bool) or not isinstance(value, _Number):
        return ERROR
    return number(-value) if name == "-" else value
