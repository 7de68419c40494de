"""The main reason of each task queue: why its jobs wait now, since when (RFC #7 asks per job, users ask per thousand).

The background process judges all task queues with waiting jobs, by the same predicates and the same judgement as
`lode why`, and tells the writer what changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lodesman.answers.vocabulary import MainReason
from lodesman.commands.policy import Policy
from lodesman.commands.pool_map import Place
from lodesman.director.site_mask import Closing, SiteMask
from lodesman.matching import TaskQueueKey
from lodesman.resources import bits
from lodesman.services.why.closed_queues import shut
from lodesman.services.why.job_case import wanted_by
from lodesman.services.why.picture import Iteration, Picture
from lodesman.services.why.verdict import VERDICTS, Facts, judge
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction
from lodesman.submission import Obstacles, World, find_obstacles
from lodesman.submission.obstacles import REQUIREMENTS

LEAST_SECONDS: Final = 5.0
REST: Final = 50.0  # a pass that took a second is not repeated for so many
STORED = "SELECT tq_id, reason, detail FROM task_queue_reason"
WANTED = "SELECT requirements FROM task_queue WHERE id = ?"
SET = """INSERT INTO task_queue_reason (tq_id, reason, detail, since) VALUES (?,?,?,?)
ON CONFLICT (tq_id) DO UPDATE SET since = CASE WHEN reason = excluded.reason THEN since ELSE excluded.since END,
reason = excluded.reason, detail = excluded.detail"""
GONE = "DELETE FROM task_queue_reason WHERE tq_id = ?"
PASS = "INSERT OR REPLACE INTO reason_pass (one, at, facts_at) VALUES (1, ?, ?)"
# Task queues that no configured queue can run are Held, and judged no more: their hold is their reason.
GROUPED = """SELECT iif(h.tq_id IS NULL, r.reason, 'impossible') AS why, coalesce(r.detail, ''), count(*), sum(n.jobs),
min(coalesce(h.since, r.since)) FROM queue_jobs n LEFT JOIN task_queue_hold h ON h.tq_id = n.tq_id
LEFT JOIN task_queue_reason r ON r.tq_id = n.tq_id WHERE n.jobs > 0 AND why IS NOT NULL
AND (?1 = '' OR ?1 = (SELECT json_extract(key, '$.vo') FROM task_queue q WHERE q.id = n.tq_id))
GROUP BY 1, 2 ORDER BY sum(n.jobs) DESC"""

Told = tuple[str, str]  # reason, detail


class _Served:
    """The queues that fulfil the Requirements of a task queue, as places; listed when the first is asked for."""

    __slots__ = ("_places", "_world", "mask")

    def __init__(self, found: Obstacles) -> None:
        self._world = found.world
        self._places: frozenset[Place] | None = None
        self.mask = found.full
        for name, lost in found.planes:
            if name.startswith(REQUIREMENTS):
                self.mask &= ~lost

    def __contains__(self, place: object) -> bool:
        if self._places is None:
            queues = map(self._world.table.queues.__getitem__, bits(self.mask))
            self._places = frozenset((one.site, one.ce, one.queue) for one in queues)
        return place in self._places


@dataclass(slots=True)
class StoreReasons:
    """Store what changed: task queue -> (reason, detail); None for one whose jobs wait no more."""

    changed: Mapping[int, Told | None]
    facts_at: float | None

    def apply(self, tx: Transaction) -> int:
        """Returns how many changed."""
        for tq_id, told in self.changed.items():
            if told is None:
                tx.later(GONE, (tq_id,))
            else:
                tx.later(SET, (tq_id, *told, tx.now))
        tx.later(PASS, (tx.now, self.facts_at))
        return len(self.changed)


class MainReasons:
    """Judges again and again. Has a read connection, so one thread at a time uses it."""

    def __init__(self, db: Reader, picture: Picture) -> None:
        self._db = db
        self._picture = picture
        self._told: dict[int, Told] = {row[0]: (row[1], row[2]) for row in db.execute(STORED)}
        self._found: dict[int, Obstacles] = {}
        self._policy: Policy | None = None
        self._gates: dict[Hashable, str] = {}
        self._mask = SiteMask()
        self._cost = self._now = 0.0
        self._at: float | None = None

    def look(self, policy: Policy, now: float) -> dict[int, Told | None] | None:
        """What changed since the last pass; None if it is not time for one yet, or nobody has looked at the world yet."""
        if self._picture.at is None:
            return None
        if self._at is not None and 0.0 <= now - self._at < max(LEAST_SECONDS, self._cost * REST):
            return None
        begun = time.perf_counter()
        if policy is not self._policy:
            self._policy, self._found, self._gates = policy, {}, {}
        self._now = now
        judged = dict(self._judge_all(policy, self._picture.waiting))
        changed: dict[int, Told | None] = {
            tq_id: told for tq_id, told in judged.items() if self._told.get(tq_id) != told
        }
        for tq_id in self._told.keys() - judged.keys():
            changed[tq_id] = None
            self._found.pop(tq_id, None)
        self._told = judged
        self._cost, self._at = time.perf_counter() - begun, now
        return changed

    def forget(self) -> None:
        """What was told last was not stored: tell it again."""
        self._told = {row[0]: (row[1], row[2]) for row in self._db.execute(STORED)}

    @property
    def remembered(self) -> int:
        """Of how many task queues what stands between them and the queues is kept: of those with waiting jobs."""
        return len(self._found)

    def facts_at(self) -> float | None:
        """When the oldest of the facts was true; None if one of them is not known."""
        iteration = self._picture.iteration
        if iteration is None or self._picture.at is None:
            return None
        return min(iteration.at, self._picture.at)

    def _judge_all(
        self, policy: Policy, waiting: Sequence[tuple[int, TaskQueueKey, int]]
    ) -> Iterator[tuple[int, Told]]:
        picture, iteration = self._picture, self._picture.decision(self._now)
        worlds = {vo: policy.world(vo) for vo in {key.vo for _, key, _ in waiting}}
        mask = self._mask = picture.mask(self._db)
        drained = mask.drained(self._now)
        closed = {vo: mask.closed(world.table.queues, self._now) for vo, world in worlds.items()}
        competing: dict[str, dict[str, int]] = {vo: {} for vo in worlds}
        for tq_id, key, _ in waiting:
            found = self._obstacles(tq_id, key, worlds[key.vo])
            eligible = found.eligible
            groups = competing[key.vo]
            groups[key.group] = groups.get(key.group, 0) | eligible
            served = _Served(found) if key.submit_pool else None
            facts = Facts(
                eligible=eligible,
                open=None if iteration is None else iteration.rooms(found.world).open,
                usable=picture.pilots.usable(
                    key, served, alike=served and (key.vo, served.mask), drained=drained
                ),
                refused=iteration is not None and iteration.no_pool(tq_id),
                sends=iteration is None or iteration.sends,
                closed=closed[key.vo],
            )
            reason = judge(facts)
            yield tq_id, (reason.value, self._detail(reason, found, iteration))
        picture.competing = {vo: (world, competing[vo]) for vo, world in worlds.items()}

    def _obstacles(self, tq_id: int, key: TaskQueueKey, world: World) -> Obstacles:
        """What was found before in the same world."""
        found = self._found.get(tq_id)
        if found is None or found.world is not world or found.key != key:
            wanted: Mapping[str, Any] | None = {}
            if key.submit_pool:
                row = self._db.execute(WANTED, (tq_id,)).fetchone()
                wanted = wanted_by(self._db, key.submit_pool, row[0] if row else "")
            found = self._found[tq_id] = find_obstacles(key, wanted, world)
        return found

    def _detail(self, reason: MainReason, found: Obstacles, iteration: Iteration | None) -> str:
        """What of the reason can be counted over task queues: the criterion, the gate, or the closing that stops most."""
        if reason is MainReason.IMPOSSIBLE:
            return found.counts()[0][0] if found.total else ""
        if reason not in (MainReason.NO_ROOM, MainReason.CLOSED):
            return ""
        closings = self._mask.hits(found.world.table.queues, found.eligible, self._now)
        if reason is MainReason.CLOSED:
            return closings[0][0].path
        assert iteration is not None  # noqa: S101 - else it would be NOT_DECIDED
        about = (iteration.number, found.world.vo, found.eligible, tuple(one.node for one, _ in closings))
        known = self._gates.get(about)
        if known is None:
            if len(self._gates) > 10_000:
                self._gates.clear()
            known = self._gates[about] = _gate(found, iteration, closings)
        return known


def _gate(found: Obstacles, iteration: Iteration, closings: Sequence[tuple[Closing, int]]) -> str:
    """The gate that closes most of the eligible queues."""
    gates: Counter[str] = Counter()
    for (gate, _), mask in shut(iteration.rooms(found.world), closings, found.eligible):
        gates[gate] += mask.bit_count()
    return gates.most_common(1)[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Jobs with one reason: that wait, or are Held because nothing can run them."""

    reason: str
    verdict: str
    detail: str
    task_queues: int
    jobs: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingByReason:
    """All waiting jobs by reason, as of the last pass."""

    at: float | None
    facts_at: float | None
    reasons: list[Grouped] = field(default_factory=list)


def waiting_by_reason(db: Reader, vo: str = "") -> WaitingByReason:
    """Why jobs wait, most jobs first: all of them, or those of one VO."""
    last = db.execute("SELECT at, facts_at FROM reason_pass").fetchone() or (None, None)
    rows = [
        Grouped(
            reason=reason, verdict=VERDICTS[MainReason(reason)], detail=detail, task_queues=queues, jobs=jobs,
            since=since,
        )
        for reason, detail, queues, jobs, since in db.execute(GROUPED, (vo,))
    ]  # fmt: skip
    return WaitingByReason(at=last[0], facts_at=last[1], reasons=rows)
