"""`why` of jobs, pilots and CE queues, in the reading process."""

from __future__ import annotations

import asyncio

import msgspec

from lodesman.answers import calls
from lodesman.answers.call import Nothing
from lodesman.answers.requests import JobInQueue, NodeQuery, PilotAt
from lodesman.answers.service import PilotLoad
from lodesman.answers.vocabulary import PilotState
from lodesman.answers.why_jobs import JobWaits, JobWaitsNot
from lodesman.answers.why_pilots import PilotWhy
from lodesman.answers.why_queues import QueueExplained
from lodesman.api.auth import vo_of
from lodesman.api.dispatch import Request, serves
from lodesman.api.read_side import ReadSide
from lodesman.background.candidates import OwnQueue, own_queues
from lodesman.background.explain import Explainer
from lodesman.background.origins import find_node
from lodesman.errors import InvalidRequest, NotFound
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId
from lodesman.store.read.why import pilot_facts, pilots_of_queue
from lodesman.why.pilot import PilotNow, explain_ended
from lodesman.why.queue import explain_queue


def _explainer(side: ReadSide) -> Explainer:
    return Explainer(side.db, side.policy, side.fresh(), side.clock())


@serves(calls.JOB_WHY)
async def job_why(side: ReadSide, request: Request[JobInQueue, Nothing]) -> JobWaits | JobWaitsNot:
    """Why a job waits; of one `queue`, SITE/CE/QUEUE, all that it has against the job."""
    job, path = side.job(request.query.job, request.who), request.query.queue
    queue = _named_queue(side.policy, path, "queue") if path else None
    return _explainer(side).job(job, queue)


@serves(calls.PILOT_WHY)
async def pilot_why(side: ReadSide, request: Request[PilotAt, Nothing]) -> PilotWhy:
    """Why a pilot, by number or stamp, got nothing."""
    facts = pilot_facts(side.db, request.query.pilot)
    if facts.ended_at is None:
        found = await side.ask_hot(calls.PILOT_NOW, PilotLoad(facts.row.id, facts.promised))
        now = msgspec.json.decode(found, type=PilotNow)
        if not now.joined and facts.row.state is PilotState.RUNNING:
            facts = pilot_facts(side.db, str(facts.row.id))  # it ended in between
        if facts.ended_at is None:
            return _explainer(side).pilot(facts, now)
    return explain_ended(facts, side.clock())


@serves(calls.QUEUE_WHY)
async def queue_why(side: ReadSide, request: Request[NodeQuery, Nothing]) -> QueueExplained:
    """Why no pilots are sent to a queue, named by `path` or by `site`, `ce` and `queue`."""
    asked = request.query
    vo = vo_of(asked.vo, request.who, usual=request.who.vo, known=side.policy.config.vos)
    place, explainer = _place(side, asked), _explainer(side)
    offer, gate = explainer.offer(place, vo), None
    if offer is not None and side.director is not None:
        queue_id, mask = QueueId(*place), side.keeper.mask(side.db)
        own = own_queues((state, queue_id, at) for state, at in pilots_of_queue(side.db, place))
        mine = own.get(queue_id, OwnQueue())
        # A batch system may take its time.
        gate = await asyncio.to_thread(side.director.gate, vo, offer, mine, mask=mask, now=explainer.now)
    facts = explainer.queue_facts(place, vo, gate)
    if facts.configured is None and not facts.live and not facts.sent:
        raise NotFound(f"There is no queue {'/'.join(place)[:200]}.", hint="See: lode queue ls.")
    return explain_queue(facts)


def _place(side: ReadSide, asked: NodeQuery) -> QueueId:
    """Raises InvalidRequest, NotFound."""
    parts = (asked.site, asked.ce, asked.queue)
    if all(parts):
        return QueueId(*parts)
    if any(parts) or not asked.path:
        raise InvalidRequest("Name the queue: site, ce and queue; or path, SITE/CE/QUEUE.", parameter="path")
    return _named_queue(side.policy, asked.path, "path")


def _named_queue(policy: Policy, path: str, parameter: str) -> QueueId:
    """The queue of a text SITE/CE/QUEUE, be it configured or not. Raises InvalidRequest, NotFound."""
    if path.count("/") < 2:
        raise InvalidRequest("Name the queue: SITE/CE/QUEUE.", parameter=parameter)
    try:
        node = find_node(policy.config.tree, path)
    except NotFound:
        # It may be gone from the configuration, and pilots still be there.
        return QueueId(*path.split("/", 2))
    if not node.queue:
        raise InvalidRequest(f"{path[:200]} is a {node.kind}, not a queue.", parameter=parameter)
    return QueueId(*node)
