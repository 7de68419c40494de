"""`why` of jobs, pilots and CE queues, and plans, in the reading process.

A plan is made in a thread, and given up if it takes too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import msgspec

from lodesman.base.errors import InvalidRequest, NotFound, TooLarge, Unavailable
from lodesman.decide.explain.pilot import explain_ended
from lodesman.decide.explain.pilot_facts import PilotNow
from lodesman.decide.explain.queue import explain_queue
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.task_queue import key_to_json
from lodesman.decide.resources import MANUAL, Fault, FilePosition, QueueId, load_resources
from lodesman.languages.jobclass.rights import split_name
from lodesman.languages.quota.matching import QuotaJob
from lodesman.server.http.auth import own_vo, vo_of
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.quotas import known_names, read_sets
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import page_after
from lodesman.server.loops.candidates import OwnQueue, count_own_pilots
from lodesman.server.loops.hosts import local_hosts
from lodesman.server.loops.limit_use import LimitUse, limit_use, limits_at
from lodesman.server.reads.explain import Explainer
from lodesman.server.reads.plan_resources import plan_resources
from lodesman.server.reads.plans import LiveState, plan_job, plan_shares
from lodesman.server.reads.quotas import JobsBehind, plan_quotas
from lodesman.server.reads.rehearsal import plan_director, plan_gates
from lodesman.server.reads.sites import GateReader, exact_node, find_node
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.quotas import has_quotas
from lodesman.server.store.read.pilots import pilots_in_short
from lodesman.server.store.read.why import pilot_facts, pilots_of_queue
from lodesman.server.writer.groups import know_shares
from lodesman.wire import calls, inner_calls
from lodesman.wire import requests as asks
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing
from lodesman.wire.jsv import VerifyAnswer, VerifyBody
from lodesman.wire.pilots import PilotLog
from lodesman.wire.plans import DirectorPlans, JobPlan, PlannedIteration, ResourcesPlan, SharesPlan
from lodesman.wire.quotas import BucketRow, PlanQuotasBody, QuotaPlan, QuotaUses, UsesQuery
from lodesman.wire.service import LimitAnswer, LimitQuery, PilotLoad
from lodesman.wire.site_ads import PlanGatesBody
from lodesman.wire.vocabulary import JobState, PilotState
from lodesman.wire.why_jobs import JobWaits, JobWaitsNot
from lodesman.wire.why_pilots import PilotWhy
from lodesman.wire.why_queues import QueueExplained

# A plan may take this long, and wait this long for others.
_PLAN_SECONDS = 60.0
_WAIT_SECONDS = 30.0
_MOST_LIMITS_ASKED = 1_000

_T = TypeVar("_T")

# --- why ----------------------------------------------------------------------------------------------------------------


def _explainer(side: ReadSide) -> Explainer:
    classes = cache(partial(side.classes, side.db))
    return Explainer(side.db, side.policy, side.fresh(), side.clock(), classes=classes)


@serves(calls.JOB_WHY)
async def _job_why(side: ReadSide, request: Request[asks.JobInQueue, Nothing]) -> JobWaits | JobWaitsNot:
    """Of one `queue`, SITE/CE/QUEUE: all that it has against the job."""
    job, path = side.job(request.query.job, request.who, for_vo_admins=True), request.query.queue
    queue = _named_queue(side, request.who, path, "queue") if path else None
    limits = LimitAnswer()
    # Rules are stored with the commit from which they hold: without any there is nothing to ask the hot process for.
    if job.state is JobState.WAITING and (side.policy.config.limits or has_quotas(side.db)):
        queues = _explainer(side).eligible(job.task_queue)
        limits = await _limits(side, request.who, limits_at(queues, side.watches, task_queue=job.task_queue))
    return replace(_explainer(side), limits=lambda *_: limits).job(job, queue)


async def _limits(side: ReadSide, who: Principal, query: LimitQuery) -> LimitAnswer:
    """As far as the caller may see; nothing while the hot process is away."""
    try:
        limits: LimitAnswer = await side.ask_hot(inner_calls.LIMITED, query)
    except Unavailable:
        return LimitAnswer()
    if limits.buckets:
        use = await _limit_use(side)
        named = [use.named(bucket, own_vo(who)) for bucket in limits.buckets]
        return msgspec.structs.replace(limits, buckets=named)
    return limits


async def _limit_use(side: ReadSide) -> LimitUse:
    return await side.costly.get(("limit-use", side.policy.digest), partial(limit_use, side.policy))


@serves(calls.QUOTA_USES)
async def _quota_uses(side: ReadSide, request: Request[UsesQuery, Nothing]) -> QuotaUses:
    query, buckets = request.query, await side.ask_hot(inner_calls.LIMIT_BUCKETS, Nothing())
    use = await _limit_use(side)
    buckets = await asyncio.to_thread(JobsBehind(side.policy, use, side.fresh()).narrow, buckets)
    if query.user or query.job_class:
        job = _asked_job(side, query)
        buckets = [bucket for bucket in buckets if use.concerns(bucket, job)]
    some, more = page_after(buckets, query, _bucket)
    return QuotaUses(uses=[use.named(bucket, own_vo(request.who)) for bucket in some], **more)


def _asked_job(side: ReadSide, query: UsesQuery) -> QuotaJob:
    job_class, variant = split_name(query.job_class)
    lists = side.policy.vocabulary.with_accounts(groups_by_user(side.db)).lists_of(query.user)
    return QuotaJob(user=query.user, user_lists=lists, job_class=job_class, variant=variant)


def _bucket(row: BucketRow) -> str:
    return "\n".join((row.rule, *row.of, row.resource))


@serves(calls.PILOT_WHY)
async def _pilot_why(side: ReadSide, request: Request[asks.PilotAt, Nothing]) -> PilotWhy:
    facts = pilot_facts(side.db, request.query.pilot, own_vo(request.who))
    if facts.row.ended_at is None:
        answer = await side.ask_hot(inner_calls.PILOT_NOW, PilotLoad(facts.row.id, facts.promised))
        now = msgspec.json.decode(answer, type=PilotNow)
        if not now.joined and facts.row.state is PilotState.RUNNING:
            facts = pilot_facts(side.db, str(facts.row.id))  # it ended in between
        if facts.row.ended_at is None:
            return _explainer(side).pilot(facts, now)
    return explain_ended(facts, side.clock())


@serves(calls.PILOT_LOGS)
async def _pilot_log(side: ReadSide, request: Request[asks.PilotAt, Nothing]) -> PilotLog:
    """Raises NotFound if nothing is kept, BackendFault."""
    row = pilot_facts(side.db, request.query.pilot, own_vo(request.who)).row
    watch = side.director.watches.get(row.backend) if side.director is not None else None
    never = f"Pilot {row.id} has written nothing:"
    if row.backend == MANUAL:
        raise NotFound(f"A person started pilot {row.id}, or will: its output is where that was done.")
    if row.native_id is None:
        why = f" ({row.reason})" if row.reason else ""
        raise NotFound(f"{never} the batch system {row.backend} has not accepted it{why}.")
    if watch is None:
        raise NotFound(f"The output of pilot {row.id} is at {row.backend}, which is configured no more.")
    output = await asyncio.to_thread(watch.backend.output, row.stamp, row.native_id)
    if output is None and row.state is PilotState.SUBMITTED:
        raise NotFound(f"{never} it waits at the batch system {row.backend} as {row.native_id}.")
    if output is None:
        raise NotFound(
            f"The batch system {row.backend} keeps nothing of pilot {row.id}.",
            hint="What a pilot wrote is kept for a day after its end; one that never started has written nothing.",
        )
    text = output.decode("utf-8", "replace")
    return PilotLog(row.id, row.stamp, row.backend, row.native_id, row.host, text)


@serves(calls.QUEUE_WHY)
async def _queue_why(side: ReadSide, request: Request[asks.NodeQuery, Nothing]) -> QueueExplained:
    query = request.query
    vo = vo_of(query.vo, request.who, usual=request.who.vo, known=side.policy.config.vos)
    place, explainer = _place(side, request.who, query), _explainer(side)
    offer, gate = side.policy.vo_config(vo).offer(place), None
    if offer is not None and side.director is not None:
        queue_id, mask = QueueId(*place), side.keeper.mask(side.db)
        own = count_own_pilots((state, queue_id, at) for state, at in pilots_of_queue(side.db, place))
        mine = own.get(queue_id, OwnQueue())
        reader = GateReader(db=side.db, tree=side.policy.config.tree, options=side.gates)
        at_site = reader.limit(place.site, explainer.now)
        # A batch system may take its time.
        gate = await asyncio.to_thread(
            side.director.gate,
            vo,
            offer,
            mine,
            mask=mask,
            now=explainer.now,
            site=at_site,
            hosts=local_hosts(side.db, pilots_in_short(side.db), explainer.now),
        )
    config, pilots_of = side.config(request.who), own_vo(request.who)
    facts = explainer.queue_facts(place, vo, gate, config=config, pilots_of=pilots_of)
    if facts.configured is None and not facts.live and not facts.sent:
        raise NotFound(f"There is no queue {'/'.join(place)[:200]}.", hint="See: lode queue ls.")
    with suppress(Unavailable):
        limits = await side.ask_hot(inner_calls.LIMITED, limits_at([QueueId(*place)], side.watches))
        kept, never = (
            frozenset(tq_id for barrier in limits.some for tq_id in ids(barrier))
            for ids in (attrgetter("ids"), attrgetter("never"))
        )
        facts = replace(facts, limited=kept, never_start=never)
    return explain_queue(facts)


def _place(side: ReadSide, who: Principal, query: asks.NodeQuery) -> QueueId:
    parts = (query.site, query.ce, query.queue)
    if all(parts):
        return _open_to(side, who, QueueId(*parts))
    if any(parts) or not query.path:
        raise InvalidRequest("Name the queue: site, ce and queue; or path, SITE/CE/QUEUE.", parameter="path")
    return _named_queue(side, who, query.path, "path")


def _open_to(side: ReadSide, who: Principal, place: QueueId) -> QueueId:
    if side.policy.config.tree.find(place) is not None:
        exact_node(side.config(who).tree, place)
    return place


def _named_queue(side: ReadSide, who: Principal, path: str, parameter: str) -> QueueId:
    """Configured or not. Raises InvalidRequest, NotFound."""
    if path.count("/") < 2:
        raise InvalidRequest("Name the queue: SITE/CE/QUEUE.", parameter=parameter)
    try:
        node = find_node(side.config(who).tree, path)
    except NotFound:
        # It may be gone from the configuration, and pilots still be there.
        return _open_to(side, who, QueueId(*path.split("/", 2)))
    if not node.queue:
        raise InvalidRequest(f"{path[:200]} is a {node.kind}, not a queue.", parameter=parameter)
    return QueueId(*node)


# --- plan ---------------------------------------------------------------------------------------------------------------


@serves(calls.PLAN_JOB)
async def _plan_job(side: ReadSide, request: Request[Nothing, asks.PlanJobBody]) -> JobPlan:
    who, verified = request.who, None
    body = asks.SubmitBody(**msgspec.structs.asdict(request.body))
    if side.jsv.is_set:
        verified = await side.verifier.verified(VerifyBody(body, who.name, who.groups, side.jsv))
    limits = _LimitsOfPlan(side, who, asyncio.get_running_loop())
    return await _plan(side, side.job_plans, partial(plan_job, body, who, verified), limits)


@serves(inner_calls.VERIFY)
async def _verify(side: ReadSide, request: Request[Nothing, VerifyBody]) -> VerifyAnswer:
    return VerifyAnswer(await side.verifier.verified(request.body))


@serves(calls.PLAN_RESOURCES)
async def _plan_resources(side: ReadSide, request: Request[Nothing, asks.PlanResourcesBody]) -> ResourcesPlan:
    files = side.configuration().resource_files if request.body.add else ()
    return await _plan(side, side.large_plans, partial(_resources, request.body, files))


@serves(calls.PLAN_DIRECTOR)
async def _plan_director(side: ReadSide, request: Request[Nothing, asks.PlanDirectorBody]) -> DirectorPlans:
    return await _plan(side, side.large_plans, partial(plan_director, request.body))


@serves(calls.PLAN_GATES)
async def _plan_gates(side: ReadSide, request: Request[Nothing, PlanGatesBody]) -> PlannedIteration:
    return await _plan(side, side.large_plans, partial(plan_gates, request.body))


@serves(calls.PLAN_SHARES)
async def _plan_shares(side: ReadSide, request: Request[Nothing, asks.PlanSharesBody]) -> SharesPlan:
    know_shares(side.db, side.policy, side.clock())
    return await _plan(side, side.large_plans, partial(plan_shares, request.body.shares))


@serves(calls.PLAN_QUOTAS)
async def _plan_quotas(side: ReadSide, request: Request[Nothing, PlanQuotasBody]) -> QuotaPlan:
    def make(state: LiveState) -> QuotaPlan:
        names = known_names(state.policy, state.classes(), state.db)
        return plan_quotas(*read_sets(request.body.text, state.policy, names), state)

    return await _plan(side, side.large_plans, make)


@dataclass(slots=True)
class _LimitsOfPlan:
    """Asked by the plan's thread; not for very many kinds of jobs."""

    side: ReadSide
    who: Principal
    loop: asyncio.AbstractEventLoop
    answers: dict[TaskQueueKey, LimitAnswer] = field(default_factory=dict)

    def __call__(self, key: TaskQueueKey, queues: Sequence[QueueId]) -> LimitAnswer:
        limits = self.answers.get(key)
        if limits is None and len(self.answers) < _MOST_LIMITS_ASKED:
            query = limits_at(queues, self.side.watches, key=key_to_json(key))
            answer = asyncio.run_coroutine_threadsafe(_limits(self.side, self.who, query), self.loop)
            limits = self.answers[key] = answer.result(_PLAN_SECONDS)
        return limits or LimitAnswer()


def _unlimited(_key: TaskQueueKey, _queues: Sequence[QueueId]) -> LimitAnswer:
    return LimitAnswer()


async def _plan(
    side: ReadSide,
    room: asyncio.Semaphore,
    make: Callable[[LiveState], _T],
    limits: Callable[[TaskQueueKey, Sequence[QueueId]], LimitAnswer] = _unlimited,
) -> _T:
    """Raises Unavailable, TooLarge for what takes too long."""
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await room.acquire()
    except TimeoutError:
        raise Unavailable("Other plans are being worked out.", hint="Try again in a moment.") from None
    try:
        return await asyncio.to_thread(_work, side, make, limits)
    finally:
        room.release()


def _work(
    side: ReadSide,
    make: Callable[[LiveState], _T],
    limits: Callable[[TaskQueueKey, Sequence[QueueId]], LimitAnswer],
) -> _T:
    with closing(side.db.database.reader()) as db:
        deadline = time.monotonic() + _PLAN_SECONDS

        def tick() -> None:
            if time.monotonic() > deadline:
                words = f"This plan takes more than {_PLAN_SECONDS:g} s to work out."
                raise TooLarge(words, hint="Ask again when the server has less to do.", seconds=_PLAN_SECONDS)

        keeper, now, director = side.fresh(), side.clock(), side.director
        return make(
            LiveState(
                db=db,
                policy=side.policy,
                keeper=keeper,
                now=now,
                limits=limits,
                tick=tick,
                director=director,
                classes=cache(partial(side.classes, db)),
            )
        )


def _resources(body: asks.PlanResourcesBody, files: tuple[str, ...], state: LiveState) -> ResourcesPlan:
    """One of the server's own `files` that cannot be read is a fault."""
    faults: list[Fault] = []
    texts: list[tuple[str, str]] = []
    for name in files:
        try:
            texts.append((name, Path(name).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as fault:
            faults.append(Fault(message=f"it cannot be read: {fault}", source=FilePosition(file=name)))
    texts += [(file.name, file.text) for file in body.files]
    config = load_resources(texts, faults=faults)
    return plan_resources(config, [name for name, _ in texts], state, limit=body.limit)
