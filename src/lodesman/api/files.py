"""Sandboxes in the reading process: input files of users, outputs of attempts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from lodesman.api.answers import answer
from lodesman.api.auth import need_pilot, need_user
from lodesman.commands import sandboxes
from lodesman.errors import InvalidRequest, NotFound, TooLarge

if TYPE_CHECKING:
    from lodesman.api.read_side import ReadSide

SHA = re.compile(r"[0-9a-f]{64}")


class FileCalls:
    """One method per route."""

    def __init__(self, side: ReadSide) -> None:
        self.side = side

    @property
    def routes(self) -> list[Route]:
        """The routes of the application."""
        return [
            Route("/v1/jobs/{job:id}/output", self.output),
            Route("/v1/jobs/{job:id}/attempts/{attempt:id}/output", self.put_output, methods=["PUT"]),
            Route("/v1/sandboxes", self.put_input, methods=["POST"]),
            Route("/v1/sandboxes/{digest}", self.has_input),
        ]

    async def output(self, request: Request) -> Response:
        """GET /v1/jobs/{job}/output: the output sandbox of the last attempt, a tar.gz."""
        who = need_user(self.side.who(request), "jobs:read")
        job = self.side.job(request, who)
        path = self.side.shelf.output_path(job["id"], job["attempt"])
        if not job["output_sha256"] or not path.exists():
            raise NotFound(f"Job {job['id']} has no output: it is {job['state']}.", job=job["id"])
        return FileResponse(path, media_type="application/gzip", headers={"x-sha256": job["output_sha256"]})

    async def put_output(self, request: Request) -> Response:
        """PUT /v1/jobs/{job}/attempts/{attempt}/output."""
        pilot = need_pilot(self.side.who(request))
        job_id, attempt = request.path_params["job"], request.path_params["attempt"]
        sandboxes.check_attempt(self.side.db, pilot, job_id, attempt)
        sha = _sha(request)
        path = self.side.shelf.output_path(job_id, attempt)
        size = await self.side.shelf.store(_chunks(request), path, sha)
        return answer({"sha256": sha, "size": size})

    async def put_input(self, request: Request) -> Response:
        """POST /v1/sandboxes."""
        who = need_user(self.side.who(request), "jobs:write")
        sha = _sha(request)
        size = self._known(who.name, sha)
        if size is None:
            size = await self._take(request, who.name, sha)
        return answer({"sha256": sha, "size": size})

    def _known(self, owner: str, sha: str) -> int | None:
        """The size of a file that is there, and will be for some time."""
        size = sandboxes.uploaded_size(self.side.db, owner, sha, to_stay=True)
        return size if size is not None and self.side.shelf.input_path(owner, sha).is_file() else None

    async def _take(self, request: Request, owner: str, sha: str) -> int:
        """Store a file and make it known. Raises TooLarge beyond the owner's quota, if possible before it comes."""
        side = self.side
        if sandboxes.uploaded_size(side.db, owner, sha) is None:
            declared = request.headers.get("content-length", "")
            coming = int(declared) if declared.isdigit() else 0
            sandboxes.need_room(sandboxes.used_by(side.db, owner), coming, side.quota_bytes)
        path = side.shelf.input_path(owner, sha)
        size = await side.shelf.store(_chunks(request), path, sha)
        try:
            await side.announce(owner, sha, size)
        except TooLarge:
            # Others came first. Nobody may have it who has not uploaded it.
            if sandboxes.uploaded_size(side.db, owner, sha) is None:
                path.unlink(missing_ok=True)
            raise
        return size

    async def has_input(self, request: Request) -> Response:
        """HEAD or GET /v1/sandboxes/{digest}: a user asks whether it is there, a pilot reads it."""
        who = self.side.who(request)
        sha = request.path_params["digest"]
        if not SHA.fullmatch(sha):
            raise NotFound("A sandbox is named by its SHA-256.")
        if who.kind != "pilot":
            size = self._known(who.name, sha)
            if size is None:
                raise NotFound("You have not uploaded such a file.")
            return answer({"sha256": sha, "size": size})
        owner = sandboxes.sandbox_owner(self.side.db, who.pilot_id, sha)
        path = self.side.shelf.input_path(owner, sha)
        if not path.is_file():
            raise NotFound("This input sandbox is not there.", sha256=sha)
        return FileResponse(path, media_type="application/octet-stream")


def _sha(request: Request) -> str:
    sha = request.headers.get("x-sha256", "")
    if not SHA.fullmatch(sha):
        raise InvalidRequest("X-Sha256 must be the file's SHA-256 in lower-case hexadecimal.")
    return sha


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise InvalidRequest("The upload broke off.") from None
