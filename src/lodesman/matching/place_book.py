"""Limits of sites and CEs (`resources.place_limits`) as the limit engine takes them, each blocking on its own.

Of an attribute with one value, one rule at most concerns a task queue at a place, so that all its rules are one set; of a
list each value has a set of its own. What counts all jobs of a place, or of one value there, is one bucket.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Final

from lodesman.answers.nodes import NodePath
from lodesman.answers.quotas import NEXT_START, RUNNING_JOBS
from lodesman.matching.limit_rules import Need, RunPlace, Values
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.resources.draft import DELAY
from lodesman.resources.place_limits import FIELDS, PlaceLimit

_LISTS: Final = frozenset(("platforms", "tags", "submission_pools"))


def values_of(key: TaskQueueKey, field: str) -> tuple[str, ...]:
    """What the jobs of a task queue have of a limited attribute: all of a list, else one value."""
    found = getattr(key, field)
    return found if isinstance(found, tuple) else (str(found),)


def concerns(limit: PlaceLimit, key: TaskQueueKey) -> bool:
    """Whether a limit is about the jobs of a task queue, where it holds."""
    return not limit.attribute or limit.value in values_of(key, FIELDS[limit.attribute])


class _Side:
    """What the rules see of a task queue or a place: which of them concern it."""

    __slots__ = ("_book", "bits")

    def __init__(self, book: PlaceBook, bits: int) -> None:
        self.bits = bits
        self._book = book

    def values(self, _rule: int) -> Values:
        """Each rule has one bucket."""
        return ()

    def needs(self, rule: int) -> tuple[Need, ...]:
        """Each job is one."""
        return self._book.needs[rule]

    def limits(self, rule: int) -> Mapping[str, int]:
        """By what it limits."""
        one = self._book.rules[rule]
        return {NEXT_START if one.kind == DELAY else RUNNING_JOBS: one.number}


class PlaceBook:
    """The rules. `is_open`: whether a job may start by the delay of that name, whatever runs."""

    def __init__(
        self, limits: Iterable[PlaceLimit], is_open: Callable[[str], bool] = lambda _name: True
    ) -> None:
        by_set = defaultdict[tuple[str, ...], list[PlaceLimit]](list)
        for one in limits:
            field = FIELDS.get(one.attribute, "")
            value = one.value if field in _LISTS else ""
            by_set[one.kind, "CE" if one.path.ce else "site", field, value].append(one)
        self.rules = [one for some in by_set.values() for one in some]
        self.needs = [_needs(one, is_open) for one in self.rules]
        ends = [0]
        for some in by_set.values():
            ends.append(ends[-1] + len(some))
        self._sets = tuple(pairwise(ends))
        self._names = tuple(one.name for one in self.rules)
        self._of_all = 0
        self._of_value: dict[str, dict[str, int]] = {}
        self._of_path: dict[NodePath, int] = {}
        for number, one in enumerate(self.rules):
            bit = 1 << number
            self._of_path[one.path] = self._of_path.get(one.path, 0) | bit
            if one.attribute:
                known = self._of_value.setdefault(FIELDS[one.attribute], {})
                known[one.value] = known.get(one.value, 0) | bit
            else:
                self._of_all |= bit

    @property
    def sets(self) -> tuple[tuple[int, int], ...]:
        """The first rule of each set, and the one after its last."""
        return self._sets

    @property
    def by_place(self) -> int:
        """No rule counts places apart: each is about one."""
        return 0

    @property
    def names(self) -> tuple[str, ...]:
        """As paths."""
        return self._names

    def kind_of(self, key: TaskQueueKey) -> int:
        """The rules that concern it, wherever it runs: that is all that they see."""
        bits = self._of_all
        for field, known in self._of_value.items():
            for value in values_of(key, field):
                bits |= known.get(value, 0)
        return bits

    def of_key(self, key: TaskQueueKey) -> _Side:
        """The side of a task queue."""
        return _Side(self, self.kind_of(key))

    def of_place(self, place: RunPlace) -> _Side:
        """The side of a place: the rules of its site, and those of its CE."""
        site, ce = NodePath(place.site), NodePath(place.site, place.ce)
        return _Side(self, self._of_path.get(site, 0) | self._of_path.get(ce, 0))


def _needs(one: PlaceLimit, is_open: Callable[[str], bool]) -> tuple[Need, ...]:
    if one.kind == DELAY:
        return (Need(NEXT_START, 1, 0, partial(_may_start, is_open, one.name)),)
    return (Need(RUNNING_JOBS, 1, 1),)


def _may_start(is_open: Callable[[str], bool], name: str, *_of_engine: object) -> bool:
    return is_open(name)
