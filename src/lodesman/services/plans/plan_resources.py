"""`lode plan resources`: what another resource configuration would do to the jobs that are here. Nothing is stored.

Both configurations become worlds as submissions have them. SubmitPools and task queues are evaluated and judged by the
functions of the pass that takes in a changed configuration (`pool_pass`): what would be held and released is what it
would hold and release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lodesman.background.pool_pass import Looker, Picture, QueueRow, evaluate, judge, runnable
from lodesman.commands.changed_types import Settled
from lodesman.commands.policy import Policy
from lodesman.resources import ResourceConfig
from lodesman.services.plans.dry_iteration import Evaluated, Moved, Rehearsal
from lodesman.services.plans.limits_after import cut, limits_after
from lodesman.services.plans.plan_parts import Competitors
from lodesman.services.plans.resource_changes import QueueMap, changed_groups, changed_queues, changed_types
from lodesman.services.plans.scene import Scene

OFTEN: Final = 256
IMPOSSIBLE, POSSIBLE, OTHER = "impossible", "possible", ""
ORDER: Final = {IMPOSSIBLE: 0, POSSIBLE: 1, OTHER: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """Eligible queues before and after; `kept` are eligible in both."""

    before: int
    after: int
    kept: int

    @property
    def changed(self) -> bool:
        """Whether any queue is gained or lost."""
        return self.before != self.kept or self.after != self.kept

    def as_dict(self) -> dict[str, int]:
        """JSON values."""
        gained, lost = self.after - self.kept, self.before - self.kept
        return {"before": self.before, "after": self.after, "gained": gained, "lost": lost}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Affected:
    """A task queue to which something happens: `becomes` impossible, possible, or neither; and why."""

    row: QueueRow
    effect: _Effect
    becomes: str
    why: str

    @property
    def rank(self) -> tuple[int, int, int]:
        """The order in which they are told: what is worst first."""
        weight = self.row.jobs if self.becomes else self.effect.before - self.effect.kept
        return ORDER[self.becomes], -weight, self.row.id

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        key = self.row.key
        return {
            "id": self.row.id,
            "owner": key.owner,
            "group": key.group,
            "vo": key.vo,
            "jobs": self.row.jobs,
            "held": self.row.held is not None,
            **self.effect.as_dict(),
            "becomes": self.becomes or None,
            "why": self.why,
        }


class _Comparison:
    """Two configurations, each with the queues of every SubmitPool."""

    def __init__(self, scene: Scene, after: ResourceConfig, seen: Picture) -> None:
        self.tick = scene.tick
        self.old = scene.policy
        self.new = Policy(
            after,
            add_eligible_sites=scene.policy.add_eligible_sites,
            submission_pools=scene.policy.submission_pools,
            life_seconds=scene.policy.life_seconds,
            inhabited=scene.policy.inhabited,
        )
        self.competitors = Competitors()
        self.queues = QueueMap(scene.policy.config.tree, after.tree)
        self.seen = seen
        self.tick()
        self.old_pools = evaluate(self.old, seen.pools)
        self.tick()
        self.new_pools = evaluate(self.new, seen.pools)
        self.renewed = {old: new for old, new, _ in Settled().changed(after.types, seen.pools)}
        self.tick()
        hold, release = judge(self.new, seen, self.new_pools)
        self.held, self.released = dict(hold), dict(release)

    def effect(self, before: int, after: int) -> _Effect:
        """What two masks, each of its own configuration, have in common."""
        kept = (self.queues.move(before) & after).bit_count()
        return _Effect(before=before.bit_count(), after=after.bit_count(), kept=kept)

    def affected(self) -> Iterator[_Affected]:
        """The task queues with jobs to which something happens; on the way it is noted who competes."""
        for number, row in enumerate(self.seen.queues):
            if number % OFTEN == 0:
                self.tick()
            masks = (
                runnable(row, self.old, self.old_pools),
                runnable(row, self.new, self.new_pools),
            )
            effect = self.effect(*masks)
            becomes, why = OTHER, ""
            if row.id in self.held and row.held is None:
                becomes, why = IMPOSSIBLE, self.held[row.id]
            elif row.id in self.released and row.jobs:
                becomes, why = POSSIBLE, self.released[row.id]
            if row.jobs:
                before, after = bool(masks[0]) and row.held is None, bool(masks[1])
                self.competitors.add((row.key.vo, row.key.group), row.jobs, before=before, after=after)
            if row.jobs and (becomes or effect.changed):
                yield _Affected(row=row, effect=effect, becomes=becomes, why=why)

    def pools(self) -> Iterator[dict[str, Any]]:
        """The SubmitPools whose queues change; `new_id` if they will have another identifier, since types change."""
        for number, pool in enumerate(self.seen.pools):
            if number % OFTEN == 0:
                self.tick()
            effect = self.effect(self.old_pools[pool.id], self.new_pools[pool.id])
            if effect.changed:
                new_id = self.renewed.get(pool.id)
                yield {"id": pool.id, "new_id": new_id, "vo": pool.vo, **effect.as_dict()}

    def director(self, scene: Scene, limit: int) -> dict[str, Any] | None:
        """What the director would do next, before and after; None if there is none."""
        if scene.director is None:
            return None
        rehearsal = Rehearsal(scene, scene.director)
        rows = [row for row in sorted(self.seen.queues, key=lambda row: row.id) if row.jobs]
        before, after = rehearsal.before_and_after(
            [(row.id, row.key, row.jobs) for row in rows if row.held is None],
            old=(self.old, Evaluated(self.old, self.old_pools)),
            new=(self.new, Evaluated(self.new, self.new_pools)),
            moved=Moved(
                held=self.held.keys(),
                released=[(row.id, row.key, row.jobs) for row in rows if row.id in self.released],
            ),
        )
        self.tick()
        told = limits_after(before, after, rehearsal.options, limit=limit)
        return {**told, "load_seconds_ago": rehearsal.load_age, "assumed": rehearsal.assumed()}


def plan_resources(after: ResourceConfig, scene: Scene, *, limit: int) -> dict[str, Any]:
    """The answer as JSON values; lists have at most `limit` members, and `more` tells how many are left out."""
    seen = Looker(scene.db).look()
    both = _Comparison(scene, after, seen)
    before = scene.policy.config
    affected = sorted(both.affected(), key=lambda one: one.rank)
    return {
        "queues": {
            "before": both.queues.before,
            "after": both.queues.after,
            "added": cut([one._asdict() for one in both.queues.added], limit),
            "removed": cut([one._asdict() for one in both.queues.removed], limit),
            "changed": cut(list(changed_queues(before, after, scene.tick)), limit),
        },
        "groups": changed_groups(before, after),
        "parts": both.competitors.parts(both.old.shares(), both.new.shares()),
        "types": changed_types(before.types, after.types),
        "task_queues": {
            "looked_at": sum(1 for row in seen.queues if row.jobs),
            IMPOSSIBLE: _counted(affected, IMPOSSIBLE),
            POSSIBLE: _counted(affected, POSSIBLE),
            "changed": cut([one.as_dict() for one in affected], limit),
        },
        "submit_pools": {"looked_at": len(seen.pools), "changed": cut(list(both.pools()), limit)},
        "director": both.director(scene, limit),
        "notices": [notice.as_dict() for notice in after.notices],
    }


def _counted(affected: Iterable[_Affected], kind: str) -> dict[str, int]:
    sizes = [one.row.jobs for one in affected if one.becomes == kind]
    return {"task_queues": len(sizes), "jobs": sum(sizes)}
