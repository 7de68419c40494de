"""`why` of pilots and of CE queues, in the reading process."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response

from lodesman.answers import calls
from lodesman.answers.call import Nothing
from lodesman.answers.requests import NodeQuery, PilotAt
from lodesman.answers.service import PilotLoad
from lodesman.answers.vocabulary import PilotState
from lodesman.answers.why_pilots import PilotEnded, PilotLives
from lodesman.answers.why_queues import QueueExplained
from lodesman.api.auth import vo_of
from lodesman.api.dispatch import Request, said, serves
from lodesman.api.read_side import ReadSide
from lodesman.background.candidates import OwnQueue, own_queues
from lodesman.background.origins import find_node
from lodesman.commands.policy import Policy
from lodesman.director import QueueId as CEQueueId
from lodesman.errors import InvalidRequest, NotFound
from lodesman.resources import QueueId
from lodesman.services.why.explain_pilot import PilotCase, explain_ended, explain_pilot
from lodesman.services.why.explain_queue import explain_queue
from lodesman.services.why.pilot_now import PilotNow
from lodesman.services.why.pilot_verdict import PilotFacts, read_pilot
from lodesman.services.why.queue_case import find_offer, look_at_queue
from lodesman.services.why.queue_gate import Gate

OWN = """SELECT state, coalesce(submitted_at, created_at) FROM pilot
WHERE ended_at IS NULL AND site = ? AND ce = ? AND queue = ?"""


@serves(calls.PILOT_WHY)
async def pilot_why(side: ReadSide, request: Request[PilotAt, Nothing]) -> PilotLives | PilotEnded | Response:
    """Why a pilot, by number or stamp, got nothing."""
    facts = read_pilot(side.db, request.query.pilot)
    now = None if facts.ended else await _ask(side, facts)
    if now is not None and not now.joined and facts.row.state is PilotState.RUNNING:
        facts = read_pilot(side.db, str(facts.row.id))  # it ended in between
        now = None if facts.ended else now
    if now is None:
        return said(explain_ended(facts, side.clock()))
    picture = side.look()
    case = PilotCase(
        facts=facts,
        now=now,
        survey=picture.survey(now.request),
        surveyed_at=picture.at,
        policy=side.policy,
    )
    return said(explain_pilot(case))


async def _ask(side: ReadSide, facts: PilotFacts) -> PilotNow:
    found = await side.ask_hot(calls.PILOT_NOW, PilotLoad(facts.row.id, facts.used))
    return msgspec.json.decode(found, type=PilotNow)


@serves(calls.QUEUE_WHY)
async def queue_why(side: ReadSide, request: Request[NodeQuery, Nothing]) -> QueueExplained | Response:
    """Why no pilots are sent to a queue, named by `path` or by `site`, `ce` and `queue`."""
    asked = request.query
    vo = vo_of(asked.vo, request.who, usual=request.who.vo, known=side.policy.config.vos)
    place = _place(side, asked)
    now = side.clock()
    offer = find_offer(side.policy, place, vo)
    gate: Gate | None = None
    if offer is not None and side.gates is not None:
        # A batch system may take its time.
        own, mask = _own(side, place), side.picture.mask(side.db)
        gate = await asyncio.to_thread(side.gates.look, vo, offer, own=own, mask=mask, now=now)
    case = look_at_queue(side.db, side.policy, place, vo=vo, picture=side.look(), gate=gate, now=now)
    if not case.configured and not case.own and not case.lately:
        raise NotFound(f"There is no queue {'/'.join(place)[:200]}.", hint="See: lode queue ls.")
    return said(explain_queue(case))


def _place(side: ReadSide, asked: NodeQuery) -> QueueId:
    """Raises InvalidRequest, NotFound."""
    parts = (asked.site, asked.ce, asked.queue)
    if all(parts):
        return QueueId(*parts)
    if any(parts) or not asked.path:
        raise InvalidRequest("Name the queue: site, ce and queue; or path, SITE/CE/QUEUE.", parameter="path")
    return named_queue(side.policy, asked.path, "path")


def _own(side: ReadSide, place: QueueId) -> OwnQueue:
    rows = side.db.execute(OWN, place)
    found = own_queues((state, CEQueueId(*place), at) for state, at in rows)
    return found.get(CEQueueId(*place), OwnQueue())


def named_queue(policy: Policy, path: str, parameter: str) -> QueueId:
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
