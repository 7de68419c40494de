"""The task queues with waiting jobs held against one resource: which fit it, what refuses the others, the nearest.

By the masks of `KeyTable`, so by the matcher's own criteria; a property test holds what is told here against
`explain`, pair by pair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lodesman.matching import ResourceRequest, TaskQueueKey, explain
from lodesman.matching.criteria import CRITERIA
from lodesman.matching.offers import as_if_made_for
from lodesman.matching.tables import PLACE, KeyTable
from lodesman.resources import bits
from lodesman.resources.planes import Change, changes, passing
from lodesman.why.shortfall import NAMES, Shortfall, joined, shortfall

ALL: Final = frozenset(one.name for one in CRITERIA)
"""What refuses task queues to a pilot that is there."""
SENDABLE: Final = frozenset({"vo", *(one.name for one in PLACE)})
"""What refuses them to any pilot that could be sent to a place: whom it serves is the director's choice."""
MOST_NEAREST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Task queues that the same few criteria refuse, for instance `example`, the fullest of them."""

    steps: tuple[Shortfall, ...]
    task_queues: int
    jobs: int
    example: int
    key: TaskQueueKey
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """The changes for people."""
        return joined(self.steps)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "change": [step.criterion for step in self.steps],
            "text": self.text,
            "task_queues": self.task_queues,
            "jobs": self.jobs,
            "steps": [step.as_dict() for step in self.steps],
            "example": {
                "task_queue": self.example,
                "owner": self.key.owner,
                "group": self.key.group,
                "reasons": list(self.reasons),
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All as of one look. `known` task queues have `jobs` waiting jobs, of all VOs; `fitting` are the ids of those
    that nothing refuses; `refused` counts task queues by criterion, whatever the others say, worst first.
    """

    known: int
    jobs: int
    fitting: tuple[int, ...]
    fitting_jobs: int
    fullest: int | None
    """The fitting task queue with most waiting jobs."""
    refused: tuple[tuple[str, int], ...]
    nearest: tuple[Near, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "task_queues": self.known,
            "jobs": self.jobs,
            "fitting": len(self.fitting),
            "fitting_jobs": self.fitting_jobs,
            "ruled_out_by": [{"criterion": name, "task_queues": n} for name, n in self.refused],
            "nearest": [one.as_dict() for one in self.nearest],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Task queues with waiting jobs: as bits, their keys, and how many jobs wait in each."""

    table: KeyTable
    keys: Mapping[int, TaskQueueKey]
    waiting: Mapping[int, int]

    def survey(self, request: ResourceRequest, criteria: Collection[str] = ALL) -> Survey:
        """Hold them all against a resource, by the criteria of these names."""
        table = self.table
        found = [one for one in table.lost(table.full, request) if one[0].name in criteria]
        planes = [(one.name, mask) for one, mask in found]
        fitting = self._ids(passing(planes, table.full))
        counted = [(NAMES[name], mask.bit_count()) for name, mask in planes]
        of_vo = table.full & ~dict(planes).get("vo", 0)
        return Survey(
            known=table.full.bit_count(),
            jobs=sum(self.waiting.values()),
            fitting=fitting,
            fitting_jobs=self._jobs(fitting),
            fullest=self._fullest(fitting) if fitting else None,
            refused=tuple(sorted(counted, key=lambda one: (-one[1], one[0]))),
            nearest=tuple(
                self._near(request, change, criteria) for change in changes(planes, of_vo)[:MOST_NEAREST]
            ),
        )

    def _near(self, request: ResourceRequest, change: Change, criteria: Collection[str]) -> Near:
        """One change. Nobody is told to serve another VO: only task queues of the same VO are looked at."""
        ids = self._ids(change.mask)
        example = self._fullest(ids)
        key = self.keys[example]
        keys = [self.keys[tq_id] for tq_id in ids]
        made = request if criteria is ALL else as_if_made_for(key, request)
        return Near(
            steps=tuple(
                shortfall(criterion, request, keys)
                for criterion in CRITERIA
                if criterion.name in change.parameters
            ),
            task_queues=change.count,
            jobs=self._jobs(ids),
            example=example,
            key=key,
            reasons=tuple(str(reason) for reason in explain(key, made)),
        )

    def _ids(self, mask: int) -> tuple[int, ...]:
        return tuple(sorted(map(self.table.tq_id, bits(mask))))

    def _fullest(self, ids: Collection[int]) -> int:
        return max(ids, key=lambda tq_id: (self.waiting.get(tq_id, 0), -tq_id))

    def _jobs(self, ids: Collection[int]) -> int:
        return sum(self.waiting.get(tq_id, 0) for tq_id in ids)
