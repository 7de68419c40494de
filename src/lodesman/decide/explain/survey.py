"""Which task queues fit a resource, what excludes the others, and the smallest changes that admit some
(`submission.job_changes` changes the job). A property test compares each count with `explain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from lodesman.decide.explain.verdict import excluded
from lodesman.decide.masks.bits import NearMiss, bits, mask_of, near_misses, passing
from lodesman.decide.masks.table import Values
from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.criteria import (
    AT_MOST,
    CONTAINS,
    CRITERIA,
    DISJOINT,
    WITHIN,
    MatchCriterion,
    explain,
)
from lodesman.decide.matching.offers import PRIVATE_ONLY, as_if_made_for, gets_private
from lodesman.decide.matching.tables import PLACE, KeyTable
from lodesman.decide.submission.exclusions import ATTRIBUTES
from lodesman.wire import why_pilots as answers

ALL: Final = frozenset(criterion.name for criterion in CRITERIA)
"""The criteria for a pilot that is there."""
SENDABLE: Final = frozenset({"vo", *(criterion.name for criterion in PLACE)})
"""For a pilot that could be sent: the director chooses whom it serves."""
NAMES: Final = {
    **ATTRIBUTES,
    "job_class": "JcList",
    "vo": "VO",
    "group": "OwnerGroup",
    "owner": "Owner",
    "pilot_type": "PilotType",
    "submission_pool": "SubmissionPool",
}
"""Criterion of the matcher -> the word for people."""
_MOST_CHANGES: Final = 5
_OPTIONS_SHOWN: Final = 3
_CRITERIA_SHOWN: Final = 5
_LONGEST: Final = 20


class Survey(Struct, frozen=True, kw_only=True):
    """Task queues against one resource."""

    work: answers.Work
    fitting: tuple[int, ...]  # ids of those that nothing excludes
    fullest: int | None  # the one of them with most waiting jobs


class WaitingTaskQueues(Struct, frozen=True, kw_only=True):
    """Task queues with waiting jobs."""

    table: KeyTable
    keys: Mapping[int, TaskQueueKey]
    waiting: Mapping[int, int]  # id -> number of jobs

    def survey(
        self, request: ResourceRequest, criteria: Collection[str] = ALL, *,
        private_pools: Collection[str] | None = None,
    ) -> Survey:  # fmt: skip
        """`private_pools`: see `gets_private`; None unless the resource is a queue that takes private pilots only."""
        full = self.table.full
        planes = [
            (criterion.name, mask)
            for criterion, mask in self.table.lost(full, request)
            if criterion.name in criteria
        ]
        if private_pools is not None:
            generic = (tq_id for tq_id, key in self.keys.items() if not gets_private(key, private_pools))
            planes.append((PRIVATE_ONLY.parameter, mask_of(map(self.table.bit, generic))))
        planes = [plane for plane in planes if plane[1]]
        fitting = self._ids(passing(planes, full))
        of_vo = full & ~dict(planes).get("vo", 0)  # no change makes a resource serve another VO
        nearest = near_misses(planes, of_vo)[:_MOST_CHANGES]
        counts = [(NAMES.get(name, name), mask.bit_count()) for name, mask in planes]
        counts.sort(key=lambda count: (-count[1], count[0]))
        work = answers.Work(
            task_queues=full.bit_count(),
            jobs=sum(self.waiting.values()),
            fitting=len(fitting),
            fitting_jobs=self._jobs(fitting),
            ruled_out_by=[answers.TaskQueuesExcluded(name, n) for name, n in counts],
            nearest=[self._change(request, change, made=criteria is ALL) for change in nearest],
        )
        return Survey(work=work, fitting=fitting, fullest=self._fullest(fitting) if fitting else None)

    def _change(self, request: ResourceRequest, change: NearMiss, *, made: bool) -> answers.ResourceChange:
        """`made`: the pilot exists; it cannot serve others."""
        ids = self._ids(change.mask)
        example = self._fullest(ids)
        key, keys = self.keys[example], [self.keys[tq_id] for tq_id in ids]
        steps = [
            change_step(criterion, request, keys)
            for criterion in CRITERIA
            if criterion.name in change.criteria
        ]
        reasons = [*map(str, explain(key, request if made else as_if_made_for(key, request)))]
        if PRIVATE_ONLY.parameter in change.criteria:
            steps.append(_generic_too(len(ids)))
            reasons.append(PRIVATE_ONLY.text)
        return answers.ResourceChange(
            change=[step.criterion for step in steps],
            text=" and ".join(step.text for step in steps),
            task_queues=change.count,
            jobs=self._jobs(ids),
            steps=steps,
            example=answers.ExampleTaskQueue(
                task_queue=example, owner=key.owner, group=key.group, reasons=reasons
            ),
        )

    def _ids(self, mask: int) -> tuple[int, ...]:
        return tuple(sorted(map(self.table.tq_id, bits(mask))))

    def _fullest(self, ids: Collection[int]) -> int:
        return max(ids, key=lambda tq_id: (self.waiting.get(tq_id, 0), -tq_id))

    def _jobs(self, ids: Collection[int]) -> int:
        return sum(self.waiting.get(tq_id, 0) for tq_id in ids)


def ruled_out(work: answers.Work, of: str = "") -> str:
    """The criteria that exclude most task queues; `of`: what follows each number."""
    rows = work.ruled_out_by[:_CRITERIA_SHOWN]
    return excluded(((row.criterion, row.task_queues) for row in rows), of)


def suggestion(work: answers.Work) -> str:
    """The smallest change, as the end of a sentence; '' if none."""
    return f"; suggestion: {work.nearest[0].text}" if work.nearest else ""


def change_step(
    criterion: MatchCriterion, request: ResourceRequest, keys: Sequence[TaskQueueKey]
) -> answers.ResourceChangeStep:
    """What the resource must offer to these excluded task queues."""
    name, offered = NAMES[criterion.name], criterion.of_request(request)
    wishes = [criterion.of_key(key) for key in keys]
    if criterion.relation is AT_MOST:
        options = _least(Counter(wishes))
        text = f"{name} {offered} -> {options[-1][0]}"
    else:
        word, joint, pick = _WORDS.get(criterion.relation, _ALL_ASKED)
        named = Counter(value for values in wishes for value in pick(values, offered))
        options = named.most_common(_OPTIONS_SHOWN)
        offered = list(offered[:_OPTIONS_SHOWN])
        text = f"{name} {word} {joint.join(_short(value) for value, _ in options)}"
    return answers.ResourceChangeStep(
        criterion=name,
        text=text,
        offered=offered,
        options=[answers.ResourceOption(value=value, task_queues=n) for value, n in options],
    )


def _generic_too(task_queues: int) -> answers.ResourceChangeStep:
    name, yes = PRIVATE_ONLY.parameter, answers.ResourceOption(value="yes", task_queues=task_queues)
    return answers.ResourceChangeStep(criterion=name, text=f"{name} -> yes", offered=["no"], options=[yes])


_Pick = Callable[[Values, Values], Iterable[str]]
_WORDS: Final[Mapping[object, tuple[str, str, _Pick]]] = {
    WITHIN: ("with", " and ", lambda wishes, offered: [value for value in wishes if value not in offered]),
    CONTAINS: (
        "without",
        " and ",
        lambda wishes, offered: [value for value in offered if value not in wishes],
    ),
    DISJOINT: ("other than", " or ", lambda wishes, offered: [value for value in wishes if value in offered]),
}
"""Relation -> the words of a change, and the values that it names."""
_ALL_ASKED: Final[tuple[str, str, _Pick]] = ("->", " or ", lambda wishes, _: wishes)


def _least(counts: Counter[int]) -> list[tuple[Any, int]]:
    """(value, task queues content with it): the least, the median, the most."""
    reached = 0
    steps = []
    for value in sorted(counts):
        reached += counts[value]
        steps.append((value, reached))
    middle = next(step for step in steps if 2 * step[1] >= reached)
    return list(dict.fromkeys((steps[0], middle, steps[-1])))


def _short(value: str) -> str:
    # A SubmitPool is a long hash.
    return value if len(value) <= _LONGEST or ":" not in value else f"{value[:_LONGEST]}..."
