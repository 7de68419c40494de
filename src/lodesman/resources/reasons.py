"""Why a queue (CE, site) cannot take a job: a closed set of frozen values.

Rule 1 of the house: a decision that can say no returns reasons. `describe` makes one sentence of a reason,
`as_dict` JSON values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, assert_never

from lodesman.answers.vocabulary import Level
from lodesman.resources.model import Scalar, as_text
from lodesman.resources.units import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingParameter:
    """The resource does not say anything about a wanted parameter."""

    code: ClassVar[str] = "missing-parameter"
    parameter: str
    wanted: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TooSmall:
    """A capacity is below the requirement; `offered` is the best value there, None if there is none."""

    code: ClassVar[str] = "too-small"
    parameter: str
    wanted: Number
    offered: Number | None
    unit: str
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAmong:
    """None of the wanted values is among the offered ones; at least one of the two is a list."""

    code: ClassVar[str] = "not-among"
    parameter: str
    wanted: tuple[Scalar, ...]
    offered: tuple[Scalar, ...]
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEqual:
    """One wanted value, one offered value, and they differ."""

    code: ClassVar[str] = "not-equal"
    parameter: str
    wanted: Scalar
    offered: Scalar
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTooOld:
    """The newest version offered is older than the oldest wanted; None if none is offered."""

    code: ClassVar[str] = "version-too-old"
    parameter: str
    wanted: str
    offered: str | None
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDenied:
    """The access list (parameter VO) of the resource does not name the VO."""

    code: ClassVar[str] = "access-denied"
    parameter: ClassVar[str] = "VO"
    vo: str
    allowed: tuple[str, ...]
    level: Level


Reason = MissingParameter | TooSmall | NotAmong | NotEqual | VersionTooOld | AccessDenied


def describe(reason: Reason) -> str:
    """One sentence without a full stop: what is wanted, what is offered, who says so."""
    match reason:
        case MissingParameter():
            return f"{reason.parameter} is not declared (wanted {_listed(reason.wanted)})"
        case TooSmall() | VersionTooOld():
            offered = "nothing" if reason.offered is None else as_text(reason.offered)
            unit = f" {reason.unit}" if isinstance(reason, TooSmall) and reason.unit else ""
            wanted = f"{as_text(reason.wanted)}{unit}"
            return f"{reason.parameter}: wanted at least {wanted}, the {reason.level} offers {offered}"
        case NotAmong():
            offered = _listed(reason.offered) if reason.offered else "nothing"
            return f"{reason.parameter}: wanted {_listed(reason.wanted)}, the {reason.level} offers {offered}"
        case NotEqual():
            pair = f"wanted {as_text(reason.wanted)}, the {reason.level} offers {as_text(reason.offered)}"
            return f"{reason.parameter}: {pair}"
        case AccessDenied():
            return f"VO {reason.vo} has no access: the {reason.level} admits {_listed(reason.allowed)}"
        case _:
            assert_never(reason)


def as_dict(reason: Reason) -> dict[str, Any]:
    """The reason as JSON values; `code` tells the kind, `text` the sentence."""
    out: dict[str, Any] = {"code": reason.code, "parameter": reason.parameter}
    for item in fields(reason):
        value = getattr(reason, item.name)
        out[item.name] = list(value) if isinstance(value, tuple) else value
    out["text"] = describe(reason)
    return out


def _listed(values: Iterable[Scalar]) -> str:
    return " or ".join(as_text(value) for value in values)
