"""What was seen of the world, when and by whom: unknown is not zero (DESIGN rule 5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One number seen from outside.

    `value` None means that the source was asked and could not tell; `observed_at` is UNIX seconds;
    `source` names who said so (a backend, the program's own records).
    """

    value: int | None
    observed_at: float
    source: str = ""


def age_s(seen: Observation, *, now: float) -> float:
    """Seconds since the observation; a clock that ran ahead gives 0, never a negative age."""
    return max(0.0, now - seen.observed_at)


def known(seen: Observation, *, now: float, max_age_s: float) -> int | None:
    """The number, or None if it is unknown, too old to act on, or no count at all (negative)."""
    if seen.value is None or seen.value < 0 or age_s(seen, now=now) > max_age_s:
        return None
    return seen.value


def doubt(seen: Observation, *, now: float, max_age_s: float) -> str:
    """Why `known` is None, for people; empty if it is not."""
    if seen.value is None:
        return f"{seen.source or 'the source'} could not tell"
    if seen.value < 0:
        return f"{seen.source or 'the source'} said {seen.value}, which is no count"
    age = age_s(seen, now=now)
    return f"seen {age:.0f} s ago, older than {max_age_s:.0f} s" if age > max_age_s else ""
