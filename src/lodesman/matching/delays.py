"""Matching delays (DIRAC's MatchingDelay): after a start, the next one waits. They open by themselves, by a clock that is
never set: `ticks`, which the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from lodesman.answers.nodes import NodePath
from lodesman.matching.limit_rules import RunPlace
from lodesman.matching.place_book import concerns
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.resources.draft import DELAY
from lodesman.resources.place_limits import PlaceLimit


class DelayRules:
    """Which delays a start at a place begins."""

    def __init__(self, limits: Iterable[PlaceLimit] = ()) -> None:
        self.known: dict[str, PlaceLimit] = {}
        self._of_path: dict[NodePath, list[PlaceLimit]] = {}
        for one in limits:
            if one.kind == DELAY:
                self.known[one.name] = one
                self._of_path.setdefault(one.path, []).append(one)

    def of(self, key: TaskQueueKey, place: RunPlace) -> Iterator[str]:
        """The names of those that concern the jobs of a task queue there."""
        for path in (NodePath(place.site), NodePath(place.site, place.ce)):
            for one in self._of_path.get(path, ()):
                if concerns(one, key):
                    yield one.name


NO_DELAYS: Final = DelayRules()


class Delays:
    """Which delays are shut, and until when. `changed` is called with the name of each that shuts or opens.

    Used from one thread; others may read `next_at`, when the first one opens.
    """

    def __init__(self, ticks: Callable[[], float], changed: Callable[[str], object]) -> None:
        self.rules = DelayRules()
        self.next_at = inf
        self.ticks = ticks
        self._changed = changed
        self._until: dict[str, float] = {}

    def is_open(self, name: str) -> bool:
        """Whether a job may start by that delay."""
        return name not in self._until

    def shut(self) -> dict[str, float]:
        """The seconds until each of those that are shut opens."""
        now = self.ticks()
        return {name: max(0.0, until - now) for name, until in self._until.items()}

    def started(self, key: TaskQueueKey, place: RunPlace) -> None:
        """A job of a task queue starts there."""
        if self.rules.known:
            for name in self.rules.of(key, place):
                self.shut_until(name, self.ticks() + self.rules.known[name].number)

    def not_started(self, key: TaskQueueKey, place: RunPlace) -> None:
        """The inverse of `started`."""
        if self._until:
            for name in self.rules.of(key, place):
                self._open(name)

    def start_all(self) -> None:
        """What started before is not known: let each delay run from now on."""
        for name, one in self.rules.known.items():
            self.shut_until(name, self.ticks() + one.number)

    def shut_until(self, name: str, until: float) -> None:
        """Nothing starts by that delay before that time of the clock."""
        was_open = self.is_open(name)
        self._until[name] = until
        self.next_at = min(self._until.values())
        if was_open:
            self._changed(name)

    def open_due(self) -> list[tuple[str, float]]:
        """Open those whose time has come; returns them with that time."""
        now = self.ticks()
        due = [(name, until) for name, until in self._until.items() if until <= now]
        for name, _ in due:
            self._open(name)
        return due

    def _open(self, name: str) -> None:
        if self._until.pop(name, None) is not None:
            self.next_at = min(self._until.values(), default=inf)
            self._changed(name)
