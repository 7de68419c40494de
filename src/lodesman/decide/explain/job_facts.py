"""The facts of one job, held against the configuration, pilots, the director and the jobs before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain import actors
from lodesman.decide.explain.closing import who_shortens
from lodesman.decide.explain.facts import NOT_ASKED, Capacity, Failing, Gate, SnapshotFacts
from lodesman.decide.explain.pilot import Unreached
from lodesman.decide.explain.starts import FreedSlots, Measured, estimate
from lodesman.decide.explain.turns import SOON_SECONDS, Turn, VOSlots
from lodesman.decide.explain.verdict import (
    OF_LIMITS,
    SHUT_OUT,
    STARTS_IN_TURN,
    LimitMasks,
    between,
    count_next,
    counted,
    judge_with_sites,
    last_pilots,
    span,
    verdict_of,
)
from lodesman.decide.masks.bits import Plane, bits, mask_of, passing
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.decide.submission import Exclusions
from lodesman.wire.jobs import HeldBy
from lodesman.wire.nodes import Closing
from lodesman.wire.service import Limited
from lodesman.wire.vocabulary import MainReason, PoolOutcome
from lodesman.wire.why_jobs import Holding, JobPilots, StartEstimate

_PASSING: Final = frozenset({PoolOutcome.FULL, PoolOutcome.DISABLED})


class Started(NamedTuple):
    """Job starts lately: of a task queue, and of its group, of which the task queue gets a part. What becomes free in the
    pilots that may take its jobs, and where its own jobs run.
    """

    own: Measured
    group: Measured
    part: float
    slots: FreedSlots
    limited: FreedSlots

    def estimate(self, turn: Turn, *, limited: bool) -> StartEstimate | None:
        """When a job starts that waits for its turn, or behind a limit for others of its task queue; None if unknown."""
        jobs, slots = turn.ahead + 1, self.limited if limited else self.slots
        part, others = (1.0, 0) if limited else (turn.part, turn.others)
        found = slots.start(jobs, part=part, others=others) if slots.jobs else None
        if found is not None:
            return StartEstimate(
                *found,
                max(0, self.own.starts),
                self.own.seconds,
                running=slots.jobs,
                job_seconds=slots.job_seconds,
            )
        by_group = estimate(jobs / self.part, self.group) if self.part > 0 and not limited else None
        return estimate(jobs, self.own) or by_group


@dataclass(frozen=True, kw_only=True)
class JobFacts(SnapshotFacts):
    """One job, or one that is not stored yet, held against the config.

    `job`: its number, None if it is not stored. `task_queue`: None if it would be new. `served`: the number of queues that
    serve its SubmitPool; `evaluated_at`: when they were evaluated. `misfits`: what the ads of sites say that keeps it away,
    with the queues. `competing`: its `groups` compete for queues that are known, not for any. `slots`: those of its VO,
    None if unknown. `parents`: the jobs that it waits for, in words, and those of them that are held. `limits`: those that
    keep it from starting, at some places or at all. `started`: the starts of its task queue, and of its group, which gives
    it a `part` of them. `taken`: of its submission, where it has `AtMost`. `shorter`: while a closing is announced, the
    minutes of the longest job like it that a pilot takes. `unreached`: pilots that run and do not reach the server.
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
    def fitting(self) -> int:
        """The eligible queues that the ads of their sites do not exclude."""
        return passing(self.misfits, self.eligible)

    @cached_property
    def open_here(self) -> int:
        """The eligible queues that have free capacity for its pilots, as far as known."""
        return (
            self.fitting & ~self.closed & ~self.limited & (0 if self.capacity is None else self.capacity.open)
        )

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

    @property
    def openers(self) -> Iterator[str]:
        """The gates as `who_opens` knows them."""
        offers = self.exclusions.config.by_bit
        for gate, mask in self.gates:
            yield actors.opener_of(gate.name, gate.text, {offers[bit].backend for bit in bits(mask)})

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

    @property
    def failing_backends(self) -> set[str]:
        """Where the pilots of these were sent."""
        return {offer.backend for queue, _ in self.failing if (offer := self.exclusions.config.offer(queue))}

    @property
    def named_settings(self) -> list[str]:
        """The settings of the server that these pilots name."""
        words = (one.reason for _, one in self.failing)
        return actors.settings_named(words, self.snapshot.director.settings)

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
        away = self._mask(self.unreached) if self.pilots.unreached else 0
        reason = judge_with_sites(
            self.eligible,
            None if capacity is None else capacity.open,
            self.pilots,
            turn=self.turn,
            sendable=self.sendable,
            closed=self.closed,
            failing=self.snapshot.director.failing_of(self.exclusions.config, away),
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
        return (
            f"until one of its submission ends{before}: AtMost = {most}, of which {self.taken} are under way"
        )

    @property
    def who(self) -> str:
        """Who can change that it waits, with its number where a command needs one."""
        return self._who if self.job is None else self._who.replace("JOBS", str(self.job))

    @property
    def _who(self) -> str:
        reason, closings = self.reason, [one for one, _ in self.closings]
        if reason is MainReason.HELD and self.held:
            return actors.OF_HELD[self.held.by]
        if reason in OF_LIMITS:
            return actors.who_makes_room(self.limits.buckets, never=self.reason is MainReason.OVER_LIMIT)
        if reason is MainReason.WAITS_FOR_JOBS:
            return actors.who_ends_parents(self.held_parents)
        if reason in (MainReason.CLOSED, MainReason.NO_ROOM):
            gates, settings = ((), ()) if reason is MainReason.CLOSED else (self.openers, self.named_settings)
            opens = actors.who_opens(gates, closings, settings)
            return (
                who_shortens(self.shorter, opens)
                if any(one.is_ahead(self.now) for one in closings)
                else opens
            )
        if reason in (MainReason.PILOTS_FAIL, MainReason.NODE_FAULT):
            is_open = any(one.is_open for _, one in self.failing)
            return actors.who_mends(self.failing_backends, self.named_settings, is_open=is_open)
        unknown = self.exclusions.key.submission_pools and not self.is_pool_full
        if reason is MainReason.NO_SUBMISSION_POOL and unknown:
            return "you, by naming other submission pools; or the server administrator, by configuring them"
        is_unwanted = reason is MainReason.SITE_GATE and not self.fitting
        return actors.NOT_ADVERTISED if is_unwanted else actors.OF_JOBS[reason]

    @property
    def is_pool_full(self) -> bool:
        """Whether a submission pool takes no pilots for it for some time only."""
        return any(outcome in _PASSING for _, outcome in self.refusals)
