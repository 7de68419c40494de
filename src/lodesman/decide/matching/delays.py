"""Matching delays (DIRAC's MatchingDelay): after a start, the next one waits. They open by themselves, by a clock that is
never set: `ticks`, which the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.place_book import concerns
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources.draft import DELAY
from lodesman.decide.resources.place_limits import PlaceLimit
from lodesman.wire.nodes import NodePath


class DelayRules:
    """Which delays a start at a place begins."""

    def __init__(self, limits: Iterable[PlaceLimit] = ()) -> None:
        self.known = [one for one in limits if one.kind == DELAY]
        self._of_path: dict[NodePath, list[PlaceLimit]] = {}
        for one in self.known:
            self._of_path.setdefault(one.path, []).append(one)

    def of(self, key: TaskQueueKey, place: RunPlace) -> Iterator[PlaceLimit]:
        """Those that concern the jobs of a task queue there."""
        for path in (NodePath(place.site), NodePath(place.site, place.ce)):
            for one in self._of_path.get(path, ()):
                if concerns(one, key):
                    yield one


NO_DELAYS: Final = DelayRules()


class Delays:
    """Which delays are shut, and until when. `changed` is called with each that shuts or opens.

    Used from one thread; others may read `next_at`, when the first one opens.
    """

    def __init__(self, ticks: Callable[[], float], changed: Callable[[PlaceLimit], object]) -> None:
        self.rules = DelayRules()
        self.next_at = inf
        self.ticks = ticks
        self._changed = changed
        self._until: dict[str, tuple[PlaceLimit, float]] = {}

    def is_open(self, name: str) -> bool:
        """Whether a job may start by that delay."""
        return name not in self._until

    def shut(self) -> list[tuple[PlaceLimit, float]]:
        """Those that are shut, with the seconds until each of them opens."""
        now = self.ticks()
        return [(one, max(0.0, until - now)) for one, until in self._until.values()]

    def started(self, key: TaskQueueKey, place: RunPlace) -> None:
        """A job of a task queue starts there."""
        if self.rules.known:
            for one in self.rules.of(key, place):
                self.shut_until(one, self.ticks() + one.number)

    def not_started(self, key: TaskQueueKey, place: RunPlace) -> None:
        """The inverse of `started`."""
        if self._until:
            for one in self.rules.of(key, place):
                self._open(one)

    def start_all(self) -> None:
        """What started before is not known: let each delay run from now on."""
        for one in self.rules.known:
            self.shut_until(one, self.ticks() + one.number)

    def shut_until(self, delay: PlaceLimit, until: float) -> None:
        """Nothing starts by that delay before that time of the clock."""
        was_open = self.is_open(delay.name)
        self._until[delay.name] = delay, until
        self.next_at = min(self.next_at, until)
        if was_open:
            self._changed(delay)

    def open_due(self) -> list[tuple[PlaceLimit, float]]:
        """Open those whose time has come; returns them with that time."""
        now = self.ticks()
        due = [(one, until) for one, until in self._until.values() if until <= now]
        for one, _ in due:
            self._open(one)
        return due

    def _open(self, delay: PlaceLimit) -> None:
        if self._until.pop(delay.name, None) is not None:
            self.next_at = min((until for _, until in self._until.values()), default=inf)
            self._changed(delay)
