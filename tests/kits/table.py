"""Tables of many small cases that are one test: what each takes is less than what a test takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def hold_all(cases: Iterable[T], check: Callable[[T], object]) -> None:
    """Check all cases. Raises a group of the failures, each with its case."""
    faults: list[Exception] = []
    for case in cases:
        try:
            check(case)
        except Exception as fault:
            fault.add_note(f"in the case {case!r}")
            faults.append(fault)
    if faults:
        raise ExceptionGroup(f"{len(faults)} cases do not hold", faults)


def parts(cases: Iterable[T], size: int) -> list[list[T]]:
    """The cases in lists of that size, for tests that share what is dear."""
    every = list(cases)
    return [every[start : start + size] for start in range(0, len(every), size)]
