"""How two iterations of the director differ: pilots by group and queue, and binding limits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Final, Literal

from lodesman.decide.director.iteration import Decision
from lodesman.decide.director.limits import Clamp
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.rehearse.resources import cut
from lodesman.wire import plans
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import ClampName

_FEW: Final = 3
_SMALL: Final = 700.0
"""Up to this Poisson mean chances are summed: e**-700 is still a number."""

Of = Literal["queues", "task queues"]


_Group = tuple[str, str]  # VO and group


@dataclass(slots=True)
class _Bite:
    count: int = 0  # of the queues or task queues that it took from
    pilots: int = 0
    example: plans.LimitExample = field(default_factory=lambda: plans.LimitExample(name="", text=""))

    def add(self, name: str, clamp: Clamp) -> None:
        self.count += 1
        self.pilots += clamp.before - clamp.after
        if self.count == 1:
            self.example = plans.LimitExample(name=name, text=clamp.detail)


class PlannedDecision:
    """A counted decision of at most `most` pilots, 0: any number."""

    def __init__(self, decision: Decision, waiting: Sequence[Waiting], most: int) -> None:
        self.decision = decision
        self.jobs = {tq_id: (key, jobs) for tq_id, key, jobs in waiting}
        self.by_queue: Counter[QueueId] = Counter()
        self.by_tq: Counter[int] = Counter()
        for placement in decision.placement.placements:
            self.by_queue[placement.queue_id] += placement.count
            self.by_tq[placement.order.tq_id] += placement.count
        self.no_pool = sum(refusal.asked for refusal in decision.pool_refusals)
        self.expected: defaultdict[_Group, float] = defaultdict(float)
        self.asked: Counter[_Group] = Counter()
        self.placed: Counter[_Group] = Counter()
        for row in decision.plan.rows:
            key = self.jobs[row.tq_id][0]
            group = key.vo, key.group
            self.expected[group] += expected(row.mean, row.cap)
            self.asked[group] += row.asked
            self.placed[group] += self.by_tq[row.tq_id]
        total = sum(self.expected.values())
        if 0 < most < total:
            self.expected = defaultdict(
                float, {group: n * most / total for group, n in self.expected.items()}
            )

    def room(self, queue: QueueId) -> int | None:
        """The most pilots a queue would take; None if it is not there."""
        room = self.decision.placement.rooms.get(queue)
        return None if room is None else room.room

    def bites(self) -> dict[tuple[Of, ClampName], _Bite]:
        """(whose limit, clamp) -> what it took, in the order of the clamps."""
        bites: dict[tuple[Of, ClampName], _Bite] = defaultdict(_Bite)
        for row in self.decision.plan.rows:
            for clamp in row.clamps:
                bites["task queues", clamp.name].add(str(row.tq_id), clamp)
        for queue, room in self.decision.placement.rooms.items():
            for clamp in room.clamps if room.wanted else ():
                bites["queues", clamp.name].add(str(queue), clamp)
        return bites


def expected(mean: float, cap: int) -> float:
    """The mean of min(n, cap), where n is Poisson with that mean."""
    if cap <= 0 or mean <= 0.0:
        return 0.0
    if mean > _SMALL or cap > mean + 10.0 * sqrt(mean) + 10.0:
        return min(mean, float(cap))
    # The sum of the chances that n is more than 0, 1, ..., cap - 1.
    chance = exp(-mean)
    more, total = 1.0 - chance, 0.0
    for n in range(1, cap + 1):
        total += more
        chance *= mean / n
        more -= chance
    return max(0.0, total)


def compare(
    old: PlannedDecision, new: PlannedDecision, limit: int, *, load_age: float | None, assumed: list[str]
) -> plans.PlannedIteration:
    """What changes; lists have at most `limit` rows."""
    before, after = old.decision, new.decision
    return plans.PlannedIteration(
        pilots=plans.PlannedPilots(
            expected=plans.BeforeAfter(sum(old.expected.values()), sum(new.expected.values())),
            asked=plans.BeforeAfter(before.plan.asked, after.plan.asked),
            without_submission_pool=plans.BeforeAfter(old.no_pool, new.no_pool),
            placed=plans.BeforeAfter(before.placement.placed, after.placement.placed),
        ),
        groups=cut(_groups(old, new), limit),
        limits=_limits(old, new),
        queues=cut(_queues(old, new), limit),
        only_after=_only(new, old, limit),
        only_before=_only(old, new, limit),
        load_seconds_ago=load_age,
        assumed=assumed,
    )


def _groups(old: PlannedDecision, new: PlannedDecision) -> Iterator[plans.GroupPilots]:
    for group in sorted({*old.asked, *new.asked}):
        yield plans.GroupPilots(
            *group,
            expected=plans.BeforeAfter(old.expected.get(group, 0.0), new.expected.get(group, 0.0)),
            asked=plans.BeforeAfter(old.asked[group], new.asked[group]),
            placed=plans.BeforeAfter(old.placed[group], new.placed[group]),
        )


def _limits(old: PlannedDecision, new: PlannedDecision) -> list[plans.BindingLimit]:
    """The clamps that bite before or after, most pilots taken after first."""
    olds, news, limits = old.bites(), new.bites(), []
    for of, name in {**news, **olds}:
        before, after = olds[of, name], news[of, name]
        limits.append(
            plans.BindingLimit(
                limit=name,
                of=of,
                count=plans.BeforeAfter(before.count, after.count),
                pilots=plans.BeforeAfter(before.pilots, after.pilots),
                example=after.example if after.count else before.example,
            )
        )
    return sorted(limits, key=lambda limit: (-limit.pilots.after, -limit.pilots.before, limit.limit))


def _queues(old: PlannedDecision, new: PlannedDecision) -> list[plans.QueuePilots]:
    """Those that get more or fewer pilots, the largest difference first."""
    moved = {queue: new.by_queue[queue] - old.by_queue[queue] for queue in {*old.by_queue, *new.by_queue}}
    return [
        plans.QueuePilots(
            *queue,
            pilots=plans.BeforeAfter(old.by_queue[queue], new.by_queue[queue]),
            room=plans.BeforeAfter(old.room(queue), new.room(queue)),
        )
        for queue in sorted(moved, key=lambda queue: (-abs(moved[queue]), queue))
        if moved[queue]
    ]


def _only(here: PlannedDecision, other: PlannedDecision, limit: int) -> plans.TaskQueuesPilots:
    """Those that get pilots by `here` and none by `other`, most pilots first."""
    tq_ids = [tq_id for tq_id, pilots in here.by_tq.items() if pilots and not other.by_tq[tq_id]]
    tq_ids.sort(key=lambda tq_id: (-here.by_tq[tq_id], tq_id))
    places: defaultdict[int, list[str]] = defaultdict(list)
    shown = set(tq_ids[:limit])
    for placement in here.decision.placement.placements:
        if placement.order.tq_id in shown:
            places[placement.order.tq_id].append(str(placement.queue_id))
    rows = []
    for tq_id in tq_ids[:limit]:
        key, jobs = here.jobs[tq_id]
        rows.append(
            plans.TaskQueuePilots(
                id=tq_id, owner=key.owner, group=key.group, vo=key.vo, jobs=jobs, pilots=here.by_tq[tq_id],
                queues=places[tq_id][:_FEW],
            )
        )  # fmt: skip
    return plans.TaskQueuesPilots(
        count=len(tq_ids),
        rows=rows,
        more=max(0, len(tq_ids) - limit),
        pilots=sum(here.by_tq[tq_id] for tq_id in tq_ids),
    )
