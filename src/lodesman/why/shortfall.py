"""What a resource would have to be so that task queues fit it: the smallest change, seen from the resource.

The mirror of `submission.remedies`, which says what a job would have to be. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lodesman.matching import ResourceRequest, TaskQueueKey
from lodesman.matching.criteria import AT_MOST, CONTAINS, DISJOINT, WITHIN, Criterion
from lodesman.matching.masks import Values
from lodesman.submission.obstacles import ATTRIBUTES

NAMES: Final = {
    **ATTRIBUTES,
    "vo": "VO",
    "group": "OwnerGroup",
    "owner": "Owner",
    "pilot_type": "PilotType",
    "submission_pool": "SubmissionPool",
}
"""Criterion of the matcher -> the word that people know it by."""
SHOWN: Final = 3
LONGEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """One criterion. `options`: what would do instead, and for how many of the task queues.

    Of a number each option admits its own task queues and those of the options before it.
    """

    criterion: str
    offered: Any
    options: Sequence[tuple[Any, int]]
    text: str

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "criterion": self.criterion,
            "offered": self.offered,
            "options": [{"value": value, "task_queues": n} for value, n in self.options],
        }


def shortfall(criterion: Criterion, request: ResourceRequest, keys: Iterable[TaskQueueKey]) -> Shortfall:
    """How the resource falls short of what these task queues ask; each of them is refused by the criterion."""
    name = NAMES[criterion.name]
    offered = criterion.of_request(request)
    asked = [criterion.of_key(key) for key in keys]
    if criterion.rule is AT_MOST:
        least = _as_little(Counter(asked))
        return Shortfall(
            criterion=name, offered=offered, options=least, text=f"{name} {offered} -> {least[-1][0]}"
        )
    word, joint, pick = _WORDS.get(id(criterion.rule), ("->", " or ", _listed))
    counted = Counter(one for values in asked for one in pick(values, offered))
    options = counted.most_common(SHOWN)
    return Shortfall(
        criterion=name,
        offered=offered[:SHOWN],
        options=options,
        text=f"{name} {word} {joint.join(_short(value) for value, _ in options)}",
    )


def _listed(asked: Values, _offered: Values) -> Iterator[str]:
    return iter(asked)


def _lacking(asked: Values, offered: Values) -> Iterator[str]:
    return (one for one in asked if one not in offered)


def _banned(asked: Values, offered: Values) -> Iterator[str]:
    return (one for one in asked if one in offered)


def _too_many(asked: Values, offered: Values) -> Iterator[str]:
    return (one for one in offered if one not in asked)


_WORDS: Final = {
    id(WITHIN): ("with", " and ", _lacking),
    id(CONTAINS): ("without", " and ", _too_many),
    id(DISJOINT): ("other than", " or ", _banned),
}


def _as_little(found: Counter[int]) -> tuple[tuple[int, int], ...]:
    """(value, task queues that ask it or less): the least that is asked, what half of them ask, the most."""
    reached = 0
    steps = []
    for value in sorted(found):
        reached += found[value]
        steps.append((value, reached))
    middle = next(step for step in steps if 2 * step[1] >= reached)
    return tuple(dict.fromkeys((steps[0], middle, steps[-1])))


def _short(value: str) -> str:
    """A SubmitPool is a long hash."""
    return value if len(value) <= LONGEST or ":" not in value else f"{value[:LONGEST]}..."


def joined(steps: Sequence[Shortfall]) -> str:
    """Changes that are all needed, for people."""
    return " and ".join(step.text for step in steps)
