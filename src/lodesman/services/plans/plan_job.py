"""`lode plan job`: what would become of a description if it were submitted now. Nothing is stored.

It is prepared as a submission is, and each cohort of it is explained as `lode why` would explain it right after
it was stored: no rule is stated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from lodesman.answers.requests import SubmitBody
from lodesman.answers.vocabulary import JobState
from lodesman.commands.accounts import Principal
from lodesman.commands.policy import Policy
from lodesman.commands.prepare import prepare
from lodesman.commands.submit import NewPool, PreparedSubmission
from lodesman.errors import Impossible
from lodesman.jobs import Notice
from lodesman.matching import TaskQueueKey, key_to_json, wanted_of
from lodesman.services.plans.scene import Scene
from lodesman.services.why.explain import explain_newcomer, judge_newcomer
from lodesman.services.why.job_case import Newcomer
from lodesman.services.why.position import position
from lodesman.services.why.verdict import NEVER, NOT_NOW, NOW, VERDICTS

MOST_COHORTS: Final = 100
MOST_RUNS: Final = 20
AFTER_ALL: Final = 1 << 53  # where it stands among others is asked for a job that comes after all of them
FIND: Final = "SELECT id FROM task_queue WHERE key = ?"
ORDER: Final = {NEVER: 0, NOT_NOW: 1, NOW: 2}
# Where job classes and quotas will tell which of their limits would bind.
NO_LIMITS: Final[tuple[dict[str, Any], ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cohort:
    """The members of a submission that would join one task queue; `held` is why no queue could run them."""

    key: TaskQueueKey
    held: str
    runs: Sequence[tuple[int, int]]

    @property
    def jobs(self) -> int:
        """How many there are."""
        return sum(stop - start for start, stop in self.runs)


def plan_job(body: SubmitBody, who: Principal, scene: Scene) -> dict[str, Any]:
    """The answer as JSON values. Raises what a submission is refused with, but not Impossible: that is told."""
    prepared, notices, refusal = _prepared(body, who, scene.policy)
    pools = {pool.id: pool for pool in prepared.pools}
    judged = [(_judged(cohort, pools, scene), cohort) for cohort in _cohorts(prepared)]
    judged.sort(key=lambda one: (ORDER[one[0]], one[1].runs[0]))
    verdicts: Counter[str] = Counter({NEVER: 0, NOT_NOW: 0, NOW: 0})
    for verdict, cohort in judged:
        verdicts[verdict] += cohort.jobs
    return {
        "count": prepared.count,
        "group": prepared.group,
        "vo": prepared.vo,
        "verdicts": dict(verdicts),
        "refusal": refusal,
        "held": 0 if refusal else verdicts[NEVER],
        "cohorts": [_told(cohort, pools, scene) for _, cohort in judged[:MOST_COHORTS]],
        "more_cohorts": max(0, len(judged) - MOST_COHORTS),
        "limits": list(NO_LIMITS),
        "notices": [
            {"attribute": n.attribute, "message": n.message, "line": n.line, "column": n.column}
            for n in notices
        ],
    }


def _prepared(
    body: SubmitBody, who: Principal, policy: Policy
) -> tuple[PreparedSubmission, Sequence[Notice], dict[str, Any] | None]:
    """What would be stored, were all its impossible jobs held; and what it would be refused with."""
    try:
        return *prepare(body, who, policy, None), None
    except Impossible as wrong:
        held = msgspec.structs.replace(body, hold_if_impossible=True)
        return *prepare(held, who, policy, None), wrong.as_dict()


def _cohorts(prepared: PreparedSubmission) -> Iterator[_Cohort]:
    """One for each task queue, whatever descriptions its members are of."""
    runs: dict[TaskQueueKey, list[tuple[int, int]]] = {}
    held: dict[TaskQueueKey, str] = {}
    for cohort in prepared.cohorts:
        runs.setdefault(cohort.key, []).extend(cohort.runs)
        held[cohort.key] = cohort.held
    for key, found in runs.items():
        yield _Cohort(key=key, held=held[key], runs=_joined(sorted(found)))


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined = runs[:1]
    for start, stop in runs[1:]:
        if start == joined[-1][1]:
            joined[-1] = joined[-1][0], stop
        else:
            joined.append((start, stop))
    return joined


def _judged(cohort: _Cohort, pools: Mapping[str, NewPool], scene: Scene) -> str:
    scene.tick()
    new = _newcomer(cohort, pools)
    return VERDICTS[judge_newcomer(scene.db, scene.policy, new, picture=scene.picture, now=scene.now)]


def _told(cohort: _Cohort, pools: Mapping[str, NewPool], scene: Scene) -> dict[str, Any]:
    scene.tick()
    found = scene.db.execute(FIND, (key_to_json(cohort.key),)).fetchone()
    number = None if found is None else found[0]
    where = position(scene.db, {"task_queue": number, "id": AFTER_ALL})
    after = {**where, "waiting": where["waiting"] + cohort.jobs}
    new = replace(_newcomer(cohort, pools), task_queue=number, where=after)
    told = explain_newcomer(scene.db, scene.policy, new, picture=scene.picture, now=scene.now)
    told["task_queue"] |= {
        "new": number is None, "waiting_before": where["waiting"], "key": msgspec.to_builtins(cohort.key),
    }  # fmt: skip
    return {
        "members": [[start, stop - 1] for start, stop in cohort.runs[:MOST_RUNS]],
        "more_members": max(0, len(cohort.runs) - MOST_RUNS),
        "jobs": cohort.jobs,
        **told,
    }


def _newcomer(cohort: _Cohort, pools: Mapping[str, NewPool]) -> Newcomer:
    """A member of the cohort, as it would be stored, in a task queue not looked up yet."""
    pool = pools.get(cohort.key.submit_pool)
    return Newcomer(
        key=cohort.key,
        state=JobState.HELD if cohort.held else JobState.WAITING,
        reason=cohort.held,
        task_queue=None,
        where={},
        requirements={} if pool is None else wanted_of(pool.requirements),
        served=None if pool is None else frozenset(pool.queues),
    )
