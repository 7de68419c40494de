"""Splitting `Arguments` into words as a POSIX shell does, in linear time and with the place of a fault.

Same result as `shlex.split`, which takes quadratic time on a long word and tells no position.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*+\Z")
_PIECE = re.compile(
    r"""(?P<blank>[ \t\r\n]++)
    | (?P<bare>[^ \t\r\n"'\\]++)
    | '(?P<single>[^']*+)'
    | "(?P<double>(?:[^"\\]++|\\.)*+)"
    | \\(?P<escaped>.)
    | (?P<broken>.)""",
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE = re.compile(r'\\(["\\])')


class BrokenQuote(ValueError):
    """A quote or backslash that ends nothing; `offset` is where it stands."""

    def __init__(self, mark: str, offset: int) -> None:
        what = "a backslash at the end" if mark == "\\" else f"a {mark} that is never closed"
        super().__init__(f"{what} (character {offset + 1} of the text)")
        self.offset = offset


def split_words(text: str) -> list[str]:
    """The words of a command line. Raises BrokenQuote."""
    if _PLAIN.match(text):  # no quotes, no backslashes, nothing but blanks to split at
        return text.split()
    words: list[str] = []
    word: list[str] | None = None
    for match in _PIECE.finditer(text):
        kind = match.lastgroup
        if kind == "broken":
            raise BrokenQuote(match["broken"], match.start())
        if kind == "blank":
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        word.append(_IN_DOUBLE.sub(r"\1", match["double"]) if kind == "double" else match[kind or 0])
    if word is not None:
        words.append("".join(word))
    return words
