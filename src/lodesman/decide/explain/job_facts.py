"""The facts of one job, held against configuration, pilots, director and earlier jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.closing import NONE_SHUT, ShutHosts
from lodesman.decide.explain.facts import FailingPilots, SnapshotFacts, UnreachedPilots
from lodesman.decide.explain.last_iteration import NOT_ASKED, Capacity, Gate
from lodesman.decide.explain.starts import StartHistory
from lodesman.decide.explain.turns import SOON_SECONDS, Turn, VOSlots
from lodesman.decide.explain.verdict import (
    OF_LIMITS,
    SHUT_OUT,
    STARTS_IN_TURN,
    LimitMasks,
    StoppedPilots,
    between,
    count_next,
    counted,
    first_that_holds,
    judge_with_sites,
    last_pilots,
    span,
    verdict_of,
)
from lodesman.decide.masks.bits import Plane, mask_of, passing
from lodesman.decide.matching import parts_of
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.decide.submission import Exclusions
from lodesman.wire.jobs import HeldBy
from lodesman.wire.nodes import Closing
from lodesman.wire.service import LimitAnswer
from lodesman.wire.vocabulary import MainReason
from lodesman.wire.why_jobs import Holding, JobPilots, JobShare, StartEstimate

_Pilots = TypeVar("_Pilots", FailingPilots, UnreachedPilots)


@dataclass(frozen=True, kw_only=True)
class JobFacts(SnapshotFacts):
    """A job, stored or not yet, and what decides when and where it may start."""

    exclusions: Exclusions
    job: int | None = None  # its number; None: not stored
    task_queue: int | None  # None: it would be new
    waiting: int
    more_ahead: bool
    held: Holding | None
    limits: LimitAnswer  # those that keep it from starting, at some places or at all
    parents: str = ""  # the jobs that it waits for, in words
    held_parents: Mapping[HeldBy, Sequence[int]] = field(default_factory=dict)  # those of them that are held
    served: int  # how many queues serve its SubmitPool
    evaluated_at: float | None  # when they were found
    misfits: Sequence[Plane] = ()  # what the ads of sites have against it, with the queues
    pilots: JobPilots
    mask: SiteMask
    policy: Policy
    groups: Mapping[str, int]  # waiting jobs of the groups of its VO that compete
    competing: bool  # those compete for the same queues; False: for any
    turn: Turn
    slots: VOSlots | None  # of its VO; None: unknown
    started: StartHistory
    under_way: int = 0  # jobs of its submission that are under way, if that has AtMost
    # While a closing is announced: CPUTime of the longest job like it that a pilot takes.
    shorter_minutes: int = 0
    elsewhere: bool = False  # a pilot may take it where no closing is announced
    shut_hosts: ShutHosts = NONE_SHUT
    unreached: Mapping[QueueId, UnreachedPilots] = field(default_factory=dict)

    @cached_property
    def server_fault(self) -> str:
        """What the server failed to do for the job; '' if nothing."""
        key = self.exclusions.key
        return self.left_out(f"task queue {self.task_queue}", f"SubmitPool {key.submit_pool}", f"VO {key.vo}")

    @cached_property
    def eligible(self) -> int:
        """The queues that could run it."""
        return self.exclusions.eligible

    @cached_property
    def capacity(self) -> Capacity | None:
        """The free capacity left for its VO."""
        return None if self.decision is None else self.decision.capacity(self.exclusions.config)

    @cached_property
    def closings(self) -> list[tuple[Closing, int]]:
        """Closings of eligible queues, with these queues; most queues first."""
        config = self.exclusions.config
        return self.mask.hits(config.table.queues, self.eligible, self.now, config.lives)

    @cached_property
    def closed(self) -> int:
        """The queues to which closings, of now or announced, let no pilot be sent."""
        config = self.exclusions.config
        return self.mask.closed(config.table.queues, self.now, config.lives)

    @cached_property
    def keeping(self) -> list[Closing]:
        """The closings that keep pilots from free slots where it could run."""
        key = self.exclusions.key
        return [
            closing
            for closing, mask in self.closings
            if self.slots and self.slots.fills(key, mask & self._fillable)
        ]

    @property
    def kept(self) -> int:
        """The jobs like it that would start in free slots but for closings; 0 if a pilot may take it elsewhere."""
        if self.elsewhere or self.refusals or self.slots is None or not self.pilots.any_usable:
            return 0
        config = self.exclusions.config
        ahead = self.mask.announced(config.table.queues, self.now, config.lives)
        return self.slots.fills(self.exclusions.key, ahead & self._fillable)

    @cached_property
    def _failing(self) -> StoppedPilots:
        away = self._mask(self.unreached) if self.pilots.unreached else 0
        shut = self.shut_hosts.queues(self.exclusions.config)
        return self.snapshot.director.failing_of(self.exclusions.config, away)._replace(shut=shut)

    @property
    def _fillable(self) -> int:
        """Closings and pilots that are there do not count."""
        unsent = 0 if self.capacity is None else self.capacity.unsent
        return self.fitting & ~(
            self.gated | self.limited | unsent | self._failing.queues | self._failing.shut
        )

    @cached_property
    def fitting(self) -> int:
        """The eligible queues that their sites' ads do not exclude."""
        return passing(self.misfits, self.eligible)

    @cached_property
    def open_here(self) -> int:
        """The eligible queues known to have free capacity."""
        has_room = 0 if self.capacity is None else self.capacity.open
        return self.fitting & has_room & ~(self.closed | self.limited | self._failing.shut)

    @cached_property
    def limited(self) -> int:
        """The queues where limits keep it from any host that is not known yet."""
        return self._mask(self.limits.queues)

    def _mask(self, queues: Iterable[QueueId]) -> int:
        table = self.exclusions.config.table
        return mask_of(bit for bit in map(table.bit, queues) if bit is not None)

    @cached_property
    def gates(self) -> list[tuple[Gate, int]]:
        """What leaves eligible queues no free capacity; most queues first."""
        return [] if self.capacity is None else self.capacity.gates(self.eligible, self.closings, self.now)

    def _usable(self, pilots_of: Mapping[QueueId, _Pilots]) -> list[tuple[QueueId, _Pilots]]:
        bit_of, usable = self.exclusions.config.table.bit, self.fitting & ~self.closed
        return [
            (queue, pilots)
            for queue, pilots in pilots_of.items()
            if (bit := bit_of(queue)) is not None and usable >> bit & 1
        ]

    @cached_property
    def failing(self) -> list[tuple[QueueId, FailingPilots]]:
        """The eligible queues whose last pilots did not start; most pilots first."""
        rows = self._usable(self.snapshot.director.failing)
        return sorted(rows, key=lambda row: (-row[1].pilots, row[0]))

    @property
    def failing_text(self) -> str:
        """Why pilots of the first of `failing` do not start; '' for none."""
        if not self.failing:
            return ""
        (queue, failing), *others = self.failing
        more = f"; nor do those of {counted(len(others), 'other queue')}" if others else ""
        why = f": {failing.reason}" if failing.reason else ""
        return f"{last_pilots(failing.pilots)} sent to {queue} did not start{why}{more}"

    @property
    def unreached_text(self) -> str:
        """Where most pilots do not reach the server; '' for none."""
        rows = self._usable(self.unreached)
        if not rows:
            return ""
        queue, unreached = max(rows, key=lambda row: row[1].pilots)
        more = f"; nor have those of {counted(len(rows) - 1, 'other queue')}" if rows[1:] else ""
        return f"{queue}: {unreached.text(self.now)}{more}"

    @cached_property
    def refusals(self) -> Sequence[tuple[str, str]]:
        """(submission pool, outcome) of all pools if none takes its pilots; else nothing."""
        if self.decision is None:
            return ()
        return self.decision.refusals(self.task_queue, self.snapshot.director.full)

    @property
    def refusals_text(self) -> str:
        """`refusals` in words."""
        return ", ".join(f"{pool} is {outcome}" for pool, outcome in self.refusals)

    @cached_property
    def unmatched(self) -> Sequence[str]:
        """What sites object to its pilots, if none was placed."""
        return (
            ()
            if self.decision is None
            else self.decision.unmatched.get(self.task_queue or 0, NOT_ASKED).words
        )

    @cached_property
    def gated(self) -> int:
        """Queues whose sites take no pilots for it."""
        decision, unfit = self.decision, self.eligible & ~self.fitting
        if decision is None:
            return unfit
        return unfit | decision.gated(self.task_queue, self.exclusions.config, self.eligible)

    @cached_property
    def sendable(self) -> int:
        """The jobs like it that pilots which may be sent start within a minute."""
        if self.slots is None or not self.snapshot.iterates_soon(self.now):
            return 0
        return self.slots.starts(self.exclusions.key, self.open_here)

    @property
    def slots_here(self) -> tuple[int, int]:
        """The known and the free slots of fitting queues."""
        return (0, 0) if self.slots is None else self.slots.count(self.fitting)

    @cached_property
    def start(self) -> StartEstimate | None:
        """When it starts; None: unknown."""
        return self.start_by(self.reason)

    def start_by(self, reason: MainReason) -> StartEstimate | None:
        """When it starts, by this reason."""
        if reason is MainReason.LIMITED and any(
            bucket.enough and bucket.ends is None for bucket in self.limits.buckets
        ):
            return None  # no end of a job is enough
        if reason in STARTS_IN_TURN or reason in (MainReason.AT_MOST, MainReason.LIMITED):
            return self.started.estimate(self.turn, limited=reason not in STARTS_IN_TURN)
        own = self.started.own
        return (
            StartEstimate(0.0, SOON_SECONDS, own.starts, own.seconds) if verdict_of(reason) == "now" else None
        )

    @property
    def start_text(self) -> str:
        """`start` in words, and how it is known; '' if unknown."""
        start = self.start
        if start is None:
            return ""
        by = f"{counted(start.starts + 1, 'start')} in the last {span(max(1.0, start.seconds))}"
        if start.job_seconds is not None:
            runs = "runs and takes" if start.running == 1 else "run and take"
            by = f"{counted(start.running, 'job')} that {runs} about {span(start.job_seconds)}"
        return f"it starts {between(start.low_seconds, start.high_seconds)}, by {by}"

    @property
    def no_estimate(self) -> str:
        """Why its start is unknown."""
        seen = self.started.group
        if not seen.is_over:
            return "no start of late to go by"
        return f"no such job has started for {span(seen.silent)}, longer than starts were seen before"

    def put_behind(self, ahead: int) -> JobFacts:
        """The facts if this many jobs of its task queue were before it."""
        return replace(self, turn=self.turn._replace(ahead=ahead))

    def next_jobs(self, jobs: int) -> int:
        """How many of these jobs, itself first, start now."""
        return count_next(jobs, lambda n: self.put_behind(self.turn.ahead + n).reason)

    @cached_property
    def share(self) -> JobShare:
        """What its group may expect beside the other `groups`."""
        group = self.exclusions.key.group
        groups = {group, *self.groups}
        shares = {name: self.policy.drawn_share(name) for name in groups}
        return JobShare(
            group=group,
            share=shares[group],
            of=sum(max(0.0, share) for share in shares.values()),
            part=parts_of(groups, self.policy.shares())[group] or None,
            groups_waiting=len(groups),
            in_its_queues=self.competing,
        )

    @cached_property
    def reason(self) -> MainReason:
        """The judgement."""
        decision, capacity = self.decision, self.capacity
        reason = judge_with_sites(
            self.eligible,
            None if capacity is None else capacity.open,
            self.pilots,
            turn=self.turn,
            sendable=self.sendable,
            closed=self.closed,
            failing=self._failing._replace(kept=self.kept),
            unsent=0 if capacity is None else capacity.unsent,
            gated=self.gated,
            limits=LimitMasks(self.limited, self._mask(self.limits.never)),
            refused=bool(self.refusals),
            sends=decision is None or decision.sends,
        )
        in_order = (
            (reason is MainReason.IMPOSSIBLE, reason),
            (self.held, MainReason.HELD),
            (self.exclusions.key.waits_for_jobs, MainReason.WAITS_FOR_JOBS),
            (reason in OF_LIMITS, reason),
            (self.is_behind and reason not in SHUT_OUT, MainReason.AT_MOST),
        )
        return first_that_holds(in_order, reason)

    @property
    def is_kept(self) -> bool:
        """Whether it waits for closings though pilots may take it."""
        return self.reason is MainReason.CLOSED and self.pilots.any_usable

    @property
    def is_behind(self) -> bool:
        """Whether `AtMost` makes it wait for its submission; False if the first of those waits for its turn."""
        most = self.exclusions.key.at_most
        room = most - self.under_way
        if not most or self.turn.ahead < room:
            return False
        return room < 1 or self.put_behind(room - 1).reason not in STARTS_IN_TURN

    @property
    def waits_for(self) -> str:
        """What it waits for other than pilots; '' for nothing."""
        if self.reason is MainReason.WAITS_FOR_JOBS:
            return f"waits for {self.parents or 'other jobs'}"
        if self.reason in OF_LIMITS:
            never = "never starts by waiting" if self.reason is MainReason.OVER_LIMIT else "waits for a limit"
            full = self.limits.buckets
            more = f"; and {counted(len(full) - 1, 'more limit')} in its way" if len(full) > 1 else ""
            return f"{never}: {full[0].text}{more}" if full else never
        return f"waits {self.behind}" if self.reason is MainReason.AT_MOST else ""

    @property
    def behind(self) -> str:
        """What `AtMost` makes it wait for."""
        most, ahead = self.exclusions.key.at_most, self.turn.ahead
        before = f", and {counted(ahead, 'job')} before it" if ahead else ""
        if self.under_way >= most:
            return f"until one of the {self.under_way} under way ends{before}: AtMost = {most}"
        if self.under_way:
            some = "1 is" if self.under_way == 1 else f"{self.under_way} are"
            return f"until one of its submission ends{before}: AtMost = {most}, of which {some} under way"
        first = self.put_behind(0).reason
        which = (
            f"behind {counted(ahead, 'job')} of its submission: AtMost = {most}, of which none is under way"
        )
        return f"{which}; the reason of the first is {first}"
