"""How old the loads are that stand behind what the director left the queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lodesman.director import RecordedLoad
from lodesman.matching.cells import bits_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAges:
    """(when, told by whom, the queues by ordinal) of the loads that an iteration went by, the oldest first. Queues
    whose load nobody could tell are not among them.
    """

    by_age: Sequence[tuple[float, str, int]] = ()

    def oldest(self, mask: int) -> tuple[float, str] | None:
        """When the oldest load of these queues was observed, and who told it; None if that is not known of any."""
        for at, told_by, queues in self.by_age:
            if queues & mask:
                return at, told_by
        return None


def ages_of(loads: Iterable[tuple[int, RecordedLoad | None]]) -> LoadAges:
    """From (ordinal, load) of each queue."""
    together: dict[tuple[float, str], list[int]] = {}
    for ordinal, load in loads:
        if load is not None and load.is_known:
            together.setdefault((load.observed_at, load.told_by), []).append(ordinal)
    return LoadAges(by_age=[(*seen, bits_of(ordinals)) for seen, ordinals in sorted(together.items())])
