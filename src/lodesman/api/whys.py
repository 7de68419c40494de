"""`why` of pilots and of CE queues, in the reading process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lodesman.answers.vocabulary import PilotState
from lodesman.api.answers import answer
from lodesman.api.auth import need_user, vo_of
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


class WhyCalls:
    """One method per route."""

    def __init__(self, side: ReadSide) -> None:
        self._side = side

    @property
    def routes(self) -> list[Route]:
        """The routes of the application."""
        return [Route("/v1/pilots/{pilot}/why", self.pilot), Route("/v1/queues/why", self.queue)]

    async def pilot(self, request: Request) -> Response:
        """GET /v1/pilots/{pilot}/why: why a pilot, by number or stamp, got nothing."""
        side = self._side
        need_user(side.who(request), "pilots:read")
        facts = read_pilot(side.db, request.path_params["pilot"])
        now = None if facts.ended else await self._ask(facts)
        if now is not None and not now.joined and facts.row.state is PilotState.RUNNING:
            facts = read_pilot(side.db, str(facts.row.id))  # it ended in between
            now = None if facts.ended else now
        if now is None:
            return answer(explain_ended(facts, side.clock()))
        picture = side.look()
        case = PilotCase(
            facts=facts,
            now=now,
            survey=picture.survey(now.request),
            surveyed_at=picture.at,
            policy=side.policy,
        )
        return answer(explain_pilot(case))

    async def _ask(self, facts: PilotFacts) -> PilotNow:
        told = await self._side.ask_hot("pilot", {"pilot": facts.row.id, "used": facts.used})
        return msgspec.convert(told, PilotNow)

    async def queue(self, request: Request) -> Response:
        """GET /v1/queues/why: why no pilots are sent to a queue, named by `path` or by `site`, `ce` and `queue`."""
        side = self._side
        who = need_user(side.who(request), "pilots:read")
        asked = request.query_params
        vo = vo_of(request, who, known=side.policy.config.vos)
        place = self._place(asked)
        now = side.clock()
        offer = find_offer(side.policy, place, vo)
        gate: Gate | None = None
        if offer is not None and side.gates is not None:
            # A batch system may take its time.
            own, mask = self._own(place), side.picture.mask(side.db)
            gate = await asyncio.to_thread(side.gates.look, vo, offer, own=own, mask=mask, now=now)
        case = look_at_queue(side.db, side.policy, place, vo=vo, picture=side.look(), gate=gate, now=now)
        if not case.configured and not case.own and not case.lately:
            raise NotFound(f"There is no queue {'/'.join(place)[:200]}.", hint="See: lode queue ls.")
        return answer(explain_queue(case))

    def _place(self, asked: Mapping[str, str]) -> QueueId:
        """Raises InvalidRequest, NotFound."""
        parts = [asked.get(name, "") for name in ("site", "ce", "queue")]
        if all(parts):
            return QueueId(*parts)
        path = asked.get("path", "")
        if any(parts) or not path:
            raise InvalidRequest(
                "Name the queue: site, ce and queue; or path, SITE/CE/QUEUE.", parameter="path"
            )
        return named_queue(self._side.policy, path, "path")

    def _own(self, place: QueueId) -> OwnQueue:
        rows = self._side.db.execute(OWN, place)
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
