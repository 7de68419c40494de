"""Readers of the director's option values, text or typed: the seed's files are all text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from lodesman.base.errors import LodesmanError
from lodesman.decide.resources.backends import spelled_backend
from lodesman.languages.classad import write_expression
from lodesman.languages.classad.functions import read_checked
from lodesman.wire.vocabulary import TargetPolicy

Reader = Callable[[object], object]  # returns the typed value; ValueError says what would be right

_TRUE = frozenset({"yes", "true", "y", "1", "on"})
_FALSE = frozenset({"no", "false", "n", "0", "off"})


def number(low: float, high: float) -> Reader:
    """A number within [low, high]."""
    expected = f"a number from {low:g} to {high:g}"

    def read(raw: object) -> float:
        try:
            value = math.nan if isinstance(raw, bool) else float(raw)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return read


def whole(low: int, high: int) -> Reader:
    """A whole number within [low, high]; `40.0` is one, `40.5` is not."""
    any_number = number(low, high)

    def read(raw: object) -> int:
        try:
            value = any_number(raw)
        except ValueError:
            value = None
        if not isinstance(value, float) or not value.is_integer():
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return read


def truth(raw: object) -> bool:
    """Read yes/no, true/false, on/off, 1/0."""
    text = str(raw).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("yes or no")


def text(raw: object) -> str:
    """Read some text, not empty."""
    value = raw.strip() if isinstance(raw, str) else ""
    if not value:
        raise ValueError("some text")
    return value


def some_text(raw: object) -> str:
    """Read text, maybe empty."""
    return "" if raw == "" else text(raw)


def names(raw: object) -> tuple[str, ...]:
    """One or more different names: a list, or text with commas."""
    expected = "a list of different names"
    parts = _parts(raw, expected)
    stripped = tuple(part.strip() for part in parts if isinstance(part, str) and part.strip())
    if not stripped or len(stripped) != len(parts) or len(set(stripped)) != len(stripped):
        raise ValueError(expected)
    return stripped


def some_names(raw: object) -> tuple[str, ...]:
    """Read any number of names."""
    return () if raw in ([], (), "") else names(raw)


def backend_names(raw: object) -> tuple[str, ...]:
    """Names of batch systems, in any spelling."""
    return tuple(dict.fromkeys(map(spelled_backend, some_names(raw))))


def queue_names(raw: object) -> tuple[str, ...]:
    """Names of CEs and queues with their sites."""
    queues = some_names(raw)
    if not all("/" in name for name in queues):
        raise ValueError("a list of SITE/CE or SITE/CE/QUEUE")
    return queues


def policy_name(raw: object) -> TargetPolicy:
    """The name of a policy."""
    try:
        return TargetPolicy(str(raw).strip().lower())
    except ValueError:
        *some, last = TargetPolicy
        raise ValueError(f"{', '.join(some)} or {last}") from None


def some_expression(raw: object) -> str:
    """A ClassAd expression as canonical text; '' for none."""
    if raw == "":
        return ""
    written = repr(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else raw
    try:
        return write_expression(read_checked(text(written)))
    except LodesmanError as fault:
        raise ValueError(
            f"a ClassAd expression about the ad of a site; {fault.message.rstrip('.')}"
        ) from None
    except ValueError:
        raise ValueError("a ClassAd expression about the ad of a site") from None


def rising(raw: object) -> tuple[int, ...]:
    """Strictly increasing whole numbers from 1 up: the CPU buckets, in seconds."""
    expected = "a strictly increasing list of whole numbers above 0"
    read_number = whole(1, 100_000_000)
    try:
        limits = tuple(int(str(read_number(part))) for part in _parts(raw, expected))
    except ValueError:
        raise ValueError(expected) from None
    if not limits or any(b <= a for a, b in pairwise(limits)):
        raise ValueError(expected)
    return limits


def _parts(raw: object, expected: str) -> Sequence[object]:
    if isinstance(raw, str):
        return raw.split(",")
    if isinstance(raw, list | tuple):
        return raw
    raise ValueError(expected)
