"""Who waits for whom, in the writer's memory (ADR 0070). How far a wait has come follows from the jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from lodesman.server.store import Reader
from lodesman.server.store.order import DependencyRow, dependencies, insert_dependency
from lodesman.server.store.transaction import Transaction
from lodesman.wire.vocabulary import JobState


@dataclass(slots=True, eq=False)
class Dependency:
    """Jobs that wait for a range of jobs."""

    row: DependencyRow
    todo: list[range] = field(default_factory=list)  # parents that may have ended since they were judged
    search: int | None = None  # from where to find the first parent that has not ended; None: it is `watched`
    watched: int = 0

    def __post_init__(self) -> None:
        self.search = self.row.first
        if self.judges_all:
            self.todo.append(range(self.row.first, self.row.last + 1))

    @property
    def judges_all(self) -> bool:
        """Whether each parent's end matters, not only the last one's."""
        return bool(self.row.ok or self.row.by_index)

    def note(self, tx: Transaction, first: int, last: int) -> bool:
        """Jobs have ended; true if that matters."""
        row = self.row
        hit = self.search is None and first <= self.watched <= last
        if last < row.first or first > row.last or not (hit or self.judges_all):
            return False
        self.keep(tx)
        if hit:
            self.search = self.watched
        if self.judges_all:
            self.todo.append(range(max(first, row.first), min(last, row.last) + 1))
        return True

    def keep(self, tx: Transaction) -> None:
        """Undo changes if the batch fails."""
        tx.undo.append(partial(self._put_back, self.todo.copy(), self.search, self.watched))

    def _put_back(self, todo: list[range], search: int | None, watched: int) -> None:
        self.todo, self.search, self.watched = todo, search, watched


class SettlingJobs(NamedTuple):
    """Jobs that wait for others no more, and are being moved."""

    rest: tuple[range, ...]  # not moved yet
    new: JobState
    reason: str
    rows: list[DependencyRow]


class Dependents:
    """All dependencies. For the writer's thread alone."""

    def __init__(self, db: Reader) -> None:
        self.due: dict[Dependency, bool] = {}  # to be judged
        self.settling: dict[int, SettlingJobs] = {}  # being moved, by first job
        self._of_parent: dict[int, dict[Dependency, bool]] = {}
        self._of_waiter: dict[int, dict[Dependency, bool]] = {}
        for row in dependencies(db):
            self._enter(Dependency(row))

    def __len__(self) -> int:
        return sum(map(len, self._of_waiter.values()))

    def add(self, tx: Transaction, rows: Iterable[DependencyRow]) -> None:
        """Let jobs wait; they are judged at the end of the batch."""
        for row in rows:
            insert_dependency(tx, row)
            new = Dependency(row)
            self._enter(new)
            tx.undo.append(partial(self._leave, new))

    def note(self, tx: Transaction, ended: Iterable[tuple[int, int, int]]) -> None:
        """Jobs have ended: (submission, first, last)."""
        if not self._of_parent:
            return
        for submission, first, last in ended:
            for dependency in self._of_parent.get(submission, ()):
                if dependency.note(tx, first, last):
                    tx.put(self.due, dependency, True)

    def beside(self, dependency: Dependency) -> list[Dependency]:
        """All dependencies of the same jobs."""
        return list(self._of_waiter[dependency.row.job_id])

    def end(self, tx: Transaction, gone: Dependency) -> None:
        """No job waits by it any more."""
        self._leave(gone)
        tx.undo.append(partial(self._enter, gone))

    def forget(self, tx: Transaction, submissions: Collection[int]) -> None:
        """The jobs of these submissions were purged."""
        waiters = [dependency for some in self._of_waiter.values() for dependency in some]
        for dependency in waiters:
            if dependency.row.submission_id in submissions:
                self.end(tx, dependency)

    def _enter(self, new: Dependency) -> None:
        self._of_parent.setdefault(new.row.parent_id, {})[new] = True
        self._of_waiter.setdefault(new.row.job_id, {})[new] = True
        self.due[new] = True

    def _leave(self, gone: Dependency) -> None:
        self.due.pop(gone, None)
        for book, number in ((self._of_parent, gone.row.parent_id), (self._of_waiter, gone.row.job_id)):
            book[number].pop(gone, None)
            if not book[number]:
                del book[number]
