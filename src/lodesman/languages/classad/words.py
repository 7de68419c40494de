"""Functions that read and join arguments and environments of jobs as HTCondor writes them.

In the second version words stand between blanks, '...' keeps blanks and '' in it is a quote; in the first one quotes
are plain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from lodesman.languages.classad.texts import bound_text
from lodesman.languages.classad.values import ERROR, UNDEFINED, Value

_BLANKS: Final = " \t\n\r"
_WORD: Final = re.compile(r"(?:[^ \t\n\r']++|'(?:[^']++|'')*+')++")
_QUOTED: Final = re.compile(r"'((?:[^']|'')*+)'")
_MARKS: Final = re.compile(r"[ \t\n\r']+")


def _words(text: str) -> list[str] | None:
    """Words of the second version; None if a quote is never closed."""
    words: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at] in _BLANKS:
            at += 1
        if at == len(text):
            return words
        word = _WORD.match(text, at)
        if word is None or (word.end() < len(text) and text[word.end()] not in _BLANKS):
            return None
        words.append(_QUOTED.sub(lambda quoted: quoted[1].replace("''", "'"), word[0]))
        at = word.end()


def _join_words(words: list[str]) -> str:
    return " ".join(
        [
            _MARKS.sub(lambda mark: f"'{mark[0].replace(chr(39), chr(39) * 2)}'", word) or "''"
            for word in words
        ]
    )


def _is_version(value: Value) -> bool:
    return type(value) is int and value in {1, 2}


def _args_to_list(text: Value, version: Value = 2) -> Value:
    if not isinstance(text, str) or not _is_version(version):
        return ERROR
    words = re.split(r"[ \t\n\r]+", text.strip(_BLANKS)) if version == 1 else _words(text)
    return ERROR if words is None else tuple([word for word in words if word or version == 2])


def _list_to_args(items: Value, version: Value = 2) -> Value:
    if not isinstance(items, tuple) or not _is_version(version):
        return ERROR
    words = [item for item in items if isinstance(item, str)]
    if len(words) < len(items):
        return ERROR
    if version == 2:
        return bound_text(_join_words(words))
    if any(mark in item for item in words for mark in _BLANKS):
        return ERROR
    return bound_text(" ".join(words).lstrip(" "))


# --- environments ---------------------------------------------------------------------------------------------


def _put(entries: list[str], variables: dict[str, str]) -> bool:
    """Whether all are NAME=VALUE; what has $$ may not be one yet."""
    for entry in entries:
        name, mark, _ = entry.partition("=")
        if not name or not (mark or "$$" in entry):
            return False
        variables[name] = entry
    return True


def _environment(variables: dict[str, str]) -> Value:
    return bound_text(_join_words([variables[name] for name in sorted(variables)]))


def _merge(*texts: Value) -> Value:
    variables: dict[str, str] = {}
    for text in texts:
        if text is UNDEFINED:
            continue
        words = _words(text) if isinstance(text, str) else None
        if words is None or not _put(words, variables):
            return ERROR
    return _environment(variables)


def _from_first_version(text: Value) -> Value:
    """Split entries, which end at ; or at the mark that the text begins with."""
    if not isinstance(text, str):
        return UNDEFINED if text is UNDEFINED else ERROR
    first = text[:1]
    mark = first if first and not (first.isalnum() or first in f"_{_BLANKS}") else ";"
    entries = [entry.lstrip() for entry in re.split(f"[\n{re.escape(mark)}]", text)]
    variables: dict[str, str] = {}
    return _environment(variables) if _put([entry for entry in entries if entry], variables) else ERROR


WORD_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Value], int, int]]] = {
    "argstolist": (_args_to_list, 1, 2),
    "listtoargs": (_list_to_args, 1, 2),
    "envv1tov2": (_from_first_version, 1, 1),
    "mergeenvironment": (_merge, 0, 1_000),
}
"""By name in small letters: the function, its fewest and most arguments."""
