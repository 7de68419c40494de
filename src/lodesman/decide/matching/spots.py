"""Places as all sets of rules see them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from lodesman.decide.matching.buckets import Charge, KindPart, KindSplit, SetPlace

# charges by sets that do not count the place apart, and a part of each set that does
Plan = tuple[tuple[Charge, ...], tuple[KindPart | None, ...]]

_NUMBERS: Final = count(1)


class ShutSlots(dict[int, int]):
    """The slots that may not be drawn now, by group, on demand. To be read before limits change again."""

    __slots__ = ("as_of", "number", "sets")

    def __init__(self, sets: tuple[SetPlace, ...], as_of: int) -> None:
        self.sets = sets
        self.as_of = as_of  # of the set that was changed last
        # another one for each that may differ, 0 if nothing is shut
        self.number = next(_NUMBERS) if sets else 0

    def __missing__(self, group: int) -> int:
        mask = 0
        for set_place in self.sets:
            mask |= set_place.shut.get(group, 0)
        self[group] = mask
        return mask


NONE_SHUT: Final = ShutSlots((), 0)


@dataclass(slots=True, eq=False)
class SpotKind:
    """Places that rules see alike, but for those that count them apart."""

    sets: tuple[SetPlace, ...]  # without rules that count places apart
    splits: tuple[KindSplit, ...]  # of the sets with such rules
    plans: dict[Hashable, Plan] = field(default_factory=dict)  # by what rules see of a task queue


@dataclass(slots=True, eq=False)
class Spot:
    """A place before all sets."""

    sets: tuple[SetPlace, ...]
    apart: tuple[SetPlace, ...]  # the sets that count it apart
    kind: SpotKind
    as_of: int = -1  # the `changes` of the limits at which `shut` was made
    shut: ShutSlots = field(default_factory=lambda: NONE_SHUT)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """What a job is charged to here."""
        charges, parts = plan
        for place, part in zip(self.apart, parts):  # noqa: B905  # as many
            if part is not None:
                charges += part.charges.get(place) or part.charge(place)
        return charges
