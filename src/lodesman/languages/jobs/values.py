"""Readers of attribute values: a value as written becomes a JobSpec field, or a Mistake.

What DIRAC accepts is accepted where it is unambiguous: a number as text, one value for a list, names with commas in
one text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from lodesman.languages.jobs.record import INT_MAX, INT_MIN, shown, tidy

Reader = Callable[[Any], Any]

_NAME_MAX = 255
_PATH_MAX = 4_096
_LIST_MAX = 10_000
# Each is compared with each file that a job leaves.
_PATTERNS_MAX = 100
_PATTERN = re.compile(r"[*?\[]")
_ARGUMENTS_MAX = 128 << 10
_ENVIRONMENT_MAX = 64 << 10

_NAME = re.compile(r"[ -~]{1,255}\Z")
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NO_ARGUMENT = re.compile(r"[\x00\ud800-\udfff]")
_BLANKS = re.compile(r"[\t\r\n]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}\Z")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?\Z")
_VARIABLE = re.compile(r"[!-$&-<>-~]+\Z")
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*+\Z")
_FACTS = "LODE_"
_NO_NAMES = frozenset({"", ".", ".."})
_REMOTE = re.compile(r"(?i:(?:lfn|sb|guid):|(?:pfn|srm|root|gsiftp|davs?|https?|s3)://)")
_WORD = re.compile(
    r"""(?P<blank>[ \t\r\n]++) | (?P<word>(?:[^ \t\r\n"'\\]++|'[^']*+'|"(?:[^"\\]++|\\.)*+"|\\.)+) | (?P<broken>.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""'([^']*+)'|"((?:[^"\\]++|\\.)*+)"|\\(.)""", re.DOTALL)
_IN_DOUBLE = re.compile(r'\\(["\\])')
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Mistake(ValueError):
    """The end of a sentence; `below` is the path under the attribute."""

    def __init__(self, message: str, *, below: str = "") -> None:
        super().__init__(message)
        self.below = below


def kind_of(value: Any) -> str:
    """In words for people."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, (int, float)):
        return "a number"
    kinds = {str: "text", list: "a list", tuple: "a list", dict: "a record", type(None): "null"}
    return kinds.get(type(value)) or f"of type {type(value).__name__}"


def whole(least: int, most: int) -> Reader:
    """Within bounds; `"3600"` and `3.6e3` are the number 3600."""

    def read(value: Any) -> int:
        number = value if type(value) is int else _whole_of(value)
        if least <= number <= most:
            return number
        if number < 0 <= least:
            raise Mistake("is negative")
        raise Mistake("is too small" if number < least else "is too large")

    return read


def real(least: float, most: float) -> Reader:
    """Numbers within bounds, also as text."""

    def read(value: Any) -> float:
        text = value.strip() if isinstance(value, str) else ""
        if text and not _REAL.match(text):
            raise Mistake(f"is the text {shown(value)!r}, not a number")
        if not text and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise Mistake(f"is {kind_of(value)}, not a number")
        number = float(text or value)
        if not least <= number <= most:
            raise Mistake("is too small" if number < least else "is too large")
        return number

    return read


def _whole_of(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip()
        if _WHOLE.match(text):
            return int(text)
        if not _REAL.match(text):
            raise Mistake(f"is the text {shown(value)!r}, not a number")
        value = float(text)
    if not isinstance(value, float):
        raise Mistake(f"is {kind_of(value)}, not a number")
    if not value.is_integer():
        raise Mistake(f"is {value!r}, not a whole number")
    return int(value)


def flag(value: Any) -> bool:
    """Also yes, no, 1 and 0, as text or number."""
    if isinstance(value, bool):
        return value
    truth = _TRUTH.get(str(value).strip().lower()) if isinstance(value, (str, int)) else None
    if truth is None:
        text = f"the text {shown(value)!r}" if isinstance(value, str) else kind_of(value)
        raise Mistake(f"is {text}, neither true nor false")
    return truth


def name(default: str = "") -> Reader:
    """Empty text is the default."""
    return lambda value: _name(value) if value != "" else default


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise Mistake(f"is {kind_of(value)}, not text")
    if _NAME.match(value):
        return value
    if not value:
        raise Mistake("is empty")
    if len(value) > _NAME_MAX:
        raise Mistake(f"has {len(value)} characters; a name has at most {_NAME_MAX}")
    raise Mistake(f"is {value[:40]!a}, with characters that are not printable ASCII")


def names(wildcard: str = "", *, of_places: bool = False) -> Reader:
    """Without empty ones; a list with the wildcard sets no condition.

    Names of sites and CEs (`of_places`) may have any script, and commas, which the items of a list keep.
    """

    def read(value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            items: list[Any] = [part for piece in _split(value, ",") if (part := piece.strip())]
        else:
            items = [part for part in _check_list(value) if part != ""]
        for part in items:
            if of_places and isinstance(part, str) and part.isprintable() and len(part) <= _NAME_MAX:
                continue
            if "," in _name(part) and not of_places:
                raise Mistake(f"has a comma inside the name {shown(part)!r}")
        return () if wildcard and wildcard in map(str.upper, items) else tuple(items)

    return read


def amounts(value: Any) -> tuple[str, ...]:
    """A list of `resource=amount`."""
    items: tuple[str, ...] = _AMOUNTS(value)
    for item in items:
        if not _AMOUNT.match(item):
            raise Mistake(f"has {shown(item)!r}, which is not resource=amount")
    return items


_AMOUNTS = names()
_AMOUNT = re.compile(r"[^=\s]+=[^=\s]+\Z")


def is_plain_name(text: str) -> bool:
    """Whether it is a name everywhere: printable ASCII without a comma."""
    return text.isascii() and "," not in text


def _check_list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise Mistake(f"is {kind_of(value)}, not a list of texts")
    _check_length(len(value))
    return value


def _split(text: str, mark: str) -> list[str]:
    """After its items were counted."""
    _check_length(text.count(mark) + 1)
    return text.split(mark)


def _check_length(items: int) -> None:
    if items > _LIST_MAX:
        raise Mistake(f"has {items} items; at most {_LIST_MAX}")


def private(value: Any) -> str:
    """The word "private" in any case, or no text; a list of one is its item."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    word = _name(value).lower() if value != "" else ""
    if word not in ("", "private"):
        raise Mistake(f"is {shown(word)!r}, which is unknown")
    return word


def text(value: Any) -> str:
    """One line, not empty."""
    if not isinstance(value, str):
        raise Mistake(f"is {kind_of(value)}, not text")
    if not value.strip():
        raise Mistake("is empty")
    if len(value) > _PATH_MAX:
        raise Mistake(f"has {len(value)} characters; at most {_PATH_MAX}")
    if not value.isprintable() and _NOT_TEXT.search(value):
        raise Mistake(f"is {value[:40]!a}, with control characters")
    return value


def file_name(default: str = "", *, absolute: bool = False) -> Reader:
    """A file of the job's directory; empty text is the default."""
    return lambda value: _path(value, absolute=absolute) if value != "" else default


def _input(value: Any) -> str:
    """A file, or a folder with `/` at its end; the node has only the last part."""
    path = text(value)
    if path.rstrip("/").rpartition("/")[2] in _NO_NAMES:
        raise Mistake(f"has {shown(path)!r}, which names no file")
    if _REMOTE.match(path):
        raise Mistake(f"has {shown(path)!r}: only local files are taken along; let the payload fetch it")
    return path


def files(*, absolute: bool) -> Reader:
    """Each path once. Of files from anywhere (`absolute`) no two may end in the same name."""

    def read(value: Any) -> tuple[str, ...]:
        parts = (value,) if isinstance(value, str) else _check_list(value)
        paths = tuple(
            dict.fromkeys([_input(part) if absolute else _path(part) for part in parts if part != ""])
        )
        if absolute and len(paths) > 1:
            paths = _named_once(paths)
        patterns = sum(1 for path in paths if _PATTERN.search(path)) if len(paths) > _PATTERNS_MAX else 0
        if patterns > _PATTERNS_MAX and not absolute:
            raise Mistake(f"has {patterns} patterns; at most {_PATTERNS_MAX} (and any number of names)")
        return paths

    return read


def _named_once(paths: Iterable[str]) -> tuple[str, ...]:
    """Each path as first written. Raises Mistake for two that end in the same name."""
    seen: dict[str, str] = {}
    for path in paths:
        last = path.rstrip("/").rpartition("/")[2]
        first = seen.setdefault(last, path)
        if tidy(first) != tidy(path):
            both = f"{shown(first)} and {shown(path)}"
            raise Mistake(
                f"has two files named {shown(last)!r}, {both}; they share one directory on the node"
            )
    return tuple(seen.values())


def _path(value: Any, *, absolute: bool = False) -> str:
    path = text(value)
    if _REMOTE.match(path):
        raise Mistake(f"has {shown(path)!r}: nothing is copied to storage; let the payload copy it")
    if ".." in path and ".." in path.split("/"):
        raise Mistake(f"has {shown(path)!r}, which leaves its directory")
    if path[0] == "/" and not absolute:
        raise Mistake(f"has {shown(path)!r}, an absolute path")
    if path[-1] == "/" and not path.strip("/."):
        raise Mistake(f"has {shown(path)!r}, which names no file")
    return path


def arguments(value: Any) -> tuple[str, ...]:
    """A text, split as by a shell, or a list; whole numbers become text."""
    if isinstance(value, str):
        if len(value) > _ARGUMENTS_MAX:
            raise Mistake(f"has {len(value)} characters; at most {_ARGUMENTS_MAX}")
        words = _split_words(value)
        _check_length(len(words))
    else:
        words = [
            part if type(part) is str or not _is_whole(part) else str(part) for part in _check_list(value)
        ]
    for part in words:
        if not isinstance(part, str):
            raise Mistake(f"has {kind_of(part)} among its items")
        if (not part.isascii() or "\0" in part) and _NO_ARGUMENT.search(part):
            raise Mistake(f"has {part[:40]!a}, with a NUL or half of a surrogate pair")
    if sum(map(len, words)) > _ARGUMENTS_MAX:
        raise Mistake(f"has more than {_ARGUMENTS_MAX} characters in all")
    return tuple(words)


def _split_words(text: str) -> list[str]:
    """As `shlex.split`, in linear time. Raises Mistake with the offset of a broken quote."""
    if _PLAIN.match(text):  # no quotes, no backslashes, nothing but blanks to split at
        return text.split()
    words: list[str] = []
    for match in _WORD.finditer(text):
        if match.lastgroup == "broken":
            fault = "a backslash at the end" if match[0] == "\\" else f"a {match[0]} that is never closed"
            raise Mistake(f"has {fault} (character {match.start() + 1} of the text)")
        if match.lastgroup == "word":
            words.append(_QUOTED.sub(_unquote, match[0]))
    return words


def _unquote(quoted: re.Match[str]) -> str:
    return _IN_DOUBLE.sub(r"\1", quoted[2]) if quoted.lastindex == 2 else quoted[quoted.lastindex or 0]


def _is_whole(value: Any) -> bool:
    return type(value) is int and INT_MIN <= value <= INT_MAX


def environment(value: Any) -> dict[str, str]:
    """A record, a list of `NAME=value`, or a text of such parts with `;` between."""
    if isinstance(value, dict):
        pairs: Iterable[tuple[Any, Any]] = value.items()
    else:
        parts = _split(value, ";") if isinstance(value, str) else _check_list(value)
        pairs = [_pair(part) for part in parts if part != ""]
    variables: dict[str, str] = {}
    characters = 0
    for variable, content in pairs:
        if not isinstance(variable, str) or not _VARIABLE.match(variable):
            raise Mistake(f"has {shown(str(variable))!r}, which names no variable")
        if variable in variables:
            raise Mistake(f"sets {shown(variable)} twice")
        if variable.startswith(_FACTS):
            raise Mistake(f"sets {shown(variable)}; a job cannot set what begins with {_FACTS}")
        if not (isinstance(content, (str, float)) or _is_whole(content)):
            raise Mistake(f"gives {shown(variable)} {kind_of(content)}, not text", below=variable)
        variables[variable] = str(content)
        characters += len(variable) + len(variables[variable])
        if _NO_ARGUMENT.search(variables[variable]):
            raise Mistake(f"gives {shown(variable)} a NUL or half of a surrogate pair", below=variable)
    if len(variables) > _LIST_MAX or characters > _ENVIRONMENT_MAX:
        raise Mistake(f"has more than {_ENVIRONMENT_MAX} characters or {_LIST_MAX} variables in all")
    return variables


def _pair(part: Any) -> tuple[str, str]:
    if not isinstance(part, str):
        raise Mistake(f"has {kind_of(part)} among its items")
    variable, equals, content = part.strip().partition("=")
    if not equals:
        raise Mistake(f"has {shown(part)!r}, which is not of the form NAME=value")
    return variable, content


def requirements(value: Any) -> dict[str, Any]:
    """RFC #7: a record of scalars and lists of scalars, which become tuples. An expression may have lines."""
    if isinstance(value, str):
        raise Mistake("is a text; an expression is its entry Constraint")
    if not isinstance(value, dict):
        raise Mistake(f"is {kind_of(value)}, not a record")
    seen: dict[str, str] = {}
    for key, content in value.items():
        try:
            _name(key)
            of_lines = isinstance(content, str) and key.strip().lower() == "constraint"
            _requirement(_BLANKS.sub(" ", content) if of_lines else content)
        except Mistake as mistake:
            raise Mistake(f"has an entry {shown(str(key))} that {mistake}", below=str(key)) from None
        if seen.setdefault(key.lower(), key) != key:
            raise Mistake(f"has {shown(key)} and {shown(seen[key.lower()])}", below=key)
    return {key: tuple(content) if isinstance(content, list) else content for key, content in value.items()}


def _requirement(content: Any) -> None:
    if isinstance(content, (list, tuple)):
        if not content:
            raise Mistake("is an empty list, which nothing can satisfy")
        for item in _check_list(content):
            if isinstance(item, (list, tuple, dict)):
                raise Mistake(f"has {kind_of(item)} inside a list")
            _requirement(item)
    elif isinstance(content, str):
        text(content)
    elif not isinstance(content, (bool, int, float)):
        raise Mistake(f"is {kind_of(content)}")
    elif content < 0:
        raise Mistake("is negative")
    elif not math.isfinite(content) if isinstance(content, float) else content > INT_MAX:
        raise Mistake("is a number beyond 64 bits or not finite")
