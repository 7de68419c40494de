"""How explanations put times, amounts and counts into words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lodesman.answers.why_pilots import Amounts

_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0


def since(at: float | None, now: float) -> float | None:
    """Seconds since then; None if unknown. A clock that ran ahead gives 0."""
    return None if at is None else max(0.0, now - at)


def span(seconds: float) -> str:
    """A length of time: 5 s, 12 min, 3.4 h."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def recently(age: float | None) -> str:
    """How long nothing has been done: `yet`, or `for 3.4 h`."""
    return "yet" if age is None else f"for {span(age)}"


def counted(n: int, noun: str) -> str:
    """`1 job`, `3 jobs`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def amount(free: Amounts) -> str:
    """What a pilot offers, or has left."""
    cores = "1 core" if free.cores == 1 else f"{free.cores} cores"
    memory = "memory not declared" if free.memory_mb is None else f"{free.memory_mb} MB"
    cpu = "any CPU time" if free.norm_cpu_seconds is None else f"{free.norm_cpu_seconds} s of CPU time"
    return f"{cores}, {memory}, {cpu}"


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def excluded(counts: Iterable[tuple[str, int]], of: str = "") -> str:
    """`Memory excludes 3, Tag excludes 1`; `of`: what follows each number."""
    return ", ".join(f"{name} excludes {n}{of}" for name, n in counts)
