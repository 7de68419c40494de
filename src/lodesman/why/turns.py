"""Whose turn is next: the starts that pilots offer, parted among the task queues that compete for them. Pure.

The lottery draws a group by share, one of its owners, and a task queue by UserPriority. What it gives on average is
counted here: whole starts, so that the task queues together are promised no more than there are. Older ones come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

from lodesman.matching import GroupShare, TaskQueueKey, parts_of
from lodesman.matching.shares import priority_weight

_LITTLE: Final = 1e-9


class Turn(NamedTuple):
    """Where a job stands: `ahead` of it jobs of its own task queue, and `others` of those that compete. Of the starts its
    task queue gets the `part`, and older ones get `older`.
    """

    ahead: int = 0
    others: int = 0
    part: float = 1.0
    older: float = 0.0

    def allotted(self, starts: int) -> int:
        """Of this number of starts those of its task queue: its part, and what the others leave."""
        before = ceil(starts * self.older - _LITTLE)
        return max(ceil(starts * (self.older + self.part) - _LITTLE) - before, starts - self.others)

    def is_next(self, starts: int) -> bool:
        """Whether this number of starts reaches the job."""
        return self.ahead < self.allotted(starts)

    @property
    def before(self) -> int:
        """About how many jobs start before it."""
        drawn = (self.ahead + 1) * (1.0 - self.part) / max(self.part, _LITTLE)
        return self.ahead + min(self.others, ceil(drawn - _LITTLE))


FIRST: Final = Turn()


class Contest:
    """The task queues with waiting jobs that compete, as the lottery sees them. `sharing`: groups whose owners are not
    distinguished; `apart`: task queues that nothing could start now: they take no start from others.
    """

    def __init__(
        self, waiting: Sequence[tuple[int, TaskQueueKey, int]] = (), sharing: Container[str] = (),
        apart: Container[int] = (),
    ) -> None:  # fmt: skip
        self._sharing = sharing
        self.jobs: dict[str, Counter[str]] = {}
        """The waiting jobs of each group, by VO."""
        # (VO, group) -> owner -> rank, and the weight of its task queues so far.
        self._owners: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
        # Of each task queue the weight of the older ones of its owner, and its waiting jobs.
        self._own: dict[int | None, tuple[float, int]] = {}
        # Groups that compete -> group -> its part, and those of the groups before it.
        self._parts: dict[frozenset[str], dict[str, tuple[float, float]]] = {}
        for tq_id, key, jobs in waiting:
            if tq_id not in apart:
                self.jobs.setdefault(key.vo, Counter())[key.group] += jobs
                owners, owner = self._owners.setdefault((key.vo, key.group), {}), self._owner(key)
                rank, before = owners.get(owner, (len(owners), 0.0))
                self._own[tq_id] = before, jobs
                owners[owner] = rank, before + priority_weight(key.user_priority)

    def _owner(self, key: TaskQueueKey) -> str:
        return "" if key.group in self._sharing else key.owner

    def turn(
        self, key: TaskQueueKey, tq_id: int | None, *, ahead: int, groups: Mapping[str, int],
        shares: Mapping[str, GroupShare],
    ) -> Turn:  # fmt: skip
        """The turn of a job in a task queue (None: a new one). `groups`: those of its VO that compete, with their waiting
        jobs.
        """
        part, older = self._parts_of({*groups, key.group}, shares)[key.group]
        owners = self._owners.get((key.vo, key.group), {})
        rank, total = owners.get(self._owner(key), (len(owners), 0.0))
        each = part / max(len(owners), rank + 1)
        weight, jobs = priority_weight(key.user_priority), 0
        before, total = total, total + weight
        if tq_id in self._own:
            (before, jobs), total = self._own[tq_id], total - weight
        return Turn(
            ahead=ahead,
            others=max(0, sum(groups.values()) - jobs),
            part=each * weight / total,
            older=older + each * (rank + before / total),
        )

    def _parts_of(
        self, groups: Collection[str], shares: Mapping[str, GroupShare]
    ) -> dict[str, tuple[float, float]]:
        key = frozenset(groups)
        found = self._parts.get(key)
        if found is None:
            found, sum_of = {}, 0.0
            for group, part in sorted(parts_of(key, shares).items()):
                found[group] = part, sum_of
                sum_of += part
            self._parts[key] = found
        return found
