"""Jobs that clients wait for, counted by state and updated by each commit (ADR 0065).

Ranges are aligned blocks of 2^n ids: a job's watches are found with one step for each size in use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from lodesman.languages.jobs.spec import TERMINAL
from lodesman.wire.vocabulary import JobState

_LEVEL_BITS = 6


class JobMove(NamedTuple):
    """From one state to another."""

    first: int  # 0: jobs that wait in some task queue are Held with it from now on, or not any more.
    last: int
    old: JobState
    new: JobState
    data: dict[str, Any] | None = None  # What their event says.


class CommitMoves(Struct, frozen=True):
    """One commit's changes, in order."""

    batch: int  # The number of the commit, as the database has it.
    moves: Sequence[JobMove]


HOLDS_CHANGED = JobMove(0, 0, JobState.WAITING, JobState.WAITING)


class CountedJobs(Struct, frozen=True):
    """Jobs in a snapshot of the database."""

    batch: int  # The number of the last commit in it.
    states: Counter[JobState]
    stopped: int = 0  # How many of the Waiting ones are Held with their task queue.
    unknown: int = 0  # How many were purged.


@dataclass(slots=True, eq=False)
class JobWatch:
    """Jobs and their states. Changes are kept until a snapshot is taken, and while a newer one is read."""

    ranges: tuple[range, ...]  # Ascending, without overlap.
    states: Counter[JobState] = field(default_factory=Counter)
    unknown: int = 0
    version: int = 0  # Grows with each change.
    doubtful: bool = True  # Only a new snapshot tells how many jobs are Held with their task queue.
    _stopped: int = 0
    _batch: int = -1
    _since: list[tuple[int, JobMove]] | None = field(default_factory=list)
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = [ids.start for ids in self.ranges]

    @property
    def size(self) -> int:
        """How many jobs."""
        return sum(map(len, self.ranges))

    @property
    def held(self) -> int:
        """Jobs that do not go on by themselves."""
        return self.states[JobState.HELD] + min(self._stopped, self.states[JobState.WAITING])

    @property
    def ended(self) -> int:
        """Ended jobs, purged ones too."""
        return sum(self.states[state] for state in TERMINAL) + self.unknown

    @property
    def left(self) -> int:
        """Jobs that have not ended."""
        return sum(self.states.values()) + self.unknown - self.ended

    def is_over(self, *, first: bool, held: bool) -> bool:
        """Whether all have ended, or the `first`; `held`: Held jobs count as ended."""
        left = self.left
        return not left or (first and self.ended > 0) or (held and left == self.held)

    def shown(self) -> dict[JobState, int]:
        """As lists show them: jobs of a task queue which no queue can run are Held, not Waiting."""
        stopped = min(self._stopped, self.states[JobState.WAITING])
        counts = self.states + Counter({JobState.HELD: stopped})
        counts[JobState.WAITING] -= stopped
        return {state: counts[state] for state in JobState if counts[state] > 0}

    def read_anew(self) -> None:
        """Keep changes from now on: a snapshot will be read."""
        self._since = []

    def take_snapshot(self, snapshot: CountedJobs) -> None:
        """Count by a snapshot, and by what was committed later."""
        since, self._since = self._since or [], None
        self.doubtful = False
        self._batch, self.states = snapshot.batch, Counter(snapshot.states)
        self._stopped, self.unknown = snapshot.stopped, snapshot.unknown
        self.version += 1
        for batch, move in since:
            self.apply_move(batch, move)

    def apply_move(self, batch: int, move: JobMove, count: int | None = None) -> int:
        """Apply a commit's change; returns how many jobs here it was about (`count`, if known)."""
        if self._since is not None:
            self._since.append((batch, move))
            return 0
        if batch <= self._batch:
            return 0
        if move.first == 0:
            self.doubtful = self.doubtful or self.states[JobState.WAITING] > 0
            return 0
        if count is None:
            count = sum(map(len, self.parts(move.first, move.last)))
        if count:
            self.version += 1
            self.states[move.old] -= count
            self.states[move.new] += count
            if self._stopped and move.old is JobState.WAITING and move.new is not JobState.MATCHED:
                self.doubtful = True
        return count

    def parts(self, first: int, last: int) -> Iterator[range]:
        """The watched ones of these jobs."""
        place = max(0, bisect_right(self._starts, first) - 1)
        for ids in islice(self.ranges, place, None):
            if ids.start > last:
                return
            part = range(max(ids.start, first), min(ids.stop, last + 1))
            if part:
                yield part


class JobWatches:
    """Found by the jobs that change. Used from one thread."""

    def __init__(self) -> None:
        self.watches: dict[tuple[range, ...], JobWatch] = {}
        self.ranges = 0
        self._at: dict[int, list[JobWatch]] = {}
        self._levels: Counter[int] = Counter()

    def add(self, watch: JobWatch) -> None:
        """Let a watch follow the changes."""
        self.watches[watch.ranges] = watch
        self.ranges += len(watch.ranges)
        for level, key in _blocks(watch.ranges):
            self._levels[level] += 1
            self._at.setdefault(key, []).append(watch)

    def drop(self, watch: JobWatch) -> None:
        """Forget a watch."""
        del self.watches[watch.ranges]
        self.ranges -= len(watch.ranges)
        for level, key in _blocks(watch.ranges):
            self._at[key].remove(watch)
            if not self._at[key]:
                del self._at[key]
            self._levels[level] -= 1
            if not self._levels[level]:
                del self._levels[level]

    def apply_moves(self, batch: int, moves: Sequence[JobMove]) -> dict[JobWatch, list[JobMove]]:
        """Apply a commit's changes in order; returns the watches that changed, each with its changes."""
        touched: dict[JobWatch, list[JobMove]] = {}
        for move in moves:
            single = move.first == move.last and move.first > 0
            count = 1 if single else None
            for watch in self._of_job(move.first) if single else self.watches.values():
                if watch.apply_move(batch, move, count) or watch.doubtful:
                    touched.setdefault(watch, []).append(move)
        return touched

    def _of_job(self, job: int) -> Sequence[JobWatch]:
        at = self._at
        watches_of_blocks = [
            at[key] for level in self._levels if (key := job >> level << _LEVEL_BITS | level) in at
        ]
        return (
            watches_of_blocks[0]
            if len(watches_of_blocks) == 1
            else [watch for watches in watches_of_blocks for watch in watches]
        )


def _blocks(ranges: Iterable[range]) -> Iterator[tuple[int, int]]:
    """The fewest blocks of ids: the level n of each, and its key."""
    for ids in ranges:
        level, low, high = 0, ids.start, ids.stop
        while low < high:
            if low & 1:
                yield level, low << _LEVEL_BITS | level
                low += 1
            if high & 1:
                high -= 1
                yield level, high << _LEVEL_BITS | level
            level, low, high = level + 1, low >> 1, high >> 1
