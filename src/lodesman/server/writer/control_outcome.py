"""What actions on jobs did, counted job by job and range by range."""

from __future__ import annotations

from dataclasses import dataclass, field

from lodesman.wire.jobs import NotChanged, RangeControlled

_MOST_EXAMPLES = 20


@dataclass(slots=True)
class RangeOutcome:
    """What has become of the jobs from `first` to `last` so far; `reason`: why of one of them that was not changed."""

    first: int
    last: int
    changed: int = 0
    refused: int = 0
    reason: str = ""

    def go_on(self, more: RangeOutcome) -> None:
        """Add what became of the rest of it."""
        self.changed += more.changed
        self.refused += more.refused
        self.reason = self.reason or more.reason


@dataclass(slots=True)
class ControlOutcome:
    """How many jobs an action changed, and which it did not, with the reason (the first few are named).

    `ranges`: what became of each range, as far as it was reached. `rest`: the ids that were not reached, since there was
    too much for one command. `own`: the last ids of ranges in which the caller has submissions. `seconds`: the time that
    it took of the writer.
    """

    changed: int = 0
    refused: int = 0
    examples: list[NotChanged] = field(default_factory=list)
    ranges: list[RangeOutcome] = field(default_factory=list)
    rest: tuple[range, ...] = ()
    own: set[int] = field(default_factory=set)
    seconds: float = 0.0

    def refuse(self, job_id: int, why: str, *, count: int = 1, of: RangeOutcome | None = None) -> None:
        """Count jobs that the action does not apply to, `of` a range; else of the last one."""
        outcome = of or self.ranges[-1]
        self.refused += count
        outcome.refused += count
        outcome.reason = outcome.reason or why
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(NotChanged(job_id, why))

    def change(self, count: int = 1) -> None:
        """Count jobs that the action has changed."""
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
        """What became of each range, for the answer."""
        return [
            RangeControlled(part.first, part.last, part.changed, part.refused, part.reason)
            for part in self.ranges
        ]
