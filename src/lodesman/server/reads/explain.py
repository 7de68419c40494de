"""Gathers the facts of explanations; `lodesman.decide.explain` explains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from lodesman.base.errors import counted
from lodesman.decide.broker.site_wishes import misfits, site_wish
from lodesman.decide.director.hosts import NODE_FAILED, ON_SHUT_HOST
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.closing import longest_minutes
from lodesman.decide.explain.job import explain_job
from lodesman.decide.explain.job_facts import JobFacts
from lodesman.decide.explain.pilot import explain_pilot
from lodesman.decide.explain.pilot_facts import PilotCase, PilotFacts, PilotNow
from lodesman.decide.explain.queue import CONSIDERED, explain_queue_for_job
from lodesman.decide.explain.queue_facts import QueueFacts
from lodesman.decide.explain.starts import JobsInPilots, StartHistory
from lodesman.decide.explain.survey import SENDABLE
from lodesman.decide.explain.verdict import OF_LIMITS, span
from lodesman.decide.masks.bits import Plane, bits, passing
from lodesman.decide.matching import QueueOffer, TaskQueueKey, parts_of
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.offers import never_sent
from lodesman.decide.matching.policy import Policy, VOConfig
from lodesman.decide.resources import (
    FilePosition,
    NodePath,
    QueueId,
    ResourceConfig,
    access_refusal,
    effective_params,
)
from lodesman.decide.submission import Exclusions, find_exclusions
from lodesman.languages.jobclass import Classes
from lodesman.languages.jobclass.classes import NO_CLASSES
from lodesman.languages.jobs.spec import TERMINAL
from lodesman.server.loops.limit_use import Barrier
from lodesman.server.loops.site_matching import places_of
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.reads.sites import show_node
from lodesman.server.store import Reader
from lodesman.server.store.order import DependencyRow, dependencies_of
from lodesman.server.store.read import why as read
from lodesman.server.store.read.job_lists import JobQuery, list_jobs
from lodesman.server.store.read.jobs import job_by_id
from lodesman.server.store.read.pilots import pilots_by_id, taken_jobs
from lodesman.server.store.task_queues import key_and_requirements
from lodesman.server.writer.job_classes import usable_by
from lodesman.server.writer.pool_map import PoolQueues
from lodesman.server.writer.sessions import PilotSession
from lodesman.wire.jobs import HeldBy, Job, JobStart
from lodesman.wire.nodes import Closing, QueueSetting
from lodesman.wire.service import LimitAnswer
from lodesman.wire.vocabulary import JobState, MainReason
from lodesman.wire.why_jobs import Holding, JobPilots, JobPosition, JobWaits, JobWaitsNot, QueuePosition
from lodesman.wire.why_pilots import PilotWhy
from lodesman.wire.why_queues import QueueGate

_LATELY: Final = 5


def _not_waiting(state: JobState, reason: str) -> str:
    text = "It has ended and does not wait" if state in TERMINAL else "It does not wait"
    return f"{text}{f': {reason}' if reason else ''}".rstrip(".") + "."


def _bound_text(pilot: read.Binding, now: float) -> str:
    where, since = "/".join(pilot.queue), span(max(0.0, now - pilot.since))
    waits = (
        "which has not started yet"
        if pilot.joined_at is None
        else "which has joined and is about to ask for it"
    )
    return f"It is Matched: bound for {since} to pilot {pilot.id} in {where}, {waits}."


# Ranges of jobs that a job waits for.
_SHOWN: Final = 5
# Jobs that one waits for, however indirectly, among which held ones are looked for.
_MOST_ABOVE: Final = 200


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains with the connection of the thread that asks."""

    db: Reader
    policy: Policy
    keeper: SnapshotKeeper
    now: float
    # What keeps jobs of a key from starting in these queues.
    limits: Callable[[TaskQueueKey, Sequence[QueueId]], LimitAnswer] = lambda _key, _queues: LimitAnswer()
    # The job classes, of which some may be suggested.
    classes: Callable[[], Classes] = lambda: NO_CLASSES

    def job(self, job: Job, queue: QueueId | None = None) -> JobWaits | JobWaitsNot:
        """Why a stored job waits, and all that `queue` has against it."""
        number, state, reason, tq_id = job.id, job.state, job.reason, job.task_queue
        if state not in (JobState.WAITING, JobState.HELD):
            bound = read.binding_of(self.db, number) if state is JobState.MATCHED else None
            text = _not_waiting(state, reason) if bound is None else _bound_text(bound, self.now)
            return JobWaitsNot(id=number, state=state, reason=reason, verdict=None, summary=text)
        held = None
        if job.held_by is not None:
            name, seconds = read.holder_name(self.db, job), max(0.0, self.now - job.since)
            held = Holding(limit="held", by=job.held_by, name=name, reason=reason, seconds=seconds)
        position = read.queue_position(self.db, tq_id, number)
        parents, held_parents = self._parents(job)
        facts = self._facts_of(tq_id, position, held)
        facts = replace(facts, job=number, parents=parents, held_parents=held_parents)
        explained = explain_job(facts)
        if reason.startswith(NODE_FAILED):
            words = f"{explained.summary} Of its last attempt: {reason}"
            explained = msgspec.structs.replace(explained, summary=words)
        return JobWaits(
            **msgspec.structs.asdict(explained),
            id=number,
            state=state,
            reason=reason,
            task_queue=JobPosition(id=tq_id, **msgspec.structs.asdict(position)),
            queue=msgspec.UNSET if queue is None else explain_queue_for_job(facts, queue),
        )

    def _parents(self, job: Job) -> tuple[str, dict[HeldBy, list[int]]]:
        """Its parents in words ('' for none), and `_held_above`."""
        texts = []
        for row, first, last in self._above(job):
            wish = "to be Done" if row.ok else "to end"
            parent = job_by_id(self.db, first) if first == last else None
            which = f"jobs {first}-{last}" if parent is None else f"job {first} (it is {parent.state})"
            texts.append(f"{which} {wish}")
        more = [f"and those of {counted(len(texts) - _SHOWN, 'more range')}"] if len(texts) > _SHOWN else []
        return ", ".join([*texts[:_SHOWN], *more]), self._held_above(job)

    def _above(self, job: Job) -> Iterator[tuple[DependencyRow, int, int]]:
        """Each with the first and the last job of its range."""
        for row in dependencies_of(self.db, job.submission, job.id):
            own = row.first + job.id - row.job_id
            yield (row, own, own) if row.by_index else (row, row.first, row.last)

    def _held_above(self, job: Job) -> dict[HeldBy, list[int]]:
        """The first held jobs that a job waits for, however indirectly, by who holds them."""
        held, seen, todo = dict[HeldBy, set[int]](), {job.id}, [job]
        while todo and len(seen) < _MOST_ABOVE:
            for _, first, last in self._above(todo.pop(0)):
                states = (JobState.HELD, JobState.WAITING)
                for above in list_jobs(
                    self.db, JobQuery(first=first, last=last, states=states, limit=_SHOWN)
                ):
                    if above.held_by is not None:
                        held.setdefault(above.held_by, set()).add(above.id)
                    elif above.id not in seen:
                        seen.add(above.id)
                        todo.append(above)
        return {by: sorted(ids)[:_SHOWN] for by, ids in held.items()}

    def with_starts(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs, with an estimate of when those that wait start."""
        facts_of, out = dict[int, JobFacts](), list[Job]()
        for job in jobs:
            if job.state is not JobState.WAITING:
                out.append(job)
                continue
            tq_id, position = job.task_queue, read.queue_position(self.db, job.task_queue, job.id)
            facts = facts_of.get(tq_id) or facts_of.setdefault(tq_id, self._facts_of(tq_id, position))
            facts = facts.put_behind(position.ahead)
            # Limits are not asked for: their judgement is stored.
            reason = job.main_reason
            estimate = facts.start_by(reason) if reason and reason in OF_LIMITS else facts.start
            start = None if estimate is None else JobStart(estimate.low_seconds, estimate.high_seconds)
            out.append(msgspec.structs.replace(job, start=start))
        return out

    def eligible(self, tq_id: int) -> list[QueueId]:
        """The queues that could run the jobs of a task queue."""
        key, requirements = self._read_key(tq_id)
        config = self.policy.vo_config(key.vo)
        return [config.table.queues[bit] for bit in bits(find_exclusions(key, requirements, config).eligible)]

    def _facts_of(self, tq_id: int, position: QueuePosition, held: Holding | None = None) -> JobFacts:
        key, requirements = self._read_key(tq_id)
        facts = self.job_facts(key, requirements, position, task_queue=tq_id, held=held)
        return replace(facts, under_way=taken_jobs(self.db).get(key.submission, 0) if key.at_most else 0)

    def _read_key(self, tq_id: int) -> tuple[TaskQueueKey, Mapping[str, Any] | None]:
        key, _ = key_and_requirements(self.db, tq_id)
        return key, read.requirements_of(self.db, key.submit_pool, tq_id)

    def job_facts(
        self, key: TaskQueueKey, requirements: Mapping[str, Any] | None, position: QueuePosition, *,
        task_queue: int | None = None, held: Holding | None = None, brought: int | None = None,
    ) -> JobFacts:  # fmt: skip
        """The facts of a job. `brought`: the queues (a mask) of the SubmitPool that a job not stored yet would bring."""
        config, pool, mask = self.policy.vo_config(key.vo), key.submit_pool, self.keeper.mask(self.db)
        served = self._served(pool) if pool else None
        evaluated = read.evaluated_at(self.db, pool) if pool else None
        exclusions = find_exclusions(key, requirements, config, usable_by(self.db, key.owner, self.classes))
        unfit = tuple(self._misfits(exclusions))
        if brought is not None and not served:  # the SubmitPool is new, or was not evaluated yet
            served = PoolQueues(passing(unfit, brought), self.policy.bits)
            evaluated = evaluated or self.now
        contest, competing = self.keeper.contest_for(exclusions.config, exclusions.eligible)
        groups: Mapping[str, int] = contest.jobs.get(key.vo, {})
        shares, now, drained = self.policy.shares(), self.now, mask.drained(self.now)
        limits = self.limits(key, [config.table.queues[bit] for bit in bits(exclusions.eligible)])
        turn, barred = contest.turn(key, task_queue, ahead=position.ahead, shares=shares), Barrier.of(limits)
        usable = partial(self.keeper.pilots.usable, served=served, now=now, drained=drained, barred=barred)
        pilots, running = usable(key), self.keeper.pilots.running(key, served, drained=drained, barred=barred)
        of_group = parts_of({*groups, key.group}, shares)[key.group]
        part = turn.part / of_group if of_group else 0.0
        return JobFacts(
            exclusions=exclusions,
            task_queue=task_queue,
            waiting=position.waiting,
            more_ahead=position.more_ahead,
            held=held,
            limits=limits,
            served=0 if served is None else len(served),
            evaluated_at=evaluated,
            misfits=unfit,
            pilots=pilots,
            elsewhere=pilots.any_usable and self._elsewhere(config, mask, partial(usable, key)),
            shorter_minutes=0 if pilots.any_usable else self._shorter(key, mask, usable),
            unreached=self.keeper.pilots.unreached,
            shut_hosts=self.keeper.shut_hosts,
            snapshot=self.keeper.snapshot,
            mask=mask,
            policy=self.policy,
            groups=groups,
            competing=competing,
            turn=turn,
            slots=self.keeper.vo_slots(config, now),
            started=self._started(key, task_queue, part, pilots, running),
            now=now,
        )

    def _served(self, pool: str) -> PoolQueues | frozenset[QueueId]:
        served = self.keeper.serving(self.db, pool)
        return read.queues_of_pool(self.db, pool) if served is None else served

    def _elsewhere(self, config: VOConfig, mask: SiteMask, usable: Callable[..., JobPilots]) -> bool:
        """Whether pilots may take a job where no announced closing keeps new ones away."""
        leaving = mask.leaving(config.table.queues, self.now, config.lives)
        return usable(drained=leaving).any_usable

    def _shorter(self, key: TaskQueueKey, mask: SiteMask, usable: Callable[[TaskQueueKey], JobPilots]) -> int:
        """While a closing is announced: minutes of CPUTime of the longest job like it that pilots take."""
        if not any(closing.is_ahead(self.now) for closing in mask.closings):
            return 0
        return longest_minutes(
            key.norm_cpu_seconds, lambda seconds: usable(replace(key, norm_cpu_seconds=seconds)).any_usable
        )

    def _started(
        self,
        key: TaskQueueKey,
        tq_id: int | None,
        part: float,
        pilots: JobPilots,
        running: JobsInPilots,
    ) -> StartHistory:
        """`part`: of the starts of its group; `running`: what runs in the pilots."""
        starts, jobs, now = self.keeper.starts, self.keeper.jobs, self.now
        free, soon = pilots.free_starts, pilots.soon_starts
        return StartHistory(
            starts.of(tq_id, now),
            starts.of((key.vo, key.group), now),
            part,
            jobs.slots(running, key, tq_id, now=now, free=free, soon=soon),
            jobs.own(tq_id, now),
        )

    def _misfits(self, exclusions: Exclusions) -> Iterator[Plane]:
        clauses = exclusions.config.table.placement(exclusions.criteria)
        if clauses:
            wishes = [site_wish(clause.text, clause.left, clause.queues) for clause in clauses]
            yield from misfits(wishes, self.keeper.ads.look(self.db), places_of(self.policy), self.now)

    def pilot(self, facts: PilotFacts, now: PilotNow) -> PilotWhy:
        """Why a live pilot gets nothing."""
        work, age = self.keeper.task_queues.survey(now.request).work, now.at - self.keeper.snapshot.at
        closings = self._closings_in_time(facts, now, work.fitting)
        if closings:  # to offer more CPU time is no way out: it has no time left
            nearest = [change for change in work.nearest if change.change != ["CPUTime"]]
            work = msgspec.structs.replace(work, nearest=nearest)
        case = PilotCase(
            facts=facts, now=now, work=work, surveyed=max(0.0, age), policy=self.policy, closings=closings,
            held_parents=self._held_parents(now) if MainReason.WAITS_FOR_JOBS in now.chances.blocked else {},
        )  # fmt: skip
        return explain_pilot(case)

    def _closings_in_time(self, facts: PilotFacts, now: PilotNow, fitting: int) -> Sequence[Closing]:
        """Announced closings without which more task queues would fit a pilot."""
        row = facts.row
        closings = self.keeper.mask(self.db).closings_ahead(QueueId(row.site, row.ce, row.queue), self.now)
        stored = next(iter(pilots_by_id(self.db, [row.id])), None) if closings else None
        if stored is None:
            return ()
        seconds = PilotSession(stored, now=self.now).whole(self.now).norm_cpu_seconds
        longer = self.keeper.task_queues.survey(replace(now.request, norm_cpu_seconds=seconds))
        return closings if longer.work.fitting > fitting else ()

    def _held_parents(self, now: PilotNow) -> dict[HeldBy, list[int]]:
        """Held parents of task queues that would fit a pilot."""
        held = dict[HeldBy, list[int]]()
        keys = ((tq_id, key) for tq_id, key, _ in self.keeper.snapshot.waiting if key.waits_for_jobs)
        fitting = (tq_id for tq_id, key in keys if not explain(key, now.request))
        for tq_id in islice(fitting, _SHOWN):
            job = job_by_id(self.db, read.waiting_job(self.db, tq_id, 0))
            for by, jobs in ({} if job is None else self._held_above(job)).items():
                held[by] = sorted({*held.get(by, ()), *jobs})[:_SHOWN]
        return held

    def _shut_host(self, vo: str, offer: QueueOffer | None, gate: QueueGate | None) -> tuple[str, str]:
        """Why the only host of a queue, or those where its pilots start, get no jobs, and who opens them; '' else."""
        config, shut = self.policy.vo_config(vo), self.keeper.shut_hosts
        only = 0 if offer is None else shut.queues(config) & 1 << offer.bit
        if offer is not None and gate is not None and gate.breaker.reason == ON_SHUT_HOST:
            only = 1 << offer.bit
        return (shut.text(config, only, self.now), shut.who(config, only)) if only else ("", "")

    def queue_facts(
        self, place: QueueId, vo: str, gate: QueueGate | None, *, config: ResourceConfig, pilots_of: str
    ) -> QueueFacts:
        """The facts of a queue for a VO. `config`: as the caller sees it; `pilots_of`: '' for all VOs."""
        served, mask = self.keeper.pools.of_queue(place).pools, self.keeper.mask(self.db)
        offer = self.policy.vo_config(vo).offer(place)
        configured, denied, settings = None, None, list[QueueSetting]()
        node = config.tree.find(place)
        if node is not None:
            configured = node.source or FilePosition()
            parameters = show_node(config, NodePath(*place), vo).parameters
            settings = msgspec.convert(parameters, list[QueueSetting], from_attributes=True)
            params = effective_params(config.tree, NodePath(*place), vo=vo, types=config.types)
            denied = access_refusal(params.get("vo"), vo)
        survey = None
        if offer is not None:
            survey = self.keeper.task_queues.survey(
                replace(offer.request, submit_pools=served),
                SENDABLE,
                private_pools=None if offer.settings.generic_pilots else self.policy.private_pools,
            )
        return QueueFacts(
            place=place,
            shut_host=self._shut_host(vo, offer, gate),
            vo=vo,
            configured=configured,
            denied=denied,
            offer=offer,
            never=None
            if offer is None
            else never_sent(offer, self.policy.backends, self.policy.submission_pools),
            settings=settings,
            survey=survey,
            served=len(served),
            gate=gate,
            live=Counter(state for state, _ in read.pilots_of_queue(self.db, place, pilots_of)),
            sent=read.last_sent(self.db, place, self.now, among=CONSIDERED, most=_LATELY, vo=pilots_of),
            unreached=self.keeper.pilots.unreached.get(place),
            closings=mask.closings_of(place, self.now)
            if offer is None
            else mask.closings_shutting_out(place, self.now, offer.life_seconds),
            announced=mask.closings_ahead(place, self.now),
            full=frozenset(tq_id for tq_id, key, _ in self.keeper.snapshot.waiting if key.at_most)
            - {tq_id for tq_id, _, _ in self.keeper.startable},
            snapshot=self.keeper.snapshot,
            now=self.now,
        )
