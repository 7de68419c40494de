"""What actions did to jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lodesman.wire.jobs import NotChanged, RangeControlled

_MOST_EXAMPLES = 20


@dataclass(slots=True)
class RangeOutcome:
    """What became of the jobs from `first` to `last` so far."""

    first: int
    last: int
    changed: int = 0
    refused: int = 0
    reason: str = ""  # why one of them was not changed

    def go_on(self, more: RangeOutcome) -> None:
        """Add what became of the rest."""
        self.changed += more.changed
        self.refused += more.refused
        self.reason = self.reason or more.reason


@dataclass(slots=True)
class ControlOutcome:
    """What an action did, with a few examples of refused jobs."""

    changed: int = 0
    refused: int = 0
    examples: list[NotChanged] = field(default_factory=list)
    ranges: list[RangeOutcome] = field(default_factory=list)  # as far as they were reached
    rest: tuple[range, ...] = ()  # ids that were too much for one command
    own: set[int] = field(default_factory=set)  # the last ids of ranges in which the caller has submissions
    seconds: float = 0.0  # of the writer

    def refuse(self, job_id: int, why: str, *, count: int = 1, of: RangeOutcome | None = None) -> None:
        """`of` a range, else of the last one."""
        outcome = of or self.ranges[-1]
        self.refused += count
        outcome.refused += count
        outcome.reason = outcome.reason or why
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(NotChanged(job_id, why))

    def change(self, count: int = 1) -> None:
        """Count changed jobs."""
        self.changed += count
        self.ranges[-1].changed += count

    def go_on(self, more: ControlOutcome) -> None:
        """Add the outcome of the command that took the rest."""
        self.changed += more.changed
        self.refused += more.refused
        self.examples += more.examples[: _MOST_EXAMPLES - len(self.examples)]
        first, *others = more.ranges
        if first.last == self.ranges[-1].last:
            self.ranges[-1].go_on(first)
        else:
            others = more.ranges
        self.ranges += others
        self.own |= more.own
        self.rest = more.rest

    def each(self) -> list[RangeControlled]:
        """For the answer."""
        return [
            RangeControlled(part.first, part.last, part.changed, part.refused, part.reason)
            for part in self.ranges
        ]
