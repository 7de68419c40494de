"""The pending reason of each task queue: why its jobs wait, and since when, judged as by `lode why`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.errors import LodesmanError
from lodesman.decide.director.site_mask import DrainedNodes, SiteMask
from lodesman.decide.explain.facts import Snapshot
from lodesman.decide.explain.last_iteration import RecordedIteration
from lodesman.decide.explain.turns import Turn, VOSlots, Waiting
from lodesman.decide.explain.verdict import (
    SHUT_OUT,
    STARTS_IN_TURN,
    LimitMasks,
    StoppedPilots,
    count_first,
    judge_with_sites,
    verdict_of,
)
from lodesman.decide.masks.bits import mask_of
from lodesman.decide.matching import GroupShare, TaskQueueKey
from lodesman.decide.matching.policy import Policy, VOConfig
from lodesman.decide.resources.requirement import without_clause
from lodesman.decide.submission import find_exclusions
from lodesman.server.loops.fit import Fit, ServedQueues
from lodesman.server.loops.left_out import Item, StepPass, task_queue
from lodesman.server.loops.limit_use import SeenLimits
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.store import Reader
from lodesman.server.store.read.why import requirements_of, stored_reasons, waiting_job
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.service import Reasons, WaitReason
from lodesman.wire.vocabulary import MainReason
from lodesman.wire.why_jobs import JobPilots

_LEAST_SECONDS: Final = 5.0
_REST: Final = 20.0  # seconds between judgements, for each second that one takes
_UNCHANGED_REST: Final = 1_000.0  # the same while nothing that they go by changes
_GATES_KEPT: Final = 10_000


class _Moment(NamedTuple):
    """What all judgements of one moment go by. The mappings are by VO."""

    configs: Mapping[str, VOConfig]
    closed: Mapping[str, int]
    announced: Mapping[str, int]
    failing: Mapping[str, Sequence[StoppedPilots]]
    slots: Mapping[str, VOSlots | None]
    drained: DrainedNodes | None
    leaving: Mapping[str, DrainedNodes]
    by_ads: Mapping[str, int]
    iteration: RecordedIteration | None
    snapshot: Snapshot


class _Judge(Struct, frozen=True):
    """What speaks for and against the jobs of one task queue, but for their turn. All are judged before the first gets its
    turn: very many are kept at once.
    """

    of_vo: tuple[
        int | None, int, int, bool
    ]  # the open queues, closed ones, those without pilots; whether pilots are sent
    eligible: int
    pilots: JobPilots
    sendable: int
    failing: StoppedPilots
    limits: LimitMasks
    gated: int
    refused: bool

    def __call__(self, turn: Turn | None = None) -> MainReason:
        open_queues, closed, unsent, sends = self.of_vo
        more = {} if turn is None else {"turn": turn}
        return judge_with_sites(
            self.eligible, open_queues, self.pilots, sendable=self.sendable, closed=closed, failing=self.failing,
            unsent=unsent, limits=self.limits, gated=self.gated, refused=self.refused, sends=sends, **more,
        )  # fmt: skip


def _is_within(seconds: float, at: float | None, now: float) -> bool:
    return at is not None and 0.0 <= now - at < seconds


class MainReasons:
    """Judges again and again. One thread at a time uses it."""

    def __init__(
        self, db: Reader, keeper: SnapshotKeeper, *,
        limits: Callable[[], SeenLimits] = SeenLimits, unfit: Callable[[], Mapping[str, int]] = dict,
    ) -> None:  # fmt: skip
        """`limits`: what they keep from starting. `unfit`: by SubmitPool, queues that the ads of their sites
        exclude.
        """
        self._db = db
        self._ask_limits, self._limits = limits, SeenLimits()
        self._unfit = unfit
        self._keeper = keeper
        self._stored = stored_reasons(db)
        self._found: dict[int, Fit] = {}
        self._version = ""
        self._gates: dict[Hashable, str] = {}
        self._now = 0.0
        # What a look at the facts takes, and when one was; the same of the last judgement, and what it went by.
        self._look_cost = self._cost = 0.0
        self._looked_at: float | None = None
        self._at: float | None = None
        self._facts: object = None

    def tick(self, policy: Policy, now: float, post: Post) -> None:
        """Judge if it is time, and post what changed; after LodesmanError again."""
        changed = self.judge(policy, now)
        if changed is None:
            return
        try:
            post(inner_calls.REASONS, Reasons(changed, self.facts_at()))
        except LodesmanError:
            self._stored = stored_reasons(self._db)
            raise

    def judge(self, policy: Policy, now: float) -> dict[int, WaitReason | None] | None:
        """What changed since the last judgement; None: it is not time for one."""
        if self._keeper.at is None:
            return None
        if _is_within(max(_LEAST_SECONDS, self._look_cost * _REST), self._looked_at, now):
            return None
        begun, asking = time.thread_time(), time.monotonic()
        self._look_at_limits()
        asking = time.monotonic() - asking  # of another process
        self._now, mask = now, self._keeper.mask(self._db)
        with self._keeper.left_out.step("reasons: VOs") as left:
            moment = self._look(policy, mask, left)
        facts = (*self._facts_of(policy, moment, mask), tuple(left.faults))
        self._look_cost, self._looked_at = time.thread_time() - begun + asking, now
        rest = _UNCHANGED_REST if facts == self._facts else _REST
        if _is_within(self._cost * rest, self._at, now):
            return {} if rest is _UNCHANGED_REST else None
        if policy.digest != self._version:
            self._version, self._found, self._gates = policy.digest, {}, {}
        with self._keeper.left_out.step("reasons") as left:
            judged = self._judge_all(policy, moment, mask, left)
        self._facts = None if left.faults else facts  # what was left out is tried again
        changed: dict[int, WaitReason | None] = {
            tq_id: reason for tq_id, reason in judged.items() if self._stored.get(tq_id) != reason
        }
        for tq_id in self._stored.keys() - judged.keys():
            changed[tq_id] = None
            self._found.pop(tq_id, None)
        self._stored = judged
        self._cost, self._at = time.thread_time() - begun + asking, now
        return changed

    def _facts_of(self, policy: Policy, moment: _Moment, mask: SiteMask) -> tuple[object, ...]:
        """Equal as long as a judgement would be the same."""
        keeper, snapshot = self._keeper, moment.snapshot
        *by_vo, iteration, _ = moment
        return (
            *by_vo, iteration is None, keeper.version,
            snapshot.iterates_soon(self._now), snapshot.director.full, keeper.shut_hosts, keeper.sharing(),
            policy.digest, policy.shares(), self._limits, mask,
        )  # fmt: skip

    def _look_at_limits(self) -> None:
        """Without an answer the last one counts."""
        if self._keeper.snapshot.waiting:
            with suppress(LodesmanError):
                self._limits = self._ask_limits()

    def facts_at(self) -> float | None:
        """When the oldest of the facts was true; None if one is not known."""
        decided, at = self._keeper.snapshot.decided_at, self._keeper.at
        return None if decided is None or at is None else min(decided, at)

    def _judge_all(
        self, policy: Policy, now: _Moment, mask: SiteMask, left: StepPass
    ) -> dict[int, WaitReason]:
        keeper, snapshot, shares = self._keeper, now.snapshot, policy.shares()
        where: dict[str, dict[int, int]] = {vo: {} for vo in now.configs}
        judges: dict[int, _Judge] = {}
        pilots: dict[JobPilots, JobPilots] = {}  # most have the same: one is kept
        waiting = [row for row in snapshot.waiting if row[1].vo in now.configs]
        for tq_id, key, _ in waiting:
            with left.item(task_queue(tq_id)):
                fit = self._fit(tq_id, key, now.configs[key.vo])
                judge = self._judge_of(tq_id, fit, policy, now)
                judges[tq_id] = replace(judge, pilots=pilots.setdefault(judge.pilots, judge.pilots))
                where[key.vo][tq_id] = fit.eligible
        alone, may_start = self._judge_alone(judges, waiting, left)
        apart = {tq_id for tq_id, judged in alone.items() if judged.reason in SHUT_OUT}
        keeper.know_who_competes(
            {vo: (vo_config.version, where[vo]) for vo, vo_config in now.configs.items()}, apart
        )
        judged_all: dict[int, WaitReason] = {}
        same: dict[WaitReason, WaitReason] = {}  # most are: one is kept
        for row in waiting:
            tq_id = row[0]
            if tq_id not in alone:
                continue
            with left.item(task_queue(tq_id)):
                judged = alone[tq_id]
                if judged.reason not in SHUT_OUT:
                    judged = self._in_turn(row, may_start.get(tq_id, row[2]), shares, judges[tq_id])
                detail = self._detail(judged.reason, self._found[tq_id], now.iteration, mask)
                judged = judged._replace(detail=detail)
                judged_all[tq_id] = same.setdefault(judged, judged)
        return judged_all

    def _look(self, policy: Policy, mask: SiteMask, left: StepPass) -> _Moment:
        keeper, now, snapshot = self._keeper, self._now, self._keeper.snapshot
        away = mask_of(policy.bits[queue] for queue in keeper.pilots.unreached if queue in policy.bits)
        configs, closed, announced, leaving, failing, slots = {}, {}, {}, {}, {}, {}
        for vo in {vo for vo, _ in snapshot.groups}:
            with left.item(Item("VO", vo)):
                config = policy.vo_config(vo)
                closed[vo] = mask.closed(config.table.queues, now, config.lives)
                announced[vo] = mask.announced(config.table.queues, now, config.lives)
                leaving[vo] = mask.leaving(config.table.queues, now, config.lives)
                shut = keeper.shut_hosts.queues(config)
                stops = (snapshot.director.failing_of(config, some) for some in (0, away))
                failing[vo] = [stopped._replace(shut=shut) for stopped in stops]
                slots[vo] = keeper.vo_slots(config, now)
                configs[vo] = config
        return _Moment(
            configs,
            closed,
            announced,
            failing,
            slots,
            mask.drained(now),
            leaving,
            self._unfit(),
            snapshot.decision(now),
            snapshot,
        )

    def _judge_of(self, tq_id: int, fit: Fit, policy: Policy, now: _Moment) -> _Judge:
        key, eligible, iteration, closed = fit.key, fit.eligible, now.iteration, now.closed[fit.key.vo]
        unfit = now.by_ads.get(key.submit_pool, 0)
        served = None if fit.served is None else ServedQueues(fit.config, fit.served & ~unfit)
        capacity = None if iteration is None else iteration.capacity(fit.config)
        open_queues = None if capacity is None else capacity.open
        limits, vo_slots = self._limits.masks(tq_id), now.slots[key.vo]
        shut = now.failing[key.vo][0].shut
        sent_to = eligible & (open_queues or 0) & ~(closed | unfit | limits.queues | shut)
        usable = partial(
            self._keeper.pilots.usable, key, served, now=self._now, alike=served and (key.vo, served.mask),
            barred=self._limits.barred(tq_id, policy.bits),
        )  # fmt: skip
        pilots = usable(drained=now.drained)
        gated = unfit | (0 if iteration is None else iteration.gated(tq_id, fit.config, eligible))
        unsent = 0 if capacity is None else capacity.unsent
        failing = now.failing[key.vo][bool(pilots.unreached)]
        fillable = (
            eligible & now.announced[key.vo] & ~(gated | limits.queues | unsent | failing.queues | shut)
        )
        refused = iteration is not None and bool(iteration.refusals(tq_id, now.snapshot.director.full))
        kept = (
            vo_slots.fills(key, fillable)
            if vo_slots and fillable and pilots.any_usable and not refused
            else 0
        )
        kept = 0 if kept and usable(drained=now.leaving[key.vo]).any_usable else kept
        iterates_soon = vo_slots and now.snapshot.iterates_soon(self._now)
        return _Judge(
            of_vo=(open_queues, closed, unsent, iteration is None or iteration.sends),
            eligible=eligible,
            pilots=pilots,
            sendable=vo_slots.starts(key, sent_to) if vo_slots and iterates_soon else 0,
            failing=failing._replace(kept=kept) if kept else failing,
            limits=limits,
            gated=gated,
            refused=refused,
        )

    def _in_turn(
        self,
        task_queue: Waiting,
        room: int,
        shares: Mapping[str, GroupShare],
        judge: _Judge,
    ) -> WaitReason:
        """Of jobs that compete for starts; the first `room` may start."""
        tq_id, key, waiting = task_queue
        fit = self._found[tq_id]
        contest, _ = self._keeper.contest_for(fit.config, fit.eligible)
        turn = contest.turn(key, tq_id, ahead=0, shares=shares)
        judged = self._split(tq_id, room, turn, judge)
        return self._behind(tq_id, room, judged) if room < waiting else judged

    def _judge_alone(
        self, judges: Mapping[int, _Judge], waiting: Iterable[Waiting], left: StepPass
    ) -> tuple[dict[int, WaitReason], Mapping[int, int]]:
        """Without competition; and how many jobs may start where other jobs or `AtMost` hold some back."""
        alone: dict[int, WaitReason] = {}
        for tq_id, judge in judges.items():
            with left.item(task_queue(tq_id)):
                alone[tq_id] = WaitReason(judge())
        may_start = {tq_id: jobs for tq_id, _, jobs in self._keeper.startable}
        for tq_id, key, _ in waiting:
            if tq_id not in alone:
                continue
            if key.waits_for_jobs and alone[tq_id].reason is not MainReason.IMPOSSIBLE:
                alone[tq_id] = WaitReason(MainReason.WAITS_FOR_JOBS)
            if key.at_most and tq_id not in may_start and alone[tq_id].reason not in SHUT_OUT:
                alone[tq_id] = WaitReason(MainReason.AT_MOST)
        return alone, may_start

    def _split(self, tq_id: int, waiting: int, turn: Turn, judge: _Judge) -> WaitReason:
        """Of the last waiting job, and of the first ones that are next, or whose pilots a closing keeps away."""

        def reason(ahead: int) -> MainReason:
            return judge(turn=turn._replace(ahead=ahead))

        first = last = reason(0)
        if waiting > 1:
            last = reason(waiting - 1)
        if first is last or (verdict_of(first) == verdict_of(last) and first is not MainReason.CLOSED):
            return WaitReason(last)
        count = count_first(waiting, reason)
        return WaitReason(last, "", first, count, waiting_job(self._db, tq_id, count))

    def _behind(self, tq_id: int, room: int, judged: WaitReason) -> WaitReason:
        """The first `room` jobs are `judged`; the others wait by `AtMost`, or for their turn if the last of the
        first ones does.
        """
        if judged.reason in STARTS_IN_TURN:
            return judged
        first, count, before = judged.reason, room, judged.next_before
        if judged.next_reason is not None:
            first, count = judged.next_reason, judged.next_jobs
        if not before:
            before = waiting_job(self._db, tq_id, count)
        return WaitReason(MainReason.AT_MOST, "", first, count, before)

    def _fit(self, tq_id: int, key: TaskQueueKey, config: VOConfig) -> Fit:
        before = self._found.get(tq_id)
        served = config.served_by_residents(key)
        if before is None or before.config.served_by_residents(key) != served or before.key != key:
            requirements = requirements_of(self._db, key.submit_pool, tq_id)
            before = self._found[tq_id] = Fit.of(find_exclusions(key, requirements, config))
        return before

    def _detail(
        self, reason: MainReason, fit: Fit, iteration: RecordedIteration | None, mask: SiteMask
    ) -> str:
        """What can be counted: the criterion, the gate or the closing that stops most."""
        if reason is MainReason.IMPOSSIBLE:
            return without_clause(fit.worst) if fit.worst else ""
        if reason not in (MainReason.NO_ROOM, MainReason.CLOSED):
            return ""
        config, eligible = fit.config, fit.eligible
        closings = mask.hits(config.table.queues, eligible, self._now, config.lives)
        if reason is MainReason.CLOSED or iteration is None:
            return str(closings[0][0].node)
        about = (
            iteration.number,
            config.vo,
            eligible,
            tuple(closing.node for closing, _ in closings),
        )
        most_stopping = self._gates.get(about)
        if most_stopping is None:
            if len(self._gates) > _GATES_KEPT:
                self._gates.clear()
            gates: Counter[str] = Counter()
            for gate, queues in iteration.capacity(config).gates(eligible, closings, self._now):
                gates[gate.name] += queues.bit_count()
            most_stopping = self._gates[about] = gates.most_common(1)[0][0]
        return most_stopping
