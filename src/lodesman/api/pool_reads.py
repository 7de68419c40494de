"""SubmitPools for people, in the reading process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lodesman.api.answers import answer, number
from lodesman.api.auth import need_user, own_vo, vo_of
from lodesman.background.pool_lists import list_pools, show_pool

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
        vo, limit = vo_of(request, who, default=own_vo(who)), number(request, "limit", USUAL, MOST)
        return answer(list_pools(self._side.db, vo, limit=limit))

    async def pool(self, request: Request) -> Response:
        """GET /v1/submit-pools/{pool}: one of them, known by the beginning of its id."""
        who = need_user(self._side.who(request), "pilots:read")
        vo = vo_of(request, who, default=own_vo(who))
        return answer(show_pool(self._side.db, vo, request.path_params["pool"]))
