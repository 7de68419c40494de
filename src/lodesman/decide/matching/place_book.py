"""Limits of sites and CEs (`resources.place_limits`) for the limit engine, and shut delays.

A rule is about one value of an attribute and counts each site, or each CE, apart. Rules on an attribute with one value
are one set; each value of a list has its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import inf
from typing import Final

from lodesman.decide.masks.bits import mask_of
from lodesman.decide.matching.limit_rules import Need, RunPlace, Values
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources.draft import DELAY
from lodesman.decide.resources.place_limits import FIELDS, PlaceLimit
from lodesman.languages.gridengine.values import Value
from lodesman.wire.nodes import NodePath
from lodesman.wire.quotas import NEXT_START, RUNNING_JOBS

_LISTS: Final = frozenset(("platforms", "tags", "submission_pools"))


def values_of(key: TaskQueueKey, field: str) -> tuple[str, ...]:
    """A task queue's values of a limited attribute."""
    value = getattr(key, field)
    return value if isinstance(value, tuple) else (str(value),)


def concerns(limit: PlaceLimit, key: TaskQueueKey) -> bool:
    """Whether a limit is about a task queue's jobs, where it holds."""
    return not limit.attribute or limit.value in values_of(key, FIELDS[limit.attribute])


class _LimitedKey:
    __slots__ = ("_needs", "bits")

    def __init__(self, bits: int, needs: Sequence[tuple[Need, ...]]) -> None:
        self.bits = bits
        self._needs = needs

    def values(self, _rule: int) -> Values:
        return ()

    def needs(self, rule: int) -> tuple[Need, ...]:
        return self._needs[rule]


class _LimitedPlace:
    __slots__ = ("_limits", "bits")

    def __init__(self, limits: Mapping[int, PlaceLimit]) -> None:
        self.bits = mask_of(limits)
        self._limits = limits

    def values(self, rule: int) -> Values:
        return (str(self._limits[rule].path),)

    def limits(self, rule: int) -> Mapping[str, Value]:
        """Of a delay its name, by which `is_open` is asked."""
        limit = self._limits[rule]
        return {NEXT_START: limit.name} if limit.kind == DELAY else {RUNNING_JOBS: limit.number}


class PlaceBook:
    """`is_open`: whether a job may start by the delay of that name."""

    def __init__(
        self, limits: Iterable[PlaceLimit], is_open: Callable[[str], bool] = lambda _name: True
    ) -> None:
        by_set = defaultdict[tuple[str, ...], dict[str, list[PlaceLimit]]](lambda: defaultdict(list))
        for limit in limits:
            field = FIELDS.get(limit.attribute, "")
            value = limit.value if field in _LISTS else ""
            by_set[limit.kind, "CE" if limit.path.ce else "site", field, value][limit.rule].append(limit)
        self._sets = tuple(pairwise([0, *accumulate(map(len, by_set.values()))]))
        rules = [some for of_set in by_set.values() for some in of_set.values()]
        self._names = tuple(some[0].rule for some in rules)
        start = (Need(NEXT_START, 1, 0, partial(_may_start, is_open)),)
        self._needs = [start if some[0].kind == DELAY else _ONE_JOB for some in rules]
        self._of_all = 0
        self._of_value: dict[str, dict[str, int]] = {}
        self._of_path: dict[NodePath, dict[int, PlaceLimit]] = {}
        for number, some in enumerate(rules):
            if some[0].attribute:
                bits_of = self._of_value.setdefault(FIELDS[some[0].attribute], {})
                bits_of[some[0].value] = bits_of.get(some[0].value, 0) | 1 << number
            else:
                self._of_all |= 1 << number
            for limit in some:
                self._of_path.setdefault(limit.path, {})[number] = limit

    @property
    def sets(self) -> tuple[tuple[int, int], ...]:
        """The first rule of each set, and the one after its last."""
        return self._sets

    @property
    def by_place(self) -> int:
        """Each rule counts sites or CEs apart."""
        return (1 << len(self._names)) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of rules, without the site."""
        return self._names

    def kind_of(self, key: TaskQueueKey) -> int:
        """The rules that concern a task queue: all that they see."""
        bits = self._of_all
        for field, bits_of in self._of_value.items():
            for value in values_of(key, field):
                bits |= bits_of.get(value, 0)
        return bits

    def of_key(self, key: TaskQueueKey) -> _LimitedKey:
        """The side of a task queue."""
        return _LimitedKey(self.kind_of(key), self._needs)

    def of_place(self, place: RunPlace) -> _LimitedPlace:
        """The rules of its site and its CE."""
        site, ce = NodePath(place.site), NodePath(place.site, place.ce)
        return _LimitedPlace({**self._of_path.get(site, {}), **self._of_path.get(ce, {})})


def _may_start(is_open: Callable[[str], bool], _one: Value, name: Value) -> bool:
    return is_open(str(name))


_ONE_JOB: Final = (Need(RUNNING_JOBS, 1, 1),)


class DelayRules:
    """Delays that a start at a place begins."""

    def __init__(self, limits: Iterable[PlaceLimit] = ()) -> None:
        self.known = [limit for limit in limits if limit.kind == DELAY]
        self._of_path: dict[NodePath, list[PlaceLimit]] = {}
        for limit in self.known:
            self._of_path.setdefault(limit.path, []).append(limit)

    def delays_at(self, key: TaskQueueKey, place: RunPlace) -> Iterator[PlaceLimit]:
        """The delays of a task queue's jobs there."""
        for path in (NodePath(place.site), NodePath(place.site, place.ce)):
            for delay in self._of_path.get(path, ()):
                if concerns(delay, key):
                    yield delay


NO_DELAYS: Final = DelayRules()


class Delays:
    """Shut matching delays (DIRAC's MatchingDelay). Used from one thread; others may read `next_at`."""

    def __init__(self, ticks: Callable[[], float], changed: Callable[[PlaceLimit], object]) -> None:
        self.rules = DelayRules()
        self.next_at = inf
        self.ticks = ticks  # a clock that is never set
        self._changed = changed  # called with each delay that shuts or opens
        self._until: dict[str, tuple[PlaceLimit, float]] = {}

    def is_open(self, name: str) -> bool:
        """Whether the delay lets a job start."""
        return name not in self._until

    def shut_delays(self) -> list[tuple[PlaceLimit, float]]:
        """The shut delays, with the seconds until each opens."""
        now = self.ticks()
        return [(delay, max(0.0, until - now)) for delay, until in self._until.values()]

    def begin(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Begin the delays of a job that starts."""
        if self.rules.known:
            for delay in self.rules.delays_at(key, place):
                self.shut_until(delay, self.ticks() + delay.number)

    def undo_begin(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Undo `begin`."""
        if self._until:
            for delay in self.rules.delays_at(key, place):
                self._open(delay)

    def start_all(self) -> None:
        """Begin every delay: earlier starts are unknown."""
        for delay in self.rules.known:
            self.shut_until(delay, self.ticks() + delay.number)

    def shut_until(self, delay: PlaceLimit, until: float) -> None:
        """`until`: a time of the clock."""
        was_open = self.is_open(delay.name)
        self._until[delay.name] = delay, until
        self.next_at = min(self.next_at, until)
        if was_open:
            self._changed(delay)

    def open_due(self) -> list[tuple[PlaceLimit, float]]:
        """Open delays that are over."""
        now = self.ticks()
        due = [(delay, until) for delay, until in self._until.values() if until <= now]
        for delay, _ in due:
            self._open(delay)
        return due

    def _open(self, delay: PlaceLimit) -> None:
        if self._until.pop(delay.name, None) is not None:
            self.next_at = min((until for _, until in self._until.values()), default=inf)
            self._changed(delay)
