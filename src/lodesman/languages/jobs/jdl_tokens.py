"""The tokens of JDL, cut by one regular expression, and what a wrong piece is.

Nothing matches in two ways, so the work is linear.
"""

from __future__ import annotations

import math
import re
from typing import Final

from lodesman.base.errors import SyntaxFault, fault_at
from lodesman.languages.jobs.record import INT_MAX, INT_MIN, shown

# Groups repeat without a possessive mark: Python before 3.11.5 matches those wrongly (gh-106052). No two branches
# begin alike, so going back finds nothing else.
_SKIP = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]++|\*(?!/))*\*/)*"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z0-9_]++)*"

# Groups in the order of how often they occur. `assign` is a name with the `=` after it, `text` a string
# without escapes, `quoted` one with escapes, `odd` a name in single quotes, `end` the end of the text.
TOKEN: Final = re.compile(
    rf"""{_SKIP}(?:
      (?P<assign>{_NAME}){_SKIP}=(?!=)
    | (?P<punct>[][{{}};,])
    | "(?P<text>[^"\\\n]*+)"
    | (?P<number>[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(?![A-Za-z0-9_.])
    | "(?P<quoted>(?:[^"\\\n]++|\\.)*)"
    | (?P<word>{_NAME})
    | '(?P<odd>(?:[^'\\\n]++|\\.)*)'{_SKIP}=(?!=)
    | (?P<end>\Z)
    | (?P<junk>.)
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
NAME: Final = re.compile(_NAME, re.ASCII)
_BLANK = re.compile(_SKIP, re.VERBOSE | re.ASCII)
# What people take for a name, up to the "=" after it.
_MEANT_NAME = re.compile(r"""[^\s=;,"'\[\]{}()<>!&|+*/?:~^%#]++(?=\s*+=(?!=))""")

_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_LETTERS |= {mark: mark for mark in "\\\"'/?"}
_WRITTEN = {code: f"\\{code:03o}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_WRITTEN |= {ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r", ord("\\"): "\\\\"}
_IN_TEXT = str.maketrans(_WRITTEN | {ord('"'): '\\"'})
_IN_NAME = str.maketrans(_WRITTEN | {ord("'"): "\\'"})
_HEX = re.compile(r"[+-]?0[xX][0-9A-Fa-f]*")
_SINGLE_QUOTED = re.compile(r"'[^'\n]*+'")
_NUMBER_WORD = re.compile(r"[+-]?[0-9.]+[A-Za-z0-9_.]*")


def unescape(text: str, start: int, stop: int) -> str:
    """The string between two quotes. Raises SyntaxFault at a bad escape."""

    def letter(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "01234567" and 0 < int(code, 8) < 256:
            return chr(int(code, 8))
        if code in _LETTERS:
            return _LETTERS[code]
        escape = match[0] if code.isprintable() else "(a backslash at the end of a line)"
        hint = r"Known are \" \\ \n \t \r \b \f and three octal digits; a backslash is written \\."
        raise fault_at(text, start + match.start(), f"unknown escape {escape}", hint=hint)

    return _ESCAPE.sub(letter, text[start:stop])


_PLACE = re.compile(r"%(?:\([A-Za-z_]\w{0,40}\))?[snj]")
_UNQUOTED = re.compile(r"[^;,{}\[\]\"'\n\\]++")
_OPERATOR = re.compile(r"\A[(!~]|[=<>&|?]|[ \t][-+*/%][ \t]|\A[^ \t]*\(")


def quote(text: str) -> str:
    """A string literal that reads as `text`."""
    return f'"{text.translate(_IN_TEXT)}"'


def written_name(name: str) -> str:
    """In single quotes unless the name is plain."""
    return name if NAME.fullmatch(name) else f"'{name.translate(_IN_NAME)}'"


def number(text: str, offset: int, literal: str) -> int | float:
    """Raises SyntaxFault for overflow and for a leading zero."""
    digits = literal.lstrip("+-")
    if not digits.isdecimal():
        value = float(literal)
        if not math.isfinite(value):
            raise fault_at(
                text, offset, f"the number {_short(literal)} is too large", hint="At most 1.79e308."
            )
        if value == 0.0 and literal.lower().partition("e")[0].strip("+-0."):
            raise fault_at(text, offset, f"the number {_short(literal)} is too small", hint="Write 0.0.")
        return value
    if len(digits) > 1 and digits[0] == "0":
        message = f"the number {_short(literal)} starts with 0, which may mean octal"
        hint = f'Write {_short(digits.lstrip("0") or "0")}, or "{_short(literal)}" if it is a text.'
        raise fault_at(text, offset, message, hint=hint)
    whole = int(literal) if len(digits) < 20 else INT_MAX + 1
    if not INT_MIN <= whole <= INT_MAX:
        hint = f"At most {INT_MAX}; longer ones can be written as text in quotes."
        raise fault_at(text, offset, f"the whole number {_short(literal)} is beyond 64 bits", hint=hint)
    return whole


def fault_of_junk(text: str, offset: int) -> SyntaxFault:
    """What is wrong with text that is no token."""
    mark = text[offset]
    if mark in "\"'":
        if _SINGLE_QUOTED.match(text, offset):
            return fault_at(text, offset, "text in single quotes", hint="Values stand in double quotes.")
        hint = r"Close it on the same line; a line break inside is written \n, a quote \"."
        return fault_at(text, offset, "a string that is never closed", hint=hint)
    if text.startswith("/*", offset):
        return fault_at(text, offset, "a comment that is never closed", hint="Close it with */.")
    word = _HEX.match(text, offset)
    if word:
        message = f"hexadecimal numbers are not read: {_short(word[0])}"
        return fault_at(text, offset, message, hint="Write the number in decimal.")
    word = _NUMBER_WORD.match(text, offset)
    if word:
        message = f"{_short(word[0])} is not a number"
        return fault_at(text, offset, message, hint=f'Put it in double quotes: "{_short(word[0])}".')
    if mark in "()<>=!&|+-*/%?:~^":
        return unquoted_fault(text, offset)
    mark_text = mark if mark.isprintable() else f"U+{ord(mark):04X}"
    return fault_at(text, offset, f"unexpected character {mark_text}", hint="Put text in double quotes.")


def fault_after_name(text: str, start: int, stop: int) -> SyntaxFault:
    """A name without quotes, which ends at `stop`, has no `=` after it."""
    name = shown(text[start:stop])
    meant = _MEANT_NAME.match(text, start)
    if meant and meant.end() > stop:
        hint = f"In single quotes it can: '{shown(meant[0])}' = ..."
        return fault_at(text, stop, f"{shown(text[stop])} cannot stand in a name", hint=hint)
    at = _BLANK.match(text, stop).end()  # type: ignore[union-attr]  # matches always
    if text.startswith("==", at):
        hint = f"'==' compares; write {name} = value;"
        return fault_at(text, at, f"'==' stands after {name}, where '=' is needed", hint=hint)
    begin = f"{shown(text[at])} stands" if at < len(text) else "the text ends"
    return fault_at(text, at, f"{begin} after {name}, where '=' is needed", hint="")


def fault_of_quoted_name(text: str, start: int, stop: int) -> SyntaxFault | None:
    """A name in double quotes before `=`; None without `=`, or for `==`."""
    at = _BLANK.match(text, stop + 1).end()  # type: ignore[union-attr]  # matches always
    if text[at : at + 1] != "=" or text[at + 1 : at + 2] == "=":
        return None
    name = text[start:stop]
    how = "Write it without" if NAME.fullmatch(name) else "Write it in single ones"
    hint = f"{how}: {shown(written_name(name))} = ..."
    return fault_at(text, start - 1, f"the name {shown(name)} stands in double quotes", hint=hint)


def unquoted_fault(text: str, offset: int) -> SyntaxFault:
    """A text without quotes, or an expression, in the place of a value."""
    if place := _PLACE.match(text, offset):
        hint = f'It stands in quotes: "{place[0]}". What it stands for is a text, a number or a truth value, never a list.'
        return fault_at(text, offset, f"{place[0]}, the place of a parameter, without quotes", hint=hint)
    plain = _UNQUOTED.match(text, offset)
    run = plain[0].rstrip() if plain else ""
    begins = text[:offset].rstrip()[-1:] in ("=", "{", ",")
    if run and begins and not _OPERATOR.search(run):
        words = run if len(run) <= 40 else f"{run[:36]}..."
        return fault_at(
            text, offset, f"{words} stands without quotes", hint=f'Text stands in double quotes: "{words}".'
        )
    hint = (
        'An expression stands in quotes: Requirements = [ Memory = 4000; Constraint = "Disk >= 5 || GPU"; ].'
    )
    return fault_at(text, offset, "an expression, where a value is needed", hint=hint)


def _short(literal: str) -> str:
    return literal if len(literal) <= 24 else f"{literal[:20]}..."
