"""Functions of ClassAds that make, cut and compare texts, and those of lists as texts ("a, b, c")."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Final

from lodesman.languages.classad.ads import Run
from lodesman.languages.classad.values import (
    ERROR,
    MAX_TEXT,
    UNDEFINED,
    AbsTime,
    NestedAd,
    RelTime,
    Special,
    Value,
    lower,
    number,
    steps_of,
    upper,
)
from lodesman.languages.classad.write import write_time, write_value

_MISSING: Final = object()
USUAL_MARKS: Final = " ,"
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_REAL: Final = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?", re.ASCII)
_NUMBER: Final = re.compile(r"\s*+([+-]?(?!0[xX])(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_MOST_DIGITS: Final = 4_000
_SHORT: Final = 32
"""Characters that cost nothing beside the call."""


def print_value(value: Value) -> str:
    """A value as functions print it."""
    if isinstance(value, str):
        return value
    return _inside(value)


def _inside(value: Value) -> str:
    if isinstance(value, tuple):
        return f"{{ {','.join(map(_inside, value))} }}"
    if isinstance(value, float):
        return f"{value:.15E}" if value else repr(value)
    if isinstance(value, (str, bool, int, Special)):
        return write_value(value)
    if isinstance(value, (AbsTime, RelTime)):
        return write_time(value)
    return f"[ {write_value(value)[1:-1]} ]"


def _read_whole(digits: str) -> float:
    """A number that is far too large is rounded."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _read_number(text: str) -> float | None:
    match = _NUMBER.match(text)
    if not match:
        return None
    return _read_whole(match[1]) if match[1].lstrip("+-").isdecimal() else float(match[1])


def plain_number(value: Value) -> Value:
    """The number that a number, a truth value or a text is; UNDEFINED stays, all else is ERROR."""
    if isinstance(value, (Special, int, float)):
        return value
    if isinstance(value, (AbsTime, RelTime)):
        return int(value.seconds)
    plain = _read_number(value) if isinstance(value, str) else None
    return ERROR if plain is None else number(plain)


def bound_text(text: str) -> Value:
    """ERROR for too long a text: expressions could double one again and again."""
    return text if len(text) <= MAX_TEXT else ERROR


def _first_special(values: tuple[Value, ...]) -> Special | None:
    return next((value for value in values if isinstance(value, Special)), None)


def _unknown_first(values: tuple[Value, ...]) -> Special | None:
    return UNDEFINED if UNDEFINED in values else _first_special(values)


def _on_text(work: Callable[[str], Value], value: Value) -> Value:
    return value if isinstance(value, Special) else work(print_value(value))


def _strcat(*values: Value) -> Value:
    special = _first_special(values)
    return bound_text("".join(map(print_value, values))) if special is None else special


def _join(*words: Value) -> Value:
    if len(words) == 1 and not isinstance(words[0], tuple):
        return words[0] if isinstance(words[0], Special) else ""
    separator, rest = ("", words) if len(words) == 1 else (words[0] if words else "", words[1:])
    if len(rest) == 1 and isinstance(rest[0], tuple):
        rest = rest[0]
    if separator is ERROR or ERROR in rest:
        return ERROR
    texts = [print_value(value) for value in rest if value is not UNDEFINED]
    if not texts and (rest or separator is UNDEFINED):
        return UNDEFINED
    between = print_value(separator) if separator is not UNDEFINED else ""
    length = sum(map(len, texts)) + len(between) * (len(texts) - 1)
    return between.join(texts) if length <= MAX_TEXT else ERROR


def _split(value: Value, marks: Value = " ,\t") -> Value:
    if not isinstance(value, str) or not isinstance(marks, str):
        return ERROR
    parts: list[str] = []
    begin, last, ends = 0, "", frozenset(marks)
    for at, mark in enumerate(value):
        if mark not in ends:
            continue
        if at > begin:
            parts.append(value[begin:at])
        elif mark == last:
            parts.append("")  # one mark twice, but for blanks
        last = last if mark.isspace() else mark
        begin = at + 1
    return (*parts, value[begin:]) if begin < len(value) else tuple(parts)


def _substr(value: Value, offset: Value, length: Value = MAX_TEXT) -> Value:
    if UNDEFINED in (value, offset, length):
        return UNDEFINED
    if not isinstance(value, str) or type(offset) is not int or type(length) is not int:
        return ERROR
    start = max(0, offset + len(value) if offset < 0 else offset)
    stop = len(value) + length if length < 0 else start + length
    return value[start : max(start, stop)]


def _sign(left: str, right: str) -> int:
    return (left > right) - (left < right)


def _compare_texts(change: Callable[[str], str], left: Value, right: Value) -> Value:
    special = _unknown_first((left, right))
    return _sign(change(print_value(left)), change(print_value(right))) if special is None else special


# --- versions ---------------------------------------------------------------------------------------------


def _version_sign(left: str, right: str) -> int:
    """Runs of digits are numbers, those with leading zeros fractions: 1.9 < 1.10, 1.01 < 1.1."""
    at = 0
    for piece, other in zip_longest(left, right, fillvalue=""):
        if piece != other:
            break
        at += 1
    else:
        return 0
    begin = at
    while begin and left[begin - 1].isdigit():
        begin -= 1
    first, second = _digits(left, begin), _digits(right, begin)
    if not first or not second:
        return _sign(left[at : at + 1], right[at : at + 1])
    if first[0] == "0" or second[0] == "0":
        zeros = len(first) - len(first.lstrip("0")), len(second) - len(second.lstrip("0"))
        if zeros[0] != zeros[1]:
            # More zeros are less; nothing but zeros is less than zeros and a digit.
            return -1 if zeros[0] > zeros[1] else 1
        return _sign(left[at : at + 1], right[at : at + 1])
    if len(first) != len(second):
        return 1 if len(first) > len(second) else -1
    return _sign(left[at : at + 1], right[at : at + 1])


def _digits(text: str, start: int) -> str:
    stop = start
    while stop < len(text) and "0" <= text[stop] <= "9":
        stop += 1
    return text[start:stop]


def _version(holds: Callable[[int], Value], left: Value, right: Value) -> Value:
    special = _unknown_first((left, right))
    return holds(_version_sign(print_value(left), print_value(right))) if special is None else special


def _version_in_range(value: Value, low: Value, high: Value) -> Value:
    special = _unknown_first((low, high))
    if special is not None:
        return special
    if isinstance(value, Special):
        return ERROR
    text = print_value(value)
    return _version_sign(print_value(low), text) <= 0 <= _version_sign(print_value(high), text)


# --- texts that are lists ---------------------------------------------------------------------------------


def items_of(text: str, marks: str) -> list[str]:
    """The items between any of the marks, without blanks around them; empty ones are dropped."""
    first = marks[:1]
    marked = text.translate(dict.fromkeys(map(ord, marks), first)) if len(marks) > 1 else text
    parts = marked.split(first) if marks else [text]
    return [item for part in parts if (item := part.strip())]


def _text_list(work: Callable[[list[str]], Value], text: Value, marks: Value = USUAL_MARKS) -> Value:
    return work(items_of(text, marks)) if isinstance(text, str) and isinstance(marks, str) else ERROR


def _contains(
    work: Callable[[str, str, str], bool], empty: bool, left: Value, right: Value, marks: Value = USUAL_MARKS
) -> Value:
    """What is undefined contains nothing; `empty`: whether it is in everything."""
    marks = USUAL_MARKS if marks is UNDEFINED else marks
    if left == "" and right is UNDEFINED and empty:
        return True
    values = (left, right, marks)
    if not all(isinstance(value, str) or value is UNDEFINED for value in values):
        return ERROR
    if isinstance(left, str) and isinstance(right, str) and isinstance(marks, str):
        return work(left, right, marks)
    return UNDEFINED if left is right else left is UNDEFINED and empty


def _is_member(change: Callable[[str], str], item: str, text: str, marks: str) -> bool:
    return change(item) in map(change, items_of(text, marks))


def _is_subset(change: Callable[[str], str], some: str, text: str, marks: str) -> bool:
    return set(map(change, items_of(some, marks))) <= set(map(change, items_of(text, marks)))


def _intersect(left: Value, right: Value, marks: Value = USUAL_MARKS) -> Value:
    if ERROR in (left, right, marks):
        return ERROR
    if not isinstance(left, str) or not isinstance(right, str) or not isinstance(marks, str):
        return UNDEFINED if UNDEFINED in (left, right, marks) else ERROR
    return not set(items_of(left, marks)).isdisjoint(items_of(right, marks))


def _total(work: Callable[[list[float]], float], empty: Value, items: list[str]) -> Value:
    different = set(items)
    if not all(map(_REAL.fullmatch, different)):
        return ERROR
    numbers = list(map(_read_whole if all(map(_WHOLE.fullmatch, different)) else float, items))
    return number(work(numbers)) if numbers else empty


def _mean(numbers: list[float]) -> float:
    total = sum(numbers)
    if all(isinstance(number, int) for number in numbers):
        quotient = abs(total) // len(numbers)
        return quotient if total >= 0 else -quotient
    return total / len(numbers)


# --- what they cost ---------------------------------------------------------------------------------------

Cost = Callable[[Run, list[Value]], None]
"""Spends the steps of a call. Raises TooDear."""


def _cost(times: int, run: Run, values: list[Value]) -> None:
    for value in values:
        if isinstance(value, str):
            if len(value) >= _SHORT:
                run.spend(steps_of(value) * times)
        elif isinstance(value, (tuple, NestedAd)):
            run.spend_on(value, times)


cost_of_texts: Final = partial(_cost, 1)
"""All arguments are read or printed."""
cost_by_character: Final = partial(_cost, 8)
cost_by_word: Final = partial(_cost, 32)

_Work = tuple[Callable[..., Value], int, int]

TEXT_FUNCTIONS: Final[Mapping[str, _Work]] = {
    "string": (partial(_on_text, bound_text), 1, 1),
    "toupper": (partial(_on_text, upper), 1, 1),
    "tolower": (partial(_on_text, lower), 1, 1),
    "strcat": (_strcat, 0, 1_000),
    "join": (_join, 0, 1_000),
    "split": (_split, 1, 2),
    "substr": (_substr, 2, 3),
    "strcmp": (partial(_compare_texts, str), 2, 2),
    "stricmp": (partial(_compare_texts, lower), 2, 2),
    "versioncmp": (partial(_version, lambda sign: sign), 2, 2),
    "versiongt": (partial(_version, lambda sign: sign > 0), 2, 2),
    "versionge": (partial(_version, lambda sign: sign >= 0), 2, 2),
    "versionlt": (partial(_version, lambda sign: sign < 0), 2, 2),
    "versionle": (partial(_version, lambda sign: sign <= 0), 2, 2),
    "versioneq": (partial(_version, lambda sign: sign == 0), 2, 2),
    "version_in_range": (_version_in_range, 3, 3),
    "stringlistsize": (partial(_text_list, len), 1, 2),
    "stringlistsum": (partial(_text_list, partial(_total, sum, 0.0)), 1, 2),
    "stringlistavg": (partial(_text_list, partial(_total, _mean, 0.0)), 1, 2),
    "stringlistmin": (partial(_text_list, partial(_total, min, UNDEFINED)), 1, 2),
    "stringlistmax": (partial(_text_list, partial(_total, max, UNDEFINED)), 1, 2),
    "stringlistmember": (partial(_contains, partial(_is_member, str), False), 2, 3),
    "stringlistimember": (partial(_contains, partial(_is_member, lower), False), 2, 3),
    "stringlistsintersect": (_intersect, 2, 3),
    "stringlistsubsetmatch": (partial(_contains, partial(_is_subset, str), True), 2, 3),
    "stringlistisubsetmatch": (partial(_contains, partial(_is_subset, lower), True), 2, 3),
}
"""By name in small letters: the function, its fewest and most arguments."""
TEXT_COSTS: Final[Mapping[str, Cost]] = {
    name: cost_by_character for name in TEXT_FUNCTIONS if name.startswith(("stringlist", "version", "split"))
}
"""For functions that read each character, by name in small letters."""
