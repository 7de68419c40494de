"""What a job would lose and how long it stays: formulas 9 to 11 of the seed, from both sides. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """One payload of a pilot, as the writer knows it; times in UNIX seconds.

    committed: the last commit, else the start. expected_end: a good-faith estimate. enforced_end: None if nothing ends it.
    """

    cores: int
    started: float
    committed: float
    expected_end: float
    enforced_end: float | None = None


@dataclass(frozen=True)
class Estimate:
    """The answers to use cases 9 to 11 for one job. None: unknown, which is never zero.

    remaining_expected, remaining_max: seconds. draining_waste, kill_waste: core-seconds. flags: what was repaired, clamped
    or doubtful, as short names.
    """

    remaining_expected: int | None = None
    remaining_max: int | None = None
    draining_waste: int | None = None
    kill_waste: int | None = None
    flags: tuple[str, ...] = ()
