"""`AtMost`: how many jobs of a submission may be taken at once. A submission that says so has task queues of its own, all of
one group; while as many of its jobs are taken none of them may be drawn (ADR 0075).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lodesman.decide.matching.group_index import Cap, IndexedQueue
from lodesman.decide.matching.task_queue import TaskQueueKey

_Waiting = tuple[int, TaskQueueKey, int]  # a task queue, its key and its waiting jobs


@dataclass(slots=True, eq=False)
class _Submission:
    """`taken`: its jobs that are. `caps`: by the number that is allowed, which differs only where jobs were changed."""

    taken: int
    caps: dict[int, Cap]


class Caps:
    """The submissions with `AtMost` that have task queues in the index or jobs that are taken. For the writer's thread."""

    __slots__ = ("_eased", "_known")

    def __init__(self) -> None:
        self._known: dict[int, _Submission] = {}
        self._eased: dict[Cap, int] = {}

    def enter(self, queue: IndexedQueue) -> None:
        """A task queue comes into its group, where it has no slot yet."""
        if queue.key.at_most:
            one = self._submission(queue.key.submission)
            most = queue.key.at_most
            cap = one.caps.get(most)
            if cap is None:
                cap = one.caps[most] = Cap(queue.group, full=one.taken >= most)
            queue.cap = cap

    def leave(self, queue: IndexedQueue) -> None:
        """A task queue has left its group."""
        if queue.cap is not None and not queue.cap.mask:
            number = queue.key.submission
            del self._known[number].caps[queue.key.at_most]
            self._eased.pop(queue.cap, None)
            self._forget(number)

    def taken(self, submission: int) -> int:
        """How many of its jobs are taken."""
        one = self._known.get(submission)
        return 0 if one is None else one.taken

    def count(self, submission: int, by: int) -> bool:
        """A job of a submission is taken (1), or is so no more (-1). Returns whether task queues opened or closed."""
        one, flipped = self._submission(submission), False
        one.taken += by
        for most, cap in one.caps.items():
            if cap.full != (one.taken >= most):
                cap.group.flip(cap)
                flipped = True
            if by < 0 and not cap.full:
                self._eased[cap] = most - one.taken
        self._forget(submission)
        return flipped

    def recount(self, taken: Iterable[int]) -> int:
        """These are the submissions of all jobs that are taken, one for each. Returns how many had another number."""
        found = Counter(taken)
        wrong = [number for number in {*self._known, *found} if self.taken(number) != found[number]]
        for number in wrong:
            self.count(number, found[number] - self.taken(number))
        return len(wrong)

    def take_eased(self) -> Iterator[tuple[IndexedQueue, int]]:
        """The open task queues of which a job ended since this was asked last, and how many of their jobs may start."""
        eased, self._eased = self._eased, {}
        for cap, room in eased.items():
            for queue in cap.group.queues(cap.mask & cap.group.open):
                yield queue, min(room, queue.waiting)

    def _submission(self, number: int) -> _Submission:
        return self._known.get(number) or self._known.setdefault(number, _Submission(0, {}))

    def _forget(self, number: int) -> None:
        one = self._known[number]
        if not one.taken and not one.caps:
            del self._known[number]


def startable(waiting: Iterable[_Waiting], taken: Mapping[int, int]) -> list[_Waiting]:
    """The task queues with jobs that may start by `AtMost`, and how many of them. `taken`: how many of each submission are.
    What task queues of one submission have together is given to the first of them.
    """
    found, given = list[_Waiting](), Counter[int]()
    for tq_id, key, jobs in waiting:
        if key.at_most:
            room = max(0, key.at_most - taken.get(key.submission, 0) - given[key.submission])
            jobs = min(jobs, room)  # noqa: PLW2901 - of all others all may start
            given[key.submission] += jobs
        if jobs:
            found.append((tq_id, key, jobs))
    return found
