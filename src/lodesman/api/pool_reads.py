"""SubmitPools for people, in the reading process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lodesman.api.auth import need_user
from lodesman.errors import InvalidRequest, NotFound
from lodesman.services.accounts import Principal
from lodesman.services.submit_pools.pool_lists import list_pools, show_pool

if TYPE_CHECKING:
    from lodesman.api.read_side import ReadSide

USUAL, MOST = 100, 10_000


class PoolReads:
    """One method per route. Users see the pools of their VO, administrators those of any."""

    def __init__(self, side: ReadSide) -> None:
        self._side = side

    @property
    def routes(self) -> list[Route]:
        """The routes of the application."""
        return [Route("/v1/submit-pools", self.pools), Route("/v1/submit-pools/{pool}", self.pool)]

    async def pools(self, request: Request) -> Response:
        """GET /v1/submit-pools: those that most jobs need first."""
        who = need_user(self._side.who(request), "pilots:read")
        return _answer(list_pools(self._side.db, _vo(request, who), limit=_limit(request)))

    async def pool(self, request: Request) -> Response:
        """GET /v1/submit-pools/{pool}: one of them, known by the beginning of its id."""
        who = need_user(self._side.who(request), "pilots:read")
        return _answer(show_pool(self._side.db, _vo(request, who), request.path_params["pool"]))


def _vo(request: Request, who: Principal) -> str:
    """Whose pools are asked for; '' for all."""
    everything = who.kind == "service" or (who.admin and who.allows("admin"))
    vo = request.query_params.get("vo", "" if everything else who.vo)
    if vo != who.vo and not everything:
        raise NotFound(f"There is no VO {vo}.")
    return vo


def _limit(request: Request) -> int:
    text = request.query_params.get("limit") or str(USUAL)
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or int(text) > MOST:
        raise InvalidRequest(f"limit must be a whole number up to {MOST}.", parameter="limit")
    return int(text)


def _answer(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
