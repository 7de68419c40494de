"""What a row of the benchmark found, and whether it reached its target. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number. `floor` is the figure of the bare machine in the same run and unit.

    cpu_us: microseconds of CPU time for each operation, of the hot and the background process.
    less: a time or a size, to be at most its target; otherwise a rate, to be at least its target.
    """

    row: str
    what: str
    unit: str
    value: float
    target: float | None = None
    less: bool = False
    floor_name: str = ""
    floor: float | None = None
    size: str = ""
    samples: Sequence[float] = ()
    cpu_us: Mapping[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Measured against the floor."""
        return self.value / self.floor if self.floor else None

    @property
    def reached(self) -> float | None:
        """1 is exactly the target, more is better; None without a target."""
        if self.target is None or not self.value:
            return None
        return self.target / self.value if self.less else self.value / self.target

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        reached = self.reached
        return None if reached is None else reached >= 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ratio_to_floor": self.ratio, "reached": self.reached, "met": self.met}


def best(samples: Sequence[dict[str, Any]], by: str, *, less: bool = False) -> dict[str, Any]:
    """The best of some samples: other load can only make a figure worse."""
    return (min if less else max)(samples, key=lambda one: float(one[by]))


def shown(value: float) -> str:
    """A number with its significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
