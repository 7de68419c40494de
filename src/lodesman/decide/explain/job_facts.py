"""The facts of one job, held against the configuration, pilots, the director and the jobs before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.closing import NONE_SHUT, ShutHosts
from lodesman.decide.explain.facts import Failing, SnapshotFacts, Unreached
from lodesman.decide.explain.last_iteration import NOT_ASKED, Capacity, Gate
from lodesman.decide.explain.starts import Started
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
    judge_with_sites,
    last_pilots,
    span,
    verdict_of,
)
from lodesman.decide.masks.bits import Plane, mask_of, passing
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.decide.submission import Exclusions
from lodesman.wire.jobs import HeldBy
from lodesman.wire.nodes import Closing
from lodesman.wire.service import Limited
from lodesman.wire.vocabulary import MainReason
from lodesman.wire.why_jobs import Holding, JobPilots, StartEstimate


@dataclass(frozen=True, kw_only=True)
class JobFacts(SnapshotFacts):
    """One job, or one that is not stored yet, held against the config.

    `job`: its number, None if it is not stored. `task_queue`: None if it would be new. `served`: the number of queues that
    serve its SubmitPool; `evaluated_at`: when they were evaluated. `misfits`: what the ads of sites say that keeps it away,
    with the queues. `competing`: its `groups` compete for queues that are known, not for any. `slots`: those of its VO,
    None if unknown. `parents`: the jobs that it waits for, in words, and those of them that are held. `limits`: those that
    keep it from starting, at some places or at all. `started`: the starts of its task queue, and of its group, which gives
    it a `part` of them. `taken`: of its submission, where it has `AtMost`. `shorter`: while a closing is announced, the
    minutes of the longest job like it that a pilot takes. `elsewhere`: a pilot may take it where no closing is announced.
    `unreached`: pilots that run and do not reach the server.
    """

    exclusions: Exclusions
    job: int | None = None
    task_queue: int | None
    waiting: int
    more_ahead: bool
    held: Holding | None
    limits: Limited
    parents: str = ""
    held_parents: Mapping[HeldBy, Sequence[int]] = field(default_factory=dict)
    served: int
    evaluated_at: float | None
    misfits: Sequence[Plane] = ()
    pilots: JobPilots
    mask: SiteMask
    policy: Policy
    groups: Mapping[str, int]
    competing: bool
    turn: Turn
    slots: VOSlots | None
    started: Started
    taken: int = 0
    shorter: int = 0
    elsewhere: bool = False
    shut_hosts: ShutHosts = NONE_SHUT
    unreached: Mapping[QueueId, Unreached] = field(default_factory=dict)

    @cached_property
    def server_fault(self) -> str:
        """What the server failed to do for it by a fault of its own; '' if nothing."""
        key = self.exclusions.key
        return self.left_out(f"task queue {self.task_queue}", f"SubmitPool {key.submit_pool}", f"VO {key.vo}")

    @cached_property
    def eligible(self) -> int:
        """The queues that could run it."""
        return self.exclusions.eligible

    @cached_property
    def capacity(self) -> Capacity | None:
        """The free capacity that the director left the queues of its VO."""
        return None if self.decision is None else self.decision.capacity(self.exclusions.config)

    @cached_property
    def closings(self) -> list[tuple[Closing, int]]:
        """What administrators closed, or are going to before a pilot there would end, of the eligible queues, with these
        queues; most queues first.
        """
        config = self.exclusions.config
        return self.mask.hits(config.table.queues, self.eligible, self.now, config.lives)

    @cached_property
    def closed(self) -> int:
        """The queues that administrators closed, or are going to before a pilot there would end."""
        config = self.exclusions.config
        return self.mask.closed(config.table.queues, self.now, config.lives)

    @cached_property
    def keeping(self) -> list[Closing]:
        """What keeps pilots from free slots where they could run it: closings of now, and announced ones."""
        key = self.exclusions.key
        return [
            one for one, mask in self.closings if self.slots and self.slots.fills(key, mask & self._fillable)
        ]

    @property
    def kept(self) -> int:
        """The jobs like it that pilots would start in free slots, if no closing were announced; 0 if a pilot may take it
        where none is.
        """
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
        """The queues to which pilots could be sent for it, but for closings and the number of those that are there."""
        unsent = 0 if self.capacity is None else self.capacity.unsent
        return self.fitting & ~(
            self.gated | self.limited | unsent | self._failing.queues | self._failing.shut
        )

    @cached_property
    def fitting(self) -> int:
        """The eligible queues that the ads of their sites do not exclude."""
        return passing(self.misfits, self.eligible)

    @cached_property
    def open_here(self) -> int:
        """The eligible queues that have free capacity for its pilots, as far as known."""
        has_room = 0 if self.capacity is None else self.capacity.open
        return self.fitting & has_room & ~(self.closed | self.limited | self._failing.shut)

    @cached_property
    def limited(self) -> int:
        """The queues where limits keep it from starting, on hosts that are not known yet."""
        return self._mask(self.limits.queues)

    def _mask(self, queues: Iterable[QueueId]) -> int:
        table = self.exclusions.config.table
        return mask_of(bit for bit in map(table.bit, queues) if bit is not None)

    @cached_property
    def gates(self) -> list[tuple[Gate, int]]:
        """What leaves eligible queues no free capacity, with these queues; most queues first."""
        return [] if self.capacity is None else self.capacity.gates(self.eligible, self.closings, self.now)

    @cached_property
    def failing(self) -> list[tuple[QueueId, Failing]]:
        """The eligible queues whose last pilots did not start, most pilots first."""
        table, usable = self.exclusions.config.table, self.fitting & ~self.closed
        found = []
        for queue, one in self.snapshot.director.failing.items():
            bit = table.bit(queue)
            if bit is not None and usable >> bit & 1:
                found.append((queue, one))
        return sorted(found, key=lambda one: (-one[1].pilots, one[0]))

    @property
    def failing_text(self) -> str:
        """What the queue says whose pilots did not start most often, and how many others there are; '' for none."""
        if not self.failing:
            return ""
        (queue, one), others = self.failing[0], len(self.failing) - 1
        more = f"; nor do those of {counted(others, 'other queue')}" if others else ""
        why = f": {one.reason}" if one.reason else ""
        return f"{last_pilots(one.pilots)} sent to {queue} did not start{why}{more}"

    @property
    def unreached_text(self) -> str:
        """Where most of the pilots are that could run it and have not reached the server, and how many other such queues."""
        table = self.exclusions.config.table
        found = [
            (queue, one) for queue, one in self.unreached.items()
            if (bit := table.bit(queue)) is not None and self.fitting & ~self.closed & 1 << bit
        ]  # fmt: skip
        if not found:
            return ""
        queue, one = max(found, key=lambda pair: pair[1].pilots)
        more = f"; nor have those of {counted(len(found) - 1, 'other queue')}" if found[1:] else ""
        return f"{queue}: {one.text(self.now)}{more}"

    @cached_property
    def refusals(self) -> Sequence[tuple[str, str]]:
        """(submission pool, outcome) if no submission pool takes its pilots; else nothing."""
        if self.decision is None:
            return ()
        return self.decision.refusals(self.task_queue, self.snapshot.director.full)

    @property
    def refusals_text(self) -> str:
        """The same in words."""
        return ", ".join(f"{pool} is {outcome}" for pool, outcome in self.refusals)

    @cached_property
    def unmatched(self) -> Sequence[str]:
        """What sites had against its pilots, if none was placed; else nothing."""
        return (
            ()
            if self.decision is None
            else self.decision.unmatched.get(self.task_queue or 0, NOT_ASKED).words
        )

    @cached_property
    def gated(self) -> int:
        """The queues where sites take no pilots for it."""
        decision, unfit = self.decision, self.eligible & ~self.fitting
        if decision is None:
            return unfit
        return unfit | decision.gated(self.task_queue, self.exclusions.config, self.eligible)

    @cached_property
    def sendable(self) -> int:
        """The jobs like it that pilots which the director may send would start within a minute."""
        if self.slots is None or not self.snapshot.iterates_soon(self.now):
            return 0
        return self.slots.starts(self.exclusions.key, self.open_here)

    @property
    def slots_here(self) -> tuple[int, int]:
        """The known slots of the queues that can run it, at sites whose ads admit it, and how many are free."""
        return (0, 0) if self.slots is None else self.slots.count(self.fitting)

    @cached_property
    def start(self) -> StartEstimate | None:
        """When it starts; None if that is unknown, or does not depend on the jobs before it."""
        return self.start_by(self.reason)

    def start_by(self, reason: MainReason) -> StartEstimate | None:
        """The same if that is why it waits."""
        if reason is MainReason.LIMITED and any(
            one.enough and one.ends is None for one in self.limits.buckets
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
        """The same in words, and by what; '' if it is not known."""
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
        """Why it is not known when it starts."""
        seen = self.started.group
        if not seen.is_over:
            return "no start of late to go by"
        return f"no such job has started for {span(seen.silent)}, longer than starts were seen before"

    def next_jobs(self, jobs: int) -> int:
        """Of it and those that follow it, together that number of jobs, those whose turn is next."""
        return count_next(
            jobs, lambda n: replace(self, turn=self.turn._replace(ahead=self.turn.ahead + n)).reason
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
        return next((found for holds, found in in_order if holds), reason)

    @property
    def is_kept(self) -> bool:
        """Whether closings are why it waits, though pilots are there that may take it."""
        return self.reason is MainReason.CLOSED and self.pilots.any_usable

    @property
    def is_behind(self) -> bool:
        """Whether by `AtMost` others of its submission have to end before it starts. Where those that may start wait for
        their turn, so does it.
        """
        most = self.exclusions.key.at_most
        room = most - self.taken
        if not most or self.turn.ahead < room:
            return False
        return room < 1 or replace(self, turn=self.turn._replace(ahead=room - 1)).reason not in STARTS_IN_TURN

    @property
    def waits_for(self) -> str:
        """What it waits for but for pilots, in words; '' for nothing."""
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
        """What `AtMost` lets a job wait for, in words."""
        most, ahead = self.exclusions.key.at_most, self.turn.ahead
        before = f", and {counted(ahead, 'job')} before it" if ahead else ""
        if self.taken >= most:
            return f"until one of the {self.taken} under way ends{before}: AtMost = {most}"
        if self.taken:
            some = "1 is" if self.taken == 1 else f"{self.taken} are"
            return f"until one of its submission ends{before}: AtMost = {most}, of which {some} under way"
        first = replace(self, turn=self.turn._replace(ahead=0)).reason
        which = (
            f"behind {counted(ahead, 'job')} of its submission: AtMost = {most}, of which none is under way"
        )
        return f"{which}; the reason of the first is {first}"
