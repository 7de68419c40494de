"""Classes of ASCII characters in regular expressions, as in PCRE2 without a locale."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import Final

CharacterTest = Callable[[str], bool]
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")


def _among(marks: str) -> CharacterTest:
    members = frozenset(marks)
    return lambda character: character in members


def _none_of(marks: str) -> CharacterTest:
    members = frozenset(marks)
    return lambda character: character not in members


_PRINTED: Final = "".join(map(chr, range(0x20, 0x7F)))
_SETS: Final[Mapping[str, str]] = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(0x80))),
    "blank": " \t",
    "cntrl": "".join(map(chr, [*range(0x20), 0x7F])),
    "digit": string.digits,
    "graph": _PRINTED[1:],
    "lower": string.ascii_lowercase,
    "print": _PRINTED,
    "punct": string.punctuation,
    "space": " \t\n\r\f\v",
    "upper": string.ascii_uppercase,
    "word": "".join(_WORD),
    "xdigit": string.hexdigits,
}
POSIX: Final[Mapping[str, CharacterTest]] = {name: _among(marks) for name, marks in _SETS.items()}
"""`[[:name:]]` by name."""

_BY_LETTER: Final = {"d": "digit", "s": "space", "w": "word", "h": "blank"}
_LINE_ENDS: Final = "\n\v\f\r"
CLASSES: Final[Mapping[str, CharacterTest]] = {
    **{letter: _among(_SETS[name]) for letter, name in _BY_LETTER.items()},
    **{letter.upper(): _none_of(_SETS[name]) for letter, name in _BY_LETTER.items()},
    "v": _among(_LINE_ENDS),
    "V": _none_of(_LINE_ENDS),
    "N": _none_of("\n"),
    ".": lambda _: True,
}
r"""`\d` and the like by letter; "." is any character."""


def is_word(mark: str) -> bool:
    r"""Whether `\b` counts it to a word; "" is not."""
    return mark in _WORD


def _other_case(mark: str) -> str:
    return mark.swapcase() if mark.isascii() else mark


def literal(mark: str, *, fold: bool) -> CharacterTest:
    """The test for a character; `fold`: in either case."""
    other = _other_case(mark)
    if fold and other != mark:
        return lambda character: character == mark or character == other  # noqa: PLR1714 - a tuple takes longer
    return lambda character: character == mark


def either_case(test: CharacterTest) -> CharacterTest:
    """The test for what passes in one of its cases."""
    return lambda mark: test(mark) or test(_other_case(mark))
