"""Functions of ClassAds that search texts with regular expressions, and replace matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from lodesman.languages.classad.ads import Run
from lodesman.languages.classad.regexp import PatternReading, Regexp, Slots, reading_of
from lodesman.languages.classad.texts import USUAL_MARKS, items_of
from lodesman.languages.classad.values import ERROR, MAX_TEXT, UNDEFINED, Special, Value

_GROUP: Final = re.compile(r"\\([0-9])")
_TO_FILL: Final = 20
"""Steps, of a template."""


def read_pattern(run: Run, pattern: str, options: str, *, notes_groups: bool = False) -> PatternReading:
    """Read a pattern and pay its steps, even if it was read before. Raises TooDear."""
    run.spend(1 + (len(pattern) >> 5))
    reading = reading_of(pattern, options, notes_groups=notes_groups)
    run.spend(reading.steps)
    return reading


def _is_found(run: Run, read: Regexp, text: str) -> bool:
    if not read.spends:
        run.spend(read.size * len(text))
    return read.is_found(text, run)


def _special(values: tuple[Value, ...]) -> Special | None:
    return ERROR if ERROR in values else UNDEFINED if UNDEFINED in values else None


def _regexp(run: Run, pattern: Value, text: Value, options: Value = "") -> Value:
    special = _special((pattern, text, options))
    if special is not None:
        return special
    if not isinstance(pattern, str) or not isinstance(text, str) or not isinstance(options, str):
        return ERROR
    read = read_pattern(run, pattern, options).regexp
    return ERROR if read is None else _is_found(run, read, text)


def _regexp_member(run: Run, pattern: Value, items: Value, options: Value = "") -> Value:
    special = _special((pattern, items, options))
    if special is not None:
        return special
    if not isinstance(pattern, str) or not isinstance(items, tuple) or not isinstance(options, str):
        return ERROR
    read = read_pattern(run, pattern, options).regexp
    if read is None:
        return ERROR
    for item in items:
        if item is UNDEFINED:
            continue
        if not isinstance(item, str):
            return ERROR
        if _is_found(run, read, item):
            return True
    return UNDEFINED if UNDEFINED in items else False


def _text_list_member(
    run: Run, pattern: Value, text: Value, marks: Value = USUAL_MARKS, options: Value = ""
) -> Value:
    if not (isinstance(pattern, str) and isinstance(text, str)):
        return ERROR
    if not (isinstance(marks, str) and isinstance(options, str)):
        return ERROR
    run.spend((len(text) + len(marks)) >> 2)
    items, read = items_of(text, marks), read_pattern(run, pattern, options.lower()).regexp
    if not items:
        return UNDEFINED
    return ERROR if read is None else any(_is_found(run, read, item) for item in items)


# --- other text in their place --------------------------------------------------------------------------------


def _change(always: str, run: Run, *values: Value) -> Value:
    r"""Replace matches; \1 is what a group took.

    `always`: added options: f the rest of the text stays, g all matches.
    """
    special = _special(values)
    if special is not None:
        return special
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        return ERROR
    pattern, text, template, options = (*texts, "")[:4]
    options += always
    read = read_pattern(run, pattern, options, notes_groups=True).regexp
    if read is None:
        return ERROR
    return _replace(run, read, text, template, whole="f" in options, every="g" in options)


def _replace(run: Run, read: Regexp, text: str, template: str, *, whole: bool, every: bool) -> Value:
    done: list[str] = []
    at = length = 0
    after_nothing = False
    while True:
        slots = read.search(text, run, at, here=after_nothing)
        if slots is None and not after_nothing:
            break
        if slots is None:
            if at == len(text):
                return ERROR  # as there, after nothing matched at the end
            done.append(text[at])
            at, after_nothing = at + 1, False
            continue
        run.spend(_TO_FILL + len(slots) + len(template))
        piece = _fill_groups(template, text, slots)
        length += len(piece or "")
        run.spend(len(piece or "") >> 5)
        if piece is None or length > MAX_TEXT:
            return ERROR
        done += [text[at : slots[0]] if whole else "", piece]
        # As there: what follows a match of nothing must begin where that was, until nothing does.
        at, after_nothing = slots[1], after_nothing or slots[0] == slots[1]
        if not every:
            break
    result = "".join([*done, text[at:] if whole else ""])
    return result if len(result) <= MAX_TEXT else ERROR


def _fill_groups(template: str, text: str, slots: Slots) -> str | None:
    """The text with its groups; None: it asks for a group after the last one that took part."""
    groups = [text[max(0, slots[at]) : max(0, slots[at + 1])] for at in range(0, len(slots), 2)]
    last = max(at // 2 for at, slot in enumerate(slots) if slot >= 0)
    if any(int(digit) > last for digit in _GROUP.findall(template)):
        return None
    return _GROUP.sub(lambda mark: groups[int(mark[1])], template)


class _TextSearch(NamedTuple):
    """A search with the pattern first and options last."""

    work: Callable[..., Value]
    least: int
    most: int


SEARCHES: Final[Mapping[str, _TextSearch]] = {
    "regexp": _TextSearch(_regexp, 2, 3),
    "regexpmember": _TextSearch(_regexp_member, 2, 3),
    "regexps": _TextSearch(partial(_change, ""), 3, 4),
    "replace": _TextSearch(partial(_change, "f"), 3, 4),
    "replaceall": _TextSearch(partial(_change, "fg"), 3, 4),
    "stringlist_regexpmember": _TextSearch(_text_list_member, 2, 4),
}
"""By name in small letters."""
