"""The main reason of each task queue: why its jobs wait now, since when (RFC #7 asks per job, users ask per thousand).

The background process judges all task queues with waiting jobs, by the same predicates and the same judgement as
`lode why`, and tells the writer what changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import apsw
import msgspec

from lodesman.matching import TaskQueueKey
from lodesman.resources import QueueId, bits
from lodesman.services.policy import Policy
from lodesman.services.why.picture import Iteration, Picture
from lodesman.services.why.verdict import VERDICTS, Facts, MainReason, judge
from lodesman.store.journal import Transaction
from lodesman.submission import Obstacles, World, find_obstacles

LEAST_SECONDS: Final = 5.0
REST: Final = 50.0  # a pass that took a second is not repeated for so many
LOOKED_AT: Final = 64  # closed queues that are asked for what closes them
STORED = "SELECT tq_id, reason, detail FROM task_queue_reason"
POOL = "SELECT requirements FROM submit_pool WHERE id = ?"
SET = """INSERT INTO task_queue_reason (tq_id, reason, detail, since) VALUES (?,?,?,?)
ON CONFLICT (tq_id) DO UPDATE SET since = CASE WHEN reason = excluded.reason THEN since ELSE excluded.since END,
reason = excluded.reason, detail = excluded.detail"""
GONE = "DELETE FROM task_queue_reason WHERE tq_id = ?"
PASS = "INSERT OR REPLACE INTO reason_pass (one, at, facts_at) VALUES (1, ?, ?)"
GROUPED = """SELECT r.reason, r.detail, count(*), sum(w.waiting), min(r.since)
FROM task_queue_reason r JOIN queue_waiting w ON w.tq_id = r.tq_id WHERE w.waiting > 0
GROUP BY r.reason, r.detail ORDER BY sum(w.waiting) DESC"""

Told = tuple[str, str]  # reason, detail


class _Served:
    """The places of the queues of a mask, to be asked one by one."""

    __slots__ = ("_mask", "_world")

    def __init__(self, world: World, mask: int) -> None:
        self._world = world
        self._mask = mask

    def __contains__(self, place: object) -> bool:
        try:
            ordinal = self._world.table.ordinal(QueueId(*place))  # type: ignore[misc]
        except KeyError:
            return False
        return bool(self._mask >> ordinal & 1)


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

    def __init__(self, db: apsw.Connection, picture: Picture) -> None:
        self._db = db
        self._picture = picture
        self._told: dict[int, Told] = {row[0]: (row[1], row[2]) for row in db.execute(STORED)}
        self._found: dict[int, Obstacles] = {}
        self._policy: Policy | None = None
        self._requirements: dict[str, dict[str, Any]] = {}
        self._closed: dict[tuple[int, int], str] = {}
        self._cost = 0.0
        self._at: float | None = None

    def look(self, policy: Policy, now: float) -> dict[int, Told | None] | None:
        """What changed since the last pass; None if it is not time for one yet."""
        if self._at is not None and 0.0 <= now - self._at < max(LEAST_SECONDS, self._cost * REST):
            return None
        begun = time.perf_counter()
        if policy is not self._policy:
            self._policy, self._found = policy, {}
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

    def facts_at(self) -> float | None:
        """When the oldest of the facts was true; None if one of them is not known."""
        iteration = self._picture.iteration
        if iteration is None or self._picture.at is None:
            return None
        return min(iteration.at, self._picture.at)

    def _judge_all(
        self, policy: Policy, waiting: Sequence[tuple[int, TaskQueueKey, int]]
    ) -> Iterator[tuple[int, Told]]:
        iteration = self._picture.iteration
        for tq_id, key, _ in waiting:
            found = self._found.get(tq_id)
            if found is None:
                wanted = self._wanted(key.submit_pool)
                found = self._found[tq_id] = find_obstacles(key, wanted, policy.world(key.vo))
            eligible = found.eligible
            served = _Served(found.world, eligible) if key.submit_pool else None
            facts = Facts(
                eligible=eligible,
                open=None if iteration is None else iteration.open_queues(found.world),
                usable=self._picture.pilots.usable(key, served),
            )
            reason = judge(facts)
            yield tq_id, (reason.value, self._detail(reason, found, iteration))

    def _wanted(self, pool: str) -> dict[str, Any]:
        if not pool:
            return {}
        known = self._requirements.get(pool)
        if known is None:
            row = self._db.execute(POOL, (pool,)).fetchone()
            values = {} if row is None else msgspec.json.decode(row[0])
            known = self._requirements[pool] = {name: value for name, (_, value) in values.items()}
        return known

    def _detail(self, reason: MainReason, found: Obstacles, iteration: Iteration | None) -> str:
        """What of the reason can be counted over task queues: the criterion, or the gate, that stops most."""
        if reason is MainReason.IMPOSSIBLE:
            return found.counts()[0][0] if found.total else ""
        if reason is not MainReason.NO_ROOM or iteration is None:
            return ""
        known = self._closed.get((iteration.number, found.eligible))
        if known is None:
            if len(self._closed) > 10_000:
                self._closed.clear()
            known = self._closed[iteration.number, found.eligible] = _gate(found, iteration)
        return known


def _gate(found: Obstacles, iteration: Iteration) -> str:
    """The gate that closes most of the eligible queues (of the first few)."""
    gates: Counter[str] = Counter()
    for ordinal, _ in zip(bits(found.eligible), range(LOOKED_AT), strict=False):
        gates[iteration.gate(found.world.by_ordinal[ordinal].queue)[0]] += 1
    return gates.most_common(1)[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Waiting jobs with one reason."""

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


def waiting_by_reason(db: apsw.Connection) -> WaitingByReason:
    """Why jobs wait, most jobs first."""
    last = db.execute("SELECT at, facts_at FROM reason_pass").fetchone() or (None, None)
    rows = [
        Grouped(
            reason=reason, verdict=VERDICTS[MainReason(reason)], detail=detail, task_queues=queues, jobs=jobs,
            since=since,
        )
        for reason, detail, queues, jobs, since in db.execute(GROUPED)
    ]  # fmt: skip
    return WaitingByReason(at=last[0], facts_at=last[1], reasons=rows)
