"""Descriptions of jobs, read back in any of the three languages, in the reading process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lodesman.answers.vocabulary import FORMS, Form
from lodesman.api.answers import answer
from lodesman.api.auth import need_user
from lodesman.background.described import describe_job
from lodesman.errors import InvalidRequest
from lodesman.jobs import write_description

if TYPE_CHECKING:
    from lodesman.api.read_side import ReadSide


class DescriptionCalls:
    """One route. Who may see a job may read its description."""

    def __init__(self, side: ReadSide) -> None:
        self._side = side

    @property
    def routes(self) -> list[Route]:
        """The routes of the application."""
        return [Route("/v1/jobs/{job:id}/description", self.description)]

    async def description(self, request: Request) -> Response:
        """GET /v1/jobs/{job}/description: its text in the language it was given in, or in `form`."""
        who = need_user(self._side.who(request), "jobs:read")
        form = request.query_params.get("form", "")
        if form and form not in FORMS:
            raise InvalidRequest(f"form must be one of {', '.join(FORMS)}.", parameter="form")
        job = self._side.job(request, who)
        found = describe_job(self._side.db, self._side.policy, job)
        form = form or found.form
        # That of an array may list a value for each of a million members.
        text = await asyncio.to_thread(write_description, found.record, cast("Form", form))
        told = {"id": job["id"], "form": form, "text": text, "jobs": found.count, "rebuilt": found.rebuilt}
        return answer(told)
