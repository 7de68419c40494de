"""Numbers with units: "4000", 4000.0 and "4000 MB" are one number of a parameter in MB.

Sizes are binary: 1 MB is 2^20 bytes. Letter case does not matter: `m` is a minute or a megabyte. Any other declared
unit (say, "HS06") is not converted.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from lodesman.decide.resources.model import BadValue

Number = int | float

_MAX_DIGITS = 64
_MAX_EXPONENT = 300
_LIMIT = 10**_MAX_EXPONENT

_NUMBER = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)\s*(\S.*)?")

_SIZES = {
    word: Fraction(2 ** (10 * power))
    for power, letter in enumerate(("", "k", "m", "g", "t", "p", "e"))
    for word in ({"b", "byte", "bytes"} if power == 0 else {letter, f"{letter}b", f"{letter}ib"})
}
_TIMES = {
    word: Fraction(seconds)
    for seconds, words in (
        (Fraction(1, 1000), ("ms",)),
        (1, ("s", "sec", "second", "seconds")),
        (60, ("m", "min", "minute", "minutes")),
        (3600, ("h", "hour", "hours")),
        (86_400, ("d", "day", "days")),
        (604_800, ("w", "week", "weeks")),
    )
    for word in words
}
_FREQUENCIES = {"hz": Fraction(1), "khz": Fraction(10**3), "mhz": Fraction(10**6), "ghz": Fraction(10**9)}
_FAMILIES = (_SIZES, _TIMES, _FREQUENCIES)


def number_in(value: object, unit: str = "") -> Number:
    """In `unit`; whole numbers come out as int. Raises BadValue."""
    if isinstance(value, str):
        return _number_of_text(value, unit)
    if type(value) is int and -_LIMIT < value < _LIMIT:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"{value!r} is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(f"{value!r} is not a finite number")
    if abs(value) >= _LIMIT:
        raise BadValue("the number is too large")
    # By its shortest text, not its binary value: the text "9.968528598945203e+16" is the same number.
    return value if not float(value).is_integer() else int(Decimal(repr(value)))


def plain_number(text: str) -> Number | None:
    """The number that a text without unit spells."""
    try:
        return _number_of_text(text, "")
    except BadValue:
        return None


def convert(value: Number, *, unit: str, to: str) -> Number:
    """Raises BadValue if the units are of different families."""
    return _whole_if_possible(Fraction(value) * _factor(unit, to))


def _number_of_text(text: str, unit: str) -> Number:
    stripped = text.strip()
    if len(stripped) > _MAX_DIGITS:
        raise BadValue("a number this long is not read")
    match = _NUMBER.fullmatch(stripped)
    if match is None:
        raise BadValue(f"{stripped!r} is not a number")
    number = Decimal(match[1])
    if number and abs(number.adjusted()) >= _MAX_EXPONENT:
        raise BadValue(f"{stripped!r} is out of range")
    return _whole_if_possible(Fraction(number) * _factor(match[2] or unit, unit))


def _factor(unit: str, base: str) -> Fraction:
    unit, base = unit.strip().lower(), base.strip().lower()
    if unit == base:
        return Fraction(1)
    for family in _FAMILIES:
        if base in family:
            if unit in family:
                return family[unit] / family[base]
            break
    raise BadValue(f"unit {unit!r} does not fit here" + (f" (want {base!r})" if base else " (want none)"))


def _whole_if_possible(number: Fraction) -> Number:
    if abs(number) >= _LIMIT:
        raise BadValue("the number is too large")
    # A fraction may be no float but the whole number beside it, which is the int then as everywhere.
    return number.numerator if number.denominator == 1 else number_in(float(number))
