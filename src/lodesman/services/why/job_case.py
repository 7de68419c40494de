"""One job held against the world: the material of `lode why JOB` and of its dry run.

Queues are judged by the predicates of submission and claim, pilots by the claim's; nothing is judged here a second way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lodesman.answers.vocabulary import JobState, MainReason
from lodesman.commands.policy import Policy
from lodesman.commands.pool_map import Serving
from lodesman.director.site_mask import Closing, SiteMask
from lodesman.matching import TaskQueueKey, key_from_json, wanted_of
from lodesman.services.why.closed_queues import Gate, shut
from lodesman.services.why.picture import Iteration, Picture, Rooms
from lodesman.services.why.pilot_book import Place, Usable
from lodesman.services.why.step import since
from lodesman.services.why.verdict import Facts, judge
from lodesman.store.engine import Reader, only_row
from lodesman.submission import Obstacles, find_obstacles

Served = Serving | frozenset[Place]

TASK_QUEUE: Final = "SELECT key, requirements FROM task_queue WHERE id = ?"
SERVED: Final = "SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ?"
POOL: Final = "SELECT requirements, refreshed_at FROM submit_pool WHERE id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCase:
    """One job held against the world. `served`: the queues that serve its SubmitPool as stored, None without one."""

    job: Mapping[str, Any]
    key: TaskQueueKey
    policy: Policy
    picture: Picture
    found: Obstacles
    served: Served | None
    refreshed_at: float | None
    usable: Usable
    now: float
    mask: SiteMask

    @property
    def decision(self) -> Iteration | None:
        """The director's last iteration, None if it has not decided for long."""
        return self.picture.decision(self.now)

    @property
    def decided_at(self) -> float | None:
        """When the last iteration was, however long ago."""
        last = self.picture.iteration
        return None if last is None else last.at

    @property
    def rooms(self) -> Rooms | None:
        """What the director left the queues of its VO, None if it has not decided."""
        decision = self.decision
        return None if decision is None else decision.rooms(self.found.world)

    @property
    def closings(self) -> list[tuple[Closing, int]]:
        """What administrators closed of the queues that could run it, with these queues; most queues first."""
        return self.mask.hits(self.found.world.table.queues, self.found.eligible, self.now)

    @property
    def closed(self) -> int:
        """The queues that administrators closed."""
        return self.mask.closed(self.found.world.table.queues, self.now)

    @property
    def open_here(self) -> int:
        """Of the queues that could run it, those that have room for a pilot, as far as anybody knows."""
        return self.found.eligible & ~self.closed & (0 if self.rooms is None else self.rooms.open)

    @property
    def shut(self) -> list[tuple[Gate, int]]:
        """What leaves the queues that could run it no room, as (gate, words) with the queues; most queues first."""
        return [] if self.rooms is None else shut(self.rooms, self.closings, self.found.eligible)

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it."""
        return bool(self.job["state"] == JobState.HELD)

    @property
    def reason(self) -> MainReason:
        """The judgement."""
        rooms, decision = self.rooms, self.decision
        refused = decision is not None and decision.no_pool(self.job["task_queue"])
        reason = judge(Facts(
            eligible=self.found.eligible,
            open=None if rooms is None else rooms.open,
            usable=self.usable,
            refused=refused,
            sends=decision is None or decision.sends,
            closed=self.closed,
        ))  # fmt: skip
        return MainReason.HELD if self.is_held and reason is not MainReason.IMPOSSIBLE else reason

    def age(self, at: float | None) -> float | None:
        """Seconds since then; None if unknown."""
        return since(at, self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A job that is not stored: what would be, and where it would stand (as `position` tells).

    `requirements` and `served` are those of the SubmitPool that it would bring, if it has one.
    """

    key: TaskQueueKey
    state: str
    reason: str
    task_queue: int | None
    where: Mapping[str, Any]
    requirements: Mapping[str, Any]
    served: Served | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a job asks for, and what is closed. `requirements` is None if nobody knows them any more."""

    key: TaskQueueKey
    requirements: Mapping[str, Any] | None
    served: Served | None
    refreshed_at: float | None
    mask: SiteMask


def case_of_job(
    db: Reader, policy: Policy, job: Mapping[str, Any], *, picture: Picture, now: float
) -> JobCase:
    """A job that is stored and waits, or is Held."""
    text, requirements = only_row(db, TASK_QUEUE, (job["task_queue"],))
    key = key_from_json(text)
    served, refreshed_at = _served(db, key.submit_pool, picture)
    wanted = wanted_by(db, key.submit_pool, requirements)
    asked = _Asked(
        key=key, requirements=wanted, served=served, refreshed_at=refreshed_at, mask=picture.mask(db)
    )
    return _held_against(policy, job, asked, picture=picture, now=now)


def case_of_newcomer(db: Reader, policy: Policy, new: Newcomer, *, picture: Picture, now: float) -> JobCase:
    """A job as it would be right after it was stored."""
    served, refreshed_at = _served(db, new.key.submit_pool, picture)
    if new.served is not None and not served:  # its SubmitPool is new, or was not evaluated yet
        served, refreshed_at = new.served, refreshed_at or now
    job = {"state": new.state, "reason": new.reason, "task_queue": new.task_queue, "since": now}
    asked = _Asked(
        key=new.key, requirements=new.requirements, served=served, refreshed_at=refreshed_at,
        mask=picture.mask(db),
    )  # fmt: skip
    return _held_against(policy, job, asked, picture=picture, now=now)


def wanted_by(db: Reader, pool: str, requirements: str) -> Mapping[str, Any] | None:
    """The Requirements of a task queue: the text that is stored with it, as each pass reads it; in want of that the one
    of its SubmitPool. None if both are gone.
    """
    if not pool:
        return {}
    if not requirements:
        row = db.execute(POOL, (pool,)).fetchone()
        requirements = "" if row is None else row[0]
    return wanted_of(requirements) if requirements else None


def _served(db: Reader, pool: str, picture: Picture) -> tuple[Served | None, float | None]:
    """The queues that serve a SubmitPool, and when it was last looked at."""
    if not pool:
        return None, None
    row = db.execute(POOL, (pool,)).fetchone()
    known = picture.serving(db, pool)
    served = frozenset(db.execute(SERVED, (pool,))) if known is None else known
    return served, None if row is None else row[1]


def _held_against(
    policy: Policy, job: Mapping[str, Any], asked: _Asked, *, picture: Picture, now: float
) -> JobCase:
    key = asked.key
    return JobCase(
        job=job,
        key=key,
        policy=policy,
        picture=picture,
        found=find_obstacles(key, asked.requirements, policy.world(key.vo)),
        served=asked.served,
        refreshed_at=asked.refreshed_at,
        usable=picture.pilots.usable(key, asked.served, drained=asked.mask.drained(now)),
        now=now,
        mask=asked.mask,
    )
