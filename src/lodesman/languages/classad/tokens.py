"""The tokens of ClassAd texts, cut by one regular expression in linear time."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from lodesman.base.errors import SyntaxFault, fault_at
from lodesman.languages.classad.values import INT_MAX, number

_SKIP: Final = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*\*/)*"
_PIECES: Final = r"""(?:
      (?P<name>[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<number>(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(?![A-Za-z0-9_.])
    | "(?P<text>@)"
    | '(?P<quoted>(?:[^'\\\n]++|\\.)*)'
    | (?P<mark>=\?=|=!=|>>>|&&|\|\||==|!=|<=|>=|<<|>>|\?:|/(?!\*)|[-+*%<>!~&|^?:=;,.(){}\[\]])
    | (?P<end>\Z)
    | (?P<junk>.)
    )"""
_FLAGS: Final = re.VERBOSE | re.DOTALL | re.ASCII
_TOKEN: Final = re.compile(_SKIP + _PIECES.replace("@", r'(?:[^"\\]++|\\.)*'), _FLAGS)
# There a backslash is plain, but before a quote that does not end the line, and # begins a remark.
_OLD_TEXT: Final = r'(?:[^"\\]++|\\"(?!\r?\Z)|\\(?!")|\\(?="\r?\Z))*'
_OLD_TOKEN: Final = re.compile(rf"(?:{_SKIP}\#[^\n]*+)*+{_SKIP}" + _PIECES.replace("@", _OLD_TEXT), _FLAGS)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'"}
_NUMBER_WORD: Final = re.compile(r"[0-9.][A-Za-z0-9_.]*")
MOST_SHOWN: Final = 40


class AdToken(Struct, frozen=True, gc=False):
    """A word of a text."""

    kind: str  # name, number, text, quoted, mark, end.
    text: str  # What is between quotes, as it is written.
    start: int
    stop: int


def shown(text: str) -> str:
    """A piece of an ad's text in a message."""
    cut = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    return ascii(cut)[1:-1] if not cut.isprintable() else cut


def token_at(text: str, offset: int, end: int, *, old: bool = False) -> AdToken:
    """The next token before `end`; `old`: in the old form of ads. Raises SyntaxFault."""
    match = (_OLD_TOKEN if old else _TOKEN).match(text, offset, end)
    assert match is not None  # noqa: S101 - one of its branches takes any character
    kind, group = match.lastgroup or "", match.lastindex or 0
    start, stop = match.span(group)
    if kind == "junk":
        raise _fault_of_junk(text, start)
    if kind in {"text", "quoted"}:
        return AdToken(kind, match[group], start - 1, stop + 1)
    return AdToken(kind, match[group], start, stop)


def _fault_of_junk(text: str, start: int) -> SyntaxFault:
    mark = text[start]
    if mark in "\"'":
        return fault_at(text, start, "a text that is never closed", hint=r"A quote inside is written \".")
    if text.startswith("/*", start):
        return fault_at(text, start, "a comment that is never closed", hint="Close it with */.")
    word = _NUMBER_WORD.match(text, start)
    if word:
        hint = "Numbers are decimal and have no unit: 1024, 0.5, 1e9."
        return fault_at(text, start, f"{shown(word[0])} is not a number", hint=hint)
    character = mark if mark.isprintable() else f"U+{ord(mark):04X}"
    return fault_at(text, start, f"unexpected character {character}")


def unescape(text: str, token: AdToken, *, old: bool = False) -> str:
    """The text in a token's quotes. Raises SyntaxFault at an unknown escape."""
    if old and token.kind == "text":
        return token.text.replace('\\"', '"')

    def letter(match: re.Match[str]) -> str:
        code = match[1]
        if code in _LETTERS:
            return _LETTERS[code]
        if code[0] in "01234567" and int(code, 8):
            return chr(int(code, 8))
        hint = r"Known are \" \' \\ \n \t \r \b \f and octal digits but 0; a backslash is written \\."
        raise fault_at(text, token.start + 1 + match.start(), f"unknown escape {shown(match[0])}", hint=hint)

    return _ESCAPE.sub(letter, token.text) if "\\" in token.text else token.text


def number_of(text: str, token: AdToken, *, negative: bool = False) -> int | float:
    """Raises SyntaxFault if 64 bits do not hold it, and at a leading zero."""
    digits = token.text
    if not digits.isdecimal():
        real = float(digits)
        if number(real) != real:
            raise fault_at(
                text, token.start, f"the number {shown(digits)} is too large", hint="At most 1.79e308."
            )
        return -real if negative else real
    if len(digits) > 1 and digits[0] == "0":
        hint = f"Write {shown(digits.lstrip('0') or '0')}."
        raise fault_at(
            text, token.start, f"the number {shown(digits)} starts with 0, which may mean octal", hint=hint
        )
    whole = int(digits) if len(digits) < 20 else INT_MAX + 2
    if whole > INT_MAX + negative:
        hint = f"At most {INT_MAX}."
        raise fault_at(text, token.start, f"the whole number {shown(digits)} is beyond 64 bits", hint=hint)
    return -whole if negative else whole
