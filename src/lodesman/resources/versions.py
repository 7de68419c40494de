"""Order of version texts: `1.2` < `1.10`, `1.0rc1` < `1.0` < `1.0.1`, `v7r2` < `v7r2p13`, `1` = `1.0`.

A text is cut at `.`, `-`, `_`, `+`, `/` (as in ROOT's `6.32/04`), blanks and wherever letters meet digits. Numbers
compare as numbers, words as lower-case text. At the first difference: a pre-release word (alpha, beta, rc, pre, dev ...) is
before the end of the text, the end is before any other word, a word is before a number. Zeros that end a
run of numbers say nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lodesman.resources.model import BadValue

VersionKey = tuple[tuple[int, int, str], ...]

MAX_LENGTH = 128

_PART = re.compile(r"[0-9]+|[a-z]+")
_ALLOWED = re.compile(r"[A-Za-z0-9_.+\-~:/ ]+")
_PRE_RELEASE = frozenset({"a", "alpha", "b", "beta", "rc", "pre", "preview", "dev", "snapshot"})
_PRE, _END, _WORD, _NUMBER = range(4)


@lru_cache(maxsize=4096)
def version_key(text: str) -> VersionKey:
    """What orders the version; equal keys mean equal versions. Raises BadValue for what is no version."""
    stripped = text.strip()
    if not stripped or len(stripped) > MAX_LENGTH or not _ALLOWED.fullmatch(stripped):
        raise BadValue(f"{stripped[:MAX_LENGTH]!r} is no version")
    parts: list[tuple[int, int, str]] = []
    for part in _PART.findall(stripped.lower()):
        if part[0].isdecimal():
            parts.append((_NUMBER, int(part), ""))
            continue
        _drop_zeros(parts)
        parts.append((_PRE if part in _PRE_RELEASE else _WORD, 0, part))
    if not parts:
        raise BadValue(f"{stripped!r} is no version")
    _drop_zeros(parts)
    return (*parts, (_END, 0, ""))


def canonical_version(text: str) -> str:
    """One spelling for all versions that compare equal, never longer than the text."""
    spelled = ""
    before = None
    for rank, number, word in version_key(text)[:-1]:
        is_number = rank == _NUMBER
        spelled += "." if before is is_number else ""  # where letters meet digits no mark is needed
        spelled += str(number) if is_number else word
        before = is_number
    return spelled or "0"


def _drop_zeros(parts: list[tuple[int, int, str]]) -> None:
    while parts and parts[-1][:2] == (_NUMBER, 0):
        parts.pop()
