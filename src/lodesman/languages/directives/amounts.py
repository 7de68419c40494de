"""Times, sizes, indexes and words as each batch system writes them. None: no such text."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([kmgtp]?)(i?b|w?)", re.IGNORECASE)
_POWERS: Final[dict[str, int]] = {unit: power for power, unit in enumerate(["", *"kmgtp"])}
_STEPS: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?")
MOST_INDEXES: Final = 1_000_000
NO_LIMIT: Final = frozenset({"unlimited", "infinite", "infinity", "-1", "0"})


def whole(text: str) -> int | None:
    """A whole number of at most nine digits."""
    return int(text) if _DIGITS.fullmatch(text) else None


def slurm_seconds(text: str) -> int | None:
    """M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; 0 is no limit."""
    if text.lower() in NO_LIMIT:
        return 0
    days, dash, rest = text.rpartition("-")
    parts = _numbers(rest)
    if not parts or len(parts) > 3 or (dash and not _DIGITS.fullmatch(days)):
        return None
    if dash:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: (0, *parts, 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def pbs_seconds(text: str) -> int | None:
    """Seconds, M:S, H:M:S or D:H:M:S, without fraction; None without any time."""
    parts = _numbers(text.partition(".")[0])
    if not parts or len(parts) > 4:
        return None
    days, hours, minutes, seconds = [*[0] * (4 - len(parts)), *parts]
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None


def lsf_seconds(text: str) -> int | None:
    """Minutes, or hours:minutes; None without any time, or if a host behind a slash measures it."""
    parts = _numbers(text)
    if not parts or len(parts) > 2:
        return None
    hours, minutes = [*[0] * (2 - len(parts)), *parts]
    return (hours * 60 + minutes) * 60 or None


def _numbers(text: str) -> list[int]:
    parts = text.split(":")
    return [int(part) for part in parts] if all(map(_DIGITS.fullmatch, parts)) else []


def megabytes(text: str, usual: str = "m", *, times: int = 1) -> int | None:
    """MB of 2^20 bytes, rounded up; `usual`: the default unit. `b` and `w` (8 bytes) may stand alone."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower() or ("" if match[3] else usual)
    number = Fraction(match[1]) * (1 << 10 * _POWERS[unit]) * (8 if match[3].lower() == "w" else 1)
    return math.ceil(number * times / 2**20)


def indexes(text: str, *, least: int = 0) -> dict[str, Any] | None:
    """An array with the indexes 1-10, 1-10:2, 7, or a list of these, each once; `least`: the first allowed.

    Of more than a million only their number.
    """
    ranges = list(_ranges(text))
    if not ranges or not all(ranges) or min(each.start for each in ranges) < least:
        return None
    if (count := sum(map(len, ranges))) > MOST_INDEXES:
        return {"Parameters": count}
    if len(ranges) == 1:
        (each,) = ranges
        return {"Parameters": len(each), "ParameterStart": each.start, "ParameterStep": each.step}
    return {"Parameters": list(dict.fromkeys(index for each in ranges for index in each))}


def _ranges(text: str) -> Iterator[range]:
    for part in text.replace(" ", "").split(","):
        match = _STEPS.fullmatch(part)
        first, last, step = (
            (int(match[1]), int(match[2] or match[1]), int(match[3] or 1)) if match else (0, 0, 0)
        )
        yield range(first, last + 1, step) if step else range(0)


# --- words ---------------------------------------------------------------------------------

_WORD: Final = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""")
_PIECE: Final = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|.""")
_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_ITEM: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^,'"])+""")
_LONG_NAME: Final = re.compile(r"--[\w-]+=")


class SplitLine:
    """Split as by a shell. Raises ValueError for a quote that is never closed.

    `torn`: words in which the line's own quotes, or a backslash, hold a comma of one value, which the reader of
    variables does not see. `cuts_words`: a `#` within a word begins a comment, too.
    """

    def __init__(self, line: str, *, cuts_words: bool) -> None:
        raw = list(_WORD.finditer(line))
        if not cuts_words:
            begin = next((word.start() for word in raw if word[0].startswith("#")), len(line))
            line, raw = line[:begin], [word for word in raw if word.start() < begin]
        self.words = shlex.split(line, comments=cuts_words)
        self.torn = {shlex.split(word[0])[0] for word in raw if _is_torn(word[0])}


def _is_torn(raw: str) -> bool:
    in_value = False
    for piece in _PIECE.findall(_LONG_NAME.sub("", raw, count=1) if raw.startswith("--") else raw):
        if piece == "\\,":
            return True
        if piece in "=,":
            in_value = piece == "="
        elif in_value and len(piece) > 1 and piece[0] in "'\"" and len(split_list(piece[1:-1]) or ",,") > 1:
            return True
    return False


def split_list(text: str) -> list[str] | None:
    """Split at commas outside quotes; None if a quote is never closed."""
    return None if re.search(r"['\"]", _QUOTED.sub("", text)) else _ITEM.findall(text)


def strip_quotes(text: str) -> str:
    """A value without the quotes around its parts."""
    return _QUOTED.sub(r"\1\2", text)
