"""The words of a line of a batch system, and the variables of a list in such a word, as these systems split them."""

from __future__ import annotations

import re
import shlex
from typing import Final

_WORD: Final = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""")
_PIECE: Final = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|.""")
_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_ITEM: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^,'"])+""")
_LONG_NAME: Final = re.compile(r"--[\w-]+=")


class SplitLine:
    """The words of a line as a shell splits them. `torn`: those in which the line's own quotes, or a backslash, hold a comma
    of one value, which who reads the list of variables does not see any more. `cuts_words`: a `#` within a word begins a
    comment, too. Raises ValueError for a quote that is never closed.
    """

    def __init__(self, line: str, *, cuts_words: bool) -> None:
        raw = list(_WORD.finditer(line))
        if not cuts_words:
            begin = next((one.start() for one in raw if one[0].startswith("#")), len(line))
            line, raw = line[:begin], [one for one in raw if one.start() < begin]
        self.words = shlex.split(line, comments=cuts_words)
        self.torn = {shlex.split(one[0])[0] for one in raw if _is_torn(one[0])}


def _is_torn(raw: str) -> bool:
    in_value = False
    for piece in _PIECE.findall(_LONG_NAME.sub("", raw, count=1) if raw.startswith("--") else raw):
        if piece == "\\,":
            return True
        if piece in "=,":
            in_value = piece == "="
        elif in_value and len(piece) > 1 and piece[0] in "'\"" and len(listed(piece[1:-1]) or ",,") > 1:
            return True
    return False


def listed(text: str) -> list[str] | None:
    """What stands between commas that are not in quotes; None if a quote is never closed."""
    return None if re.search(r"['\"]", _QUOTED.sub("", text)) else _ITEM.findall(text)


def without_quotes(text: str) -> str:
    """A value without the quotes around its parts."""
    return _QUOTED.sub(r"\1\2", text)
