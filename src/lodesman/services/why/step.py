"""One step of an explanation, and how its text tells times and amounts."""

from __future__ import annotations

from typing import Any, Final

from lodesman.commands.sessions import Free
from lodesman.matching.offers import UNLIMITED

MINUTE: Final = 60.0
HOUR: Final = 3_600.0


def step(name: str, holds: bool | None, text: str, **facts: Any) -> dict[str, Any]:
    """`holds`: true if nothing in this step is in the way, None if nobody knows. `facts` may have `age_seconds`."""
    return {"step": name, "holds": holds, "text": text, **facts}


def since(at: float | None, now: float) -> float | None:
    """Seconds since then; None if unknown. A clock that ran ahead gives 0."""
    return None if at is None else max(0.0, now - at)


def span(seconds: float) -> str:
    """A length of time: 5 s, 12 min, 3.4 h."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def amount(free: Free) -> str:
    """What a pilot offers, or has left."""
    cores = "1 core" if free.cores == 1 else f"{free.cores} cores"
    memory = "memory not told" if free.memory_mb >= UNLIMITED else f"{free.memory_mb} MB"
    cpu = "any CPU time" if free.norm_cpu_seconds >= UNLIMITED else f"{free.norm_cpu_seconds} s of CPU time"
    return f"{cores}, {memory}, {cpu}"


def counted(n: int, noun: str) -> str:
    """`1 job`, `3 jobs`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def not_lately(age: float | None) -> str:
    """Since when somebody has done nothing: `yet`, or `for 3.4 h`."""
    return "yet" if age is None else f"for {span(age)}"
