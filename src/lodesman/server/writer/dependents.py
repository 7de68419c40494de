"""Who waits for whom, in the writer's memory (ADR 0070).

It is read from the database at the start. How far a job is in its waiting follows from the states of the jobs, is found out
anew then, and is stored nowhere.
"""

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
    """`todo`: ranges of parents that may have ended since they were judged. `search`: from where on the first one that has
    not ended is to be found; None while that one is `watched`.
    """

    row: DependencyRow
    todo: list[range] = field(default_factory=list)
    search: int | None = None
    watched: int = 0

    def __post_init__(self) -> None:
        self.search = self.row.first
        if self.judges_all:
            self.todo.append(range(self.row.first, self.row.last + 1))

    @property
    def judges_all(self) -> bool:
        """Whether the end of each parent may change something, not only that of the last one."""
        return bool(self.row.ok or self.row.by_index)

    def note(self, tx: Transaction, first: int, last: int) -> bool:
        """Jobs have ended; says whether that may change something."""
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
        """It is as now again if the batch fails."""
        tx.undo.append(partial(self._put_back, self.todo.copy(), self.search, self.watched))

    def _put_back(self, todo: list[range], search: int | None, watched: int) -> None:
        self.todo, self.search, self.watched = todo, search, watched


class Settling(NamedTuple):
    """Jobs that wait no more, as far as they are not moved yet, and what becomes of them."""

    rest: tuple[range, ...]
    new: JobState
    reason: str
    rows: list[DependencyRow]


class Dependents:
    """Used from the writer's thread only. `due`: what is to be judged; `settling`: jobs that are being moved, by the first
    of them.
    """

    def __init__(self, db: Reader) -> None:
        self.due: dict[Dependency, bool] = {}
        self.settling: dict[int, Settling] = {}
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
        """All that the same jobs wait for."""
        return list(self._of_waiter[dependency.row.job_id])

    def end(self, tx: Transaction, gone: Dependency) -> None:
        """No job waits by it any more."""
        self._leave(gone)
        tx.undo.append(partial(self._enter, gone))

    def forget(self, tx: Transaction, submissions: Collection[int]) -> None:
        """The jobs of these submissions were purged: they wait for nothing."""
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
