"""The reading process's application: lists, states, explanations and sandboxes, on read connections.

It changes nothing but files: an uploaded sandbox is made known to the hot process by `announce`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import apsw
import msgspec
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from lodesman.api.auth import authenticate, may_touch, need_admin, need_pilot, need_user
from lodesman.api.metrics import render_metrics
from lodesman.api.openapi import document
from lodesman.api.wire import error_answer
from lodesman.errors import InvalidRequest, LodesmanError, NotFound, Unavailable
from lodesman.services import sandboxes
from lodesman.services.accounts import Principal, find_principal
from lodesman.services.director_log import last_iteration
from lodesman.services.explain import explain_job
from lodesman.services.names import MemberNames
from lodesman.services.policy import Policy
from lodesman.services.sites import list_queues, list_sites
from lodesman.services.standing import standing
from lodesman.store import views
from lodesman.store.job_lists import JobQuery, list_jobs

SHA = re.compile(r"[0-9a-f]{64}")
MOST = 10_000
MOST_ID = 1 << 53
BUGS = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, OSError, RuntimeError)
log = logging.getLogger(__name__)
MOST_STATES = 20


@dataclass(slots=True)
class ReadSide:
    """What the reading process has. `announce` tells the hot process of an upload."""

    db: apsw.Connection
    policy: Policy
    shelf: sandboxes.Shelf
    clock: Callable[[], float]
    announce: Callable[[str, str, int], Any]
    hot_metrics: Callable[[], dict[str, float]]
    names: MemberNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = MemberNames(self.db)

    def who(self, request: Request) -> Principal:
        """The principal of a request."""
        return authenticate(request.scope, lambda digest: find_principal(self.db, digest), self.clock())

    def job(self, request: Request, who: Principal) -> views.Row:
        """The job of the path, if the caller may see it."""
        job_id = request.path_params["job"]
        job = views.find_job(self.db, job_id)
        may = may_touch(who, self.policy.sharing_groups())
        if job is None or not may(job["owner"], job["group"], job["vo"]):
            raise NotFound(f"There is no job {job_id} that is yours.", job=job_id)
        return next(self.names.fill((job,)))


def answer(value: Any) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), media_type="application/json")


async def refused(_request: Request, error: Exception) -> Response:
    """Our errors in their one shape."""
    assert isinstance(error, LodesmanError)  # noqa: S101
    status, headers, body = error_answer(error)
    # How long a connection lives is between the client and the hot process.
    kept = {name.decode(): value.decode() for name, value in headers if name != b"connection"}
    return Response(body, status, kept)


async def no_such_call(request: Request, error: Exception) -> Response:
    """There is no such path, or not with this method."""
    assert isinstance(error, HTTPException)  # noqa: S101
    found = await refused(request, NotFound("There is no such call.", hint="See /v1/openapi.json."))
    found.status_code = error.status_code
    found.headers.update(error.headers or {})
    return found


async def failed(request: Request, error: Exception) -> Response:
    """A bug costs one request."""
    log.error("a request failed", exc_info=error, extra={"path": request.url.path})
    return await refused(request, Unavailable("The server failed to answer this; its log says why."))


def number(request: Request, name: str, default: int, most: int = MOST_ID) -> int:
    """A whole number of the query. Raises InvalidRequest."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > most:
        raise InvalidRequest(f"{name} must be a whole number up to {most}.", parameter=name)
    return int(text)


class Calls:
    """One method per route."""

    def __init__(self, side: ReadSide) -> None:
        self.side = side

    async def jobs(self, request: Request) -> Response:
        """GET /v1/jobs: jobs by id range, group and state; one's own, or with `all` all that one may see."""
        who = need_user(self.side.who(request), "jobs:read")
        asked = request.query_params
        everything = who.kind == "service" or (who.admin and who.allows("admin"))
        shared = self.side.policy.sharing_groups().intersection(who.groups)
        query = JobQuery(
            first=number(request, "first", 1),
            last=number(request, "last", 1 << 53),
            limit=number(request, "limit", 1_000, MOST),
            newest=asked.get("newest") == "true",
            owner=None if asked.get("all") == "true" and everything else who.name,
            shared=sorted(shared) if asked.get("all") == "true" else (),
            vo=who.vo,
            group=asked.get("group", ""),
            states=tuple(filter(None, asked.get("state", "").split(",")))[:MOST_STATES],
        )
        return answer({"jobs": list(self.side.names.fill(list_jobs(self.side.db, query)))})

    async def counts(self, request: Request) -> Response:
        """GET /v1/jobs/counts: jobs by owner, group and state."""
        who = need_user(self.side.who(request), "jobs:read")
        may = may_touch(who, self.side.policy.sharing_groups())
        rows = [
            {"owner": owner, "group": group, "state": state, "jobs": n}
            for owner, group, state, n in views.job_counts(self.side.db)
            if may(owner, group, who.vo)
        ]
        return answer({"counts": rows})

    async def job(self, request: Request) -> Response:
        """GET /v1/jobs/{job}: one job with its attempts and events."""
        who = need_user(self.side.who(request), "jobs:read")
        job = self.side.job(request, who)
        db = self.side.db
        return answer({**job, "attempts": views.job_attempts(db, job), "events": views.job_events(db, job)})

    async def why(self, request: Request) -> Response:
        """GET /v1/jobs/{job}/why."""
        who = need_user(self.side.who(request), "jobs:read")
        job = self.side.job(request, who)
        return answer(explain_job(self.side.db, self.side.policy, job, now=self.side.clock()))

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
        size = await self.side.shelf.store(
            _chunks(request), self.side.shelf.output_path(job_id, attempt), sha
        )
        return answer({"sha256": sha, "size": size})

    async def put_input(self, request: Request) -> Response:
        """POST /v1/sandboxes."""
        who = need_user(self.side.who(request), "jobs:write")
        sha = _sha(request)
        size = sandboxes.uploaded_size(self.side.db, who.name, sha)
        if size is None:
            size = await self.side.shelf.store(
                _chunks(request), self.side.shelf.input_path(who.name, sha), sha
            )
            await self.side.announce(who.name, sha, size)
        return answer({"sha256": sha, "size": size})

    async def has_input(self, request: Request) -> Response:
        """HEAD or GET /v1/sandboxes/{digest}: a user asks whether it is there, a pilot reads it."""
        who = self.side.who(request)
        sha = request.path_params["digest"]
        if who.kind != "pilot":
            size = sandboxes.uploaded_size(self.side.db, who.name, sha)
            if size is None:
                raise NotFound("You have not uploaded such a file.")
            return answer({"sha256": sha, "size": size})
        if not SHA.fullmatch(sha):
            raise NotFound("A sandbox is named by its SHA-256.")
        owner = sandboxes.sandbox_owner(self.side.db, who.pilot_id, sha)
        path = self.side.shelf.input_path(owner, sha)
        if not path.is_file():
            raise NotFound("This input sandbox is not there.", sha256=sha)
        return FileResponse(path, media_type="application/octet-stream")

    async def pilots(self, request: Request) -> Response:
        """GET /v1/pilots."""
        need_user(self.side.who(request), "pilots:read")
        alive = request.query_params.get("all") != "true"
        found = views.list_pilots(self.side.db, alive_only=alive, limit=number(request, "limit", 1_000, MOST))
        return answer({"pilots": found})

    async def task_queues(self, request: Request) -> Response:
        """GET /v1/task-queues."""
        need_user(self.side.who(request), "jobs:read")
        return answer(
            {"task_queues": views.list_task_queues(self.side.db, limit=number(request, "limit", 1_000, MOST))}
        )

    async def sites(self, request: Request) -> Response:
        """GET /v1/sites."""
        need_user(self.side.who(request), "pilots:read")
        return answer({"sites": list_sites(self.side.db, self.side.policy)})

    async def queues(self, request: Request) -> Response:
        """GET /v1/queues."""
        who = need_user(self.side.who(request), "pilots:read")
        vo = request.query_params.get("vo", who.vo)
        if vo not in (who.vo, *self.side.policy.config.vos):
            raise NotFound(f"There is no VO {vo}.")
        return answer({"queues": list_queues(self.side.db, self.side.policy, vo)})

    async def standing(self, request: Request) -> Response:
        """GET /v1/standing: states, sites, shares received and deserved, times, failures."""
        who = need_user(self.side.who(request), "jobs:read")
        may = may_touch(who, self.side.policy.sharing_groups())
        return answer(standing(self.side.db, self.side.policy, may))

    async def director(self, request: Request) -> Response:
        """GET /v1/director: the last iteration with its arithmetic."""
        need_user(self.side.who(request), "pilots:read")
        found = last_iteration(self.side.db)
        return answer({"at": found[0], "plan": found[1]} if found else {"at": None, "plan": None})

    async def tokens(self, request: Request) -> Response:
        """GET /v1/tokens: whose they are and when they end; never the tokens themselves."""
        need_admin(self.side.who(request))
        rows = self.side.db.execute(
            "SELECT lower(hex(hash)), kind, account, scopes, note, created_at, expires_at FROM token WHERE kind = 'user'"
        )
        keys = ("hash", "kind", "account", "scopes", "note", "created_at", "expires_at")
        return answer({"tokens": [dict(zip(keys, row, strict=True)) for row in rows]})

    async def me(self, request: Request) -> Response:
        """GET /v1/me: who this token belongs to."""
        who = self.side.who(request)
        return answer(
            {"name": who.name, "kind": who.kind, "vo": who.vo, "groups": who.groups, "admin": who.admin,
             "scopes": sorted(who.scopes)}
        )  # fmt: skip

    async def openapi(self, _request: Request) -> Response:
        """GET /v1/openapi.json."""
        return answer(document())

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        need_user(self.side.who(request), "pilots:read")
        return Response(
            render_metrics(self.side.db, self.side.hot_metrics()), media_type="text/plain; version=0.0.4"
        )


class _Id(Convertor[int]):
    """A number in a path that the database can hold."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """The inverse."""
        return str(value)


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


def read_app(side: ReadSide) -> Starlette:
    """The application; every route decides who may ask it."""
    register_url_convertor("id", _Id())
    calls = Calls(side)
    routes = [
        Route("/v1/jobs", calls.jobs),
        Route("/v1/jobs/counts", calls.counts),
        Route("/v1/jobs/{job:id}", calls.job),
        Route("/v1/jobs/{job:id}/why", calls.why),
        Route("/v1/jobs/{job:id}/output", calls.output),
        Route("/v1/jobs/{job:id}/attempts/{attempt:id}/output", calls.put_output, methods=["PUT"]),
        Route("/v1/sandboxes", calls.put_input, methods=["POST"]),
        Route("/v1/sandboxes/{digest}", calls.has_input),
        Route("/v1/pilots", calls.pilots),
        Route("/v1/task-queues", calls.task_queues),
        Route("/v1/sites", calls.sites),
        Route("/v1/queues", calls.queues),
        Route("/v1/standing", calls.standing),
        Route("/v1/director", calls.director),
        Route("/v1/tokens", calls.tokens),
        Route("/v1/me", calls.me),
        Route("/v1/openapi.json", calls.openapi),
        Route("/metrics", calls.metrics),
    ]
    faults = dict.fromkeys(BUGS, failed)
    app = Starlette(
        routes=routes, exception_handlers={LodesmanError: refused, HTTPException: no_such_call, **faults}
    )
    app.router.redirect_slashes = False
    return app
