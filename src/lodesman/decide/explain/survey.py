"""The task queues with waiting jobs held against one resource: which fit it, what excludes the others, and the smallest
changes of the resource that would admit some (the mirror of `submission.job_changes`, which changes the job). Pure.

Masks of `KeyTable` and the matcher's own criteria count; a property test holds each count against `explain`.
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

ALL: Final = frozenset(one.name for one in CRITERIA)
"""The criteria that exclude task queues from a pilot that is there."""
SENDABLE: Final = frozenset({"vo", *(one.name for one in PLACE)})
"""Those for any pilot that could be sent to a place: whom it serves is the director's choice."""
NAMES: Final = {
    **ATTRIBUTES,
    "job_class": "JcList",
    "vo": "VO",
    "group": "OwnerGroup",
    "owner": "Owner",
    "pilot_type": "PilotType",
    "submission_pool": "SubmissionPool",
}
"""Criterion of the matcher -> the word that people know it by."""
_MOST_CHANGES: Final = 5
_OPTIONS_SHOWN: Final = 3
_CRITERIA_SHOWN: Final = 5
_LONGEST: Final = 20


class Survey(Struct, frozen=True, kw_only=True):
    """`fitting`: the ids of the task queues that nothing excludes; `fullest`: the one of them with most waiting jobs."""

    work: answers.Work
    fitting: tuple[int, ...]
    fullest: int | None


class WaitingTaskQueues(Struct, frozen=True, kw_only=True):
    """Task queues with waiting jobs: as bits, their keys, and how many jobs wait in each."""

    table: KeyTable
    keys: Mapping[int, TaskQueueKey]
    waiting: Mapping[int, int]

    def survey(
        self, request: ResourceRequest, criteria: Collection[str] = ALL, *,
        private_pools: Collection[str] | None = None,
    ) -> Survey:  # fmt: skip
        """Hold them all against a resource, by the criteria of these names. `private_pools` (see `gets_private`): of a queue
        that takes private pilots only, else None.
        """
        full = self.table.full
        planes = [(one.name, mask) for one, mask in self.table.lost(full, request) if one.name in criteria]
        if private_pools is not None:
            generic = (tq_id for tq_id, key in self.keys.items() if not gets_private(key, private_pools))
            planes.append((PRIVATE_ONLY.parameter, mask_of(map(self.table.bit, generic))))
        planes = [one for one in planes if one[1]]
        fitting = self._ids(passing(planes, full))
        of_vo = full & ~dict(planes).get("vo", 0)  # no change makes a resource serve another VO
        nearest = near_misses(planes, of_vo)[:_MOST_CHANGES]
        counts = [(NAMES.get(name, name), mask.bit_count()) for name, mask in planes]
        counts.sort(key=lambda one: (-one[1], one[0]))
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
        """`made`: the pilot is there, and whom it serves is settled."""
        ids = self._ids(change.mask)
        example = self._fullest(ids)
        key, keys = self.keys[example], [self.keys[tq_id] for tq_id in ids]
        steps = [change_step(one, request, keys) for one in CRITERIA if one.name in change.criteria]
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
    """The criteria that exclude most task queues; `of`: what follows each number. '' if none does."""
    return excluded(((one.criterion, one.task_queues) for one in work.ruled_out_by[:_CRITERIA_SHOWN]), of)


def suggestion(work: answers.Work) -> str:
    """The smallest change, as the end of a sentence; '' if there is none."""
    return f"; suggestion: {work.nearest[0].text}" if work.nearest else ""


def change_step(
    criterion: MatchCriterion, request: ResourceRequest, keys: Sequence[TaskQueueKey]
) -> answers.ResourceChangeStep:
    """What the resource would have to offer for these task queues; the criterion excludes each of them."""
    name, offered = NAMES[criterion.name], criterion.of_request(request)
    asked = [criterion.of_key(key) for key in keys]
    if criterion.relation is AT_MOST:
        options = _least(Counter(asked))
        text = f"{name} {offered} -> {options[-1][0]}"
    else:
        word, joint, pick = _WORDS.get(criterion.relation, _ALL_ASKED)
        named = Counter(one for values in asked for one in pick(values, offered))
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
    """For task queues that a queue excludes as it takes private pilots only."""
    name, yes = PRIVATE_ONLY.parameter, answers.ResourceOption(value="yes", task_queues=task_queues)
    return answers.ResourceChangeStep(criterion=name, text=f"{name} -> yes", offered=["no"], options=[yes])


_Pick = Callable[[Values, Values], Iterable[str]]
_WORDS: Final[Mapping[object, tuple[str, str, _Pick]]] = {
    WITHIN: ("with", " and ", lambda asked, offered: [one for one in asked if one not in offered]),
    CONTAINS: ("without", " and ", lambda asked, offered: [one for one in offered if one not in asked]),
    DISJOINT: ("other than", " or ", lambda asked, offered: [one for one in asked if one in offered]),
}
"""Rule -> how a change is put, and which of the values asked and offered it names."""
_ALL_ASKED: Final[tuple[str, str, _Pick]] = ("->", " or ", lambda asked, _: asked)


def _least(asked: Counter[int]) -> list[tuple[Any, int]]:
    """(value, task queues that ask it or less): the least that is asked, what half of them ask, the most."""
    reached = 0
    steps = []
    for value in sorted(asked):
        reached += asked[value]
        steps.append((value, reached))
    middle = next(step for step in steps if 2 * step[1] >= reached)
    return list(dict.fromkeys((steps[0], middle, steps[-1])))


def _short(value: str) -> str:
    """A SubmitPool is a long hash."""
    return value if len(value) <= _LONGEST or ":" not in value else f"{value[:_LONGEST]}..."
