"""What two iterations of the director decided differently: pilots by group and by queue, and the limits that bind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, sqrt
from typing import Any, Final

from lodesman.director import Clamp, Decision, DirectorOptions, QueueId
from lodesman.services.plans.dry_iteration import Iteration

FEW: Final = 3
QUEUES, TASK_QUEUES = "queues", "task queues"
SMALL: Final = (
    700.0  # the mean of a Poisson number up to which its chances are summed up: e**-700 is still a number
)

Pair = dict[str, Any]
Group = tuple[str, str]


@dataclass(slots=True)
class _Bite:
    """What one clamp took, all together: from how many, how many pilots, and the first of them."""

    count: int = 0
    pilots: int = 0
    name: str = ""
    text: str = ""

    def add(self, name: str, clamp: Clamp) -> None:
        self.count += 1
        self.pilots += clamp.before - clamp.after
        if self.count == 1:
            self.name, self.text = name, clamp.detail


class _Told:
    """One iteration, counted."""

    def __init__(self, iteration: Iteration, options: DirectorOptions) -> None:
        decision = iteration.decision
        self.decision = decision
        self.jobs = {tq_id: (key, jobs) for tq_id, key, jobs in iteration.waiting}
        self.by_queue: Counter[QueueId] = Counter()
        self.by_tq: Counter[int] = Counter()
        for one in decision.placement.placements:
            self.by_queue[one.queue_id] += one.count
            self.by_tq[one.tq_id] += one.count
        self.no_pool = sum(one.asked for one in decision.pool_refusals)
        self.expected: defaultdict[Group, float] = defaultdict(float)
        self.asked: Counter[Group] = Counter()
        self.placed: Counter[Group] = Counter()
        for row in decision.plan.rows:
            group = self._group(row.tq_id)
            self.expected[group] += expected(row.mean, row.cap)
            self.asked[group] += row.asked
            self.placed[group] += self.by_tq[row.tq_id]
        most, total = options.max_pilots_per_iteration, sum(self.expected.values())
        if 0 < most < total:
            self.expected = defaultdict(float, {one: n * most / total for one, n in self.expected.items()})

    def _group(self, tq_id: int) -> Group:
        key = self.jobs[tq_id][0]
        return key.vo, key.group

    def room(self, queue: QueueId) -> int | None:
        """Pilots that it would take at most; None if it is not there."""
        room = self.decision.placement.rooms.get(queue)
        return None if room is None else room.room

    def bites(self) -> dict[tuple[str, str], _Bite]:
        """By (whose limit, name of the clamp), in the order in which they are met."""
        found: dict[tuple[str, str], _Bite] = {}
        for of, name, clamp in _bites(self.decision):
            found.setdefault((of, clamp.name.value), _Bite()).add(name, clamp)
        return found


def _bites(decision: Decision) -> Iterator[tuple[str, str, Clamp]]:
    for row in decision.plan.rows:
        for clamp in row.clamps:
            yield TASK_QUEUES, str(row.tq_id), clamp
    for queue, room in decision.placement.rooms.items():
        for clamp in room.clamps if room.wanted else ():
            yield QUEUES, str(queue), clamp


def expected(mean: float, cap: int) -> float:
    """The mean of min(n, cap), where n is a Poisson number of that mean: what is asked on average."""
    if cap <= 0 or mean <= 0.0:
        return 0.0
    if mean > SMALL or cap > mean + 10.0 * sqrt(mean) + 10.0:
        return min(mean, float(cap))
    # The sum of the chances that n is more than 0, 1, ..., cap - 1.
    chance = exp(-mean)
    more, total = 1.0 - chance, 0.0
    for n in range(1, cap + 1):
        total += more
        chance *= mean / n
        more -= chance
    return max(0.0, total)


def limits_after(
    before: Iteration, after: Iteration, options: DirectorOptions, *, limit: int
) -> dict[str, Any]:
    """JSON values; lists have at most `limit` rows."""
    old, new = _Told(before, options), _Told(after, options)
    return {
        "pilots": {
            "expected": _pair(sum(old.expected.values()), sum(new.expected.values())),
            "asked": _pair(old.decision.plan.asked, new.decision.plan.asked),
            "without_submission_pool": _pair(old.no_pool, new.no_pool),
            "placed": _pair(old.decision.placement.placed, new.decision.placement.placed),
        },
        "groups": cut(_groups(old, new), limit),
        "limits": _limits(old.bites(), new.bites()),
        "queues": cut(_queues(old, new), limit),
        "only_after": _only(new, old, limit),
        "only_before": _only(old, new, limit),
    }


def cut(rows: Iterable[Any], limit: int) -> dict[str, Any]:
    """At most `limit` rows, how many there are, and how many of them are left out."""
    found = list(rows)
    return {"count": len(found), "rows": found[:limit], "more": max(0, len(found) - limit)}


def _pair(before: Any, after: Any) -> Pair:
    return {"before": before, "after": after}


def _groups(old: _Told, new: _Told) -> Iterator[dict[str, Any]]:
    """The groups for which pilots may be asked, by VO and name."""
    for vo, group in sorted({*old.asked, *new.asked}):
        one = vo, group
        yield {
            "vo": vo,
            "group": group,
            "expected": _pair(old.expected.get(one, 0.0), new.expected.get(one, 0.0)),
            "asked": _pair(old.asked[one], new.asked[one]),
            "placed": _pair(old.placed[one], new.placed[one]),
        }


def _limits(
    old: Mapping[tuple[str, str], _Bite], new: Mapping[tuple[str, str], _Bite]
) -> list[dict[str, Any]]:
    """The clamps that bite before or after; those that take most pilots after come first."""
    found = []
    for of, name in {**new, **old}:
        before, after = old.get((of, name), _Bite()), new.get((of, name), _Bite())
        shown = after if after.count else before
        found.append(
            {
                "limit": name,
                "of": of,
                "count": _pair(before.count, after.count),
                "pilots": _pair(before.pilots, after.pilots),
                "example": {"name": shown.name, "text": shown.text},
            }
        )
    return sorted(found, key=lambda one: (-one["pilots"]["after"], -one["pilots"]["before"], one["limit"]))


def _queues(old: _Told, new: _Told) -> list[dict[str, Any]]:
    """The queues that get more or fewer pilots; those that gain or lose most come first."""
    moved = {queue: new.by_queue[queue] - old.by_queue[queue] for queue in {*old.by_queue, *new.by_queue}}
    return [
        {
            **queue._asdict(),
            "pilots": _pair(old.by_queue[queue], new.by_queue[queue]),
            "room": _pair(old.room(queue), new.room(queue)),
        }
        for queue in sorted(moved, key=lambda queue: (-abs(moved[queue]), queue))
        if moved[queue]
    ]


def _only(here: _Told, there: _Told, limit: int) -> dict[str, Any]:
    """The task queues that get pilots here and none there, those with most pilots first."""
    found = [tq_id for tq_id, pilots in here.by_tq.items() if pilots and not there.by_tq[tq_id]]
    found.sort(key=lambda tq_id: (-here.by_tq[tq_id], tq_id))
    places: defaultdict[int, list[str]] = defaultdict(list)
    shown = set(found[:limit])
    for one in here.decision.placement.placements:
        if one.tq_id in shown:
            places[one.tq_id].append(str(one.queue_id))
    rows = []
    for tq_id in found:
        key, jobs = here.jobs[tq_id]
        rows.append({
            "id": tq_id, "owner": key.owner, "group": key.group, "vo": key.vo, "jobs": jobs,
            "pilots": here.by_tq[tq_id], "queues": places[tq_id][:FEW],
        })  # fmt: skip
    return {"pilots": sum(here.by_tq[tq_id] for tq_id in found), **cut(rows, limit)}
