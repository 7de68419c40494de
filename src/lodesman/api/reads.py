"""The reading process's application: lists, states, explanations and sandboxes, on read connections.

It changes nothing but files: an uploaded sandbox is made known to the hot process by `announce`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lodesman.api.answers import answer, number
from lodesman.api.auth import may_touch, need_admin, need_user, own_vo, sees_all, vo_of
from lodesman.api.descriptions import DescriptionCalls
from lodesman.api.files import FileCalls
from lodesman.api.metrics import gather as gather_figures
from lodesman.api.metrics import render_metrics
from lodesman.api.openapi import document
from lodesman.api.plans import Plans
from lodesman.api.pool_reads import PoolReads
from lodesman.api.read_side import ReadSide
from lodesman.api.whys import WhyCalls, named_queue
from lodesman.api.wire import error_answer
from lodesman.background.described import eligible_sites
from lodesman.background.director_view import iteration_for
from lodesman.background.origins import exact_node, find_node, show_node
from lodesman.background.sites import list_queues, list_sites
from lodesman.background.standing import gather, standing
from lodesman.commands import sandboxes
from lodesman.commands.site_mask import as_row
from lodesman.errors import LodesmanError, NotFound, Unavailable
from lodesman.resources import NodePath
from lodesman.services.why.explain import explain_job
from lodesman.services.why.main_reasons import waiting_by_reason
from lodesman.store import views
from lodesman.store.job_lists import JobQuery, list_jobs

MOST = 10_000
log = logging.getLogger(__name__)
MOST_STATES = 20


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
    path = request.url.path
    before, version, _ = path.partition("/v1/")
    too_long = f"The server's address ends before {before[:80]}." if before and version else ""
    hint = too_long or "See /v1/openapi.json."
    found = await refused(request, NotFound(f"There is no call {request.method} {path[:200]}.", hint=hint))
    found.status_code = error.status_code
    found.headers.update(error.headers or {})
    return found


async def failed(request: Request, error: Exception) -> Response:
    """A bug costs one request."""
    log.error("a request failed", exc_info=error, extra={"path": request.url.path})
    return await refused(request, Unavailable("The server failed to answer this; its log says why."))


class Calls:
    """One method per route."""

    def __init__(self, side: ReadSide) -> None:
        self.side = side

    async def jobs(self, request: Request) -> Response:
        """GET /v1/jobs: jobs by id range, group, state and main reason; one's own, or with `all` all that one may see."""
        who = need_user(self.side.who(request), "jobs:read")
        asked = request.query_params
        everything = sees_all(who)
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
            reason=asked.get("reason", ""),
        )
        found = await self.side.snapshots.run(partial(list_jobs, query=query))
        return answer({"jobs": list(self.side.names.fill(found))})

    async def counts(self, request: Request) -> Response:
        """GET /v1/jobs/counts: jobs by owner, group and state; with `own` only one's own."""
        who = need_user(self.side.who(request), "jobs:read")
        may = may_touch(who, self.side.policy.sharing_groups())
        owner = who.name if request.query_params.get("own") == "true" else None
        vo = own_vo(who) if owner is None else ""
        look = partial(views.job_counts, owner=owner, vo=vo)
        counts = await self.side.snapshots.get(("counts", owner, vo), look)
        rows = [
            {"owner": owner, "group": group, "state": state, "jobs": n}
            for owner, group, state, n in counts
            if may(owner, group, who.vo)
        ]
        return answer({"counts": rows})

    async def job(self, request: Request) -> Response:
        """GET /v1/jobs/{job}: one job with its attempts and events."""
        who = need_user(self.side.who(request), "jobs:read")
        job = self.side.job(request, who)
        db = self.side.db
        attempts, events = views.job_attempts(db, job), views.job_events(db, job)
        return answer(
            {
                **job,
                "sites": eligible_sites(db, self.side.policy, job),
                "attempts": attempts,
                "events": events,
            }
        )

    async def why(self, request: Request) -> Response:
        """GET /v1/jobs/{job}/why; of one `queue`, SITE/CE/QUEUE, all that it has against the job."""
        who = need_user(self.side.who(request), "jobs:read")
        job = self.side.job(request, who)
        side, path = self.side, request.query_params.get("queue", "")
        queue = named_queue(side.policy, path, "queue") if path else None
        told = explain_job(side.db, side.policy, job, picture=side.look(), now=side.clock(), queue=queue)
        return answer(told)

    async def pilots(self, request: Request) -> Response:
        """GET /v1/pilots."""
        who = need_user(self.side.who(request), "pilots:read")
        alive, limit = request.query_params.get("all") != "true", number(request, "limit", 1_000, MOST)
        found = views.list_pilots(self.side.db, alive_only=alive, limit=limit, vo=own_vo(who))
        return answer({"pilots": found})

    async def task_queues(self, request: Request) -> Response:
        """GET /v1/task-queues."""
        who = need_user(self.side.who(request), "jobs:read")
        limit, reason = number(request, "limit", 1_000, MOST), request.query_params.get("reason", "")
        found = views.list_task_queues(self.side.db, limit=limit, reason=reason, vo=own_vo(who))
        return answer({"task_queues": found})

    async def reasons(self, request: Request) -> Response:
        """GET /v1/task-queues/reasons: why jobs wait, counted."""
        who = need_user(self.side.who(request), "jobs:read")
        return answer(waiting_by_reason(self.side.db, own_vo(who)))

    async def sites(self, request: Request) -> Response:
        """GET /v1/sites."""
        need_user(self.side.who(request), "pilots:read")
        side = self.side
        closings = list(side.picture.mask(side.db).active(side.clock()))
        sites = list_sites(side.db, side.policy, closings)
        return answer({"sites": sites, "closed": [as_row(one) for one in closings]})

    async def queues(self, request: Request) -> Response:
        """GET /v1/queues."""
        who = need_user(self.side.who(request), "pilots:read")
        vo = vo_of(request, who, known=self.side.policy.config.vos)
        origin = request.query_params.get("origin") == "true"
        mask, now = self.side.picture.mask(self.side.db), self.side.clock()
        found = list_queues(
            self.side.db, self.side.policy, vo, closed_by=lambda place: mask.of(place, now), origin=origin
        )
        return answer({"queues": found})

    async def resource(self, request: Request) -> Response:
        """GET /v1/resources: a site, CE or queue (by `path`, or by `site`, `ce` and `queue`) with all origins."""
        who = need_user(self.side.who(request), "pilots:read")
        asked, config = request.query_params, self.side.policy.config
        if "path" in asked:
            node = find_node(config.tree, asked["path"])
        else:
            names = (asked.get(name, "") for name in ("site", "ce", "queue"))
            node = exact_node(config.tree, NodePath(*names))
        return answer(show_node(config, node, vo_of(request, who, known=config.vos)))

    async def configuration(self, request: Request) -> Response:
        """GET /v1/configuration: the files in use, since when, and why a change of them was refused."""
        need_user(self.side.who(request), "pilots:read")
        return answer(self.side.configuration().in_full(self.side.clock()))

    async def standing(self, request: Request) -> Response:
        """GET /v1/standing: states, sites, shares received and deserved, times, failures."""
        who = need_user(self.side.who(request), "jobs:read")
        may = may_touch(who, self.side.policy.sharing_groups())
        vo = own_vo(who)
        facts = await self.side.snapshots.get(("standing", vo), partial(gather, vo=vo))
        return answer(standing(facts, self.side.policy, may))

    async def director(self, request: Request) -> Response:
        """GET /v1/director: the last iteration with its arithmetic."""
        who = need_user(self.side.who(request), "pilots:read")
        at, plan = await self.side.snapshots.run(partial(iteration_for, vo=own_vo(who)))
        return answer({"at": at, "plan": plan})

    async def tokens(self, request: Request) -> Response:
        """GET /v1/tokens: whose they are and when they end; never the tokens themselves."""
        need_admin(self.side.who(request))
        rows = self.side.db.execute(
            """SELECT lower(hex(t.hash)), t.kind, t.account, t.scopes, t.note, t.created_at, t.expires_at,
            lower(nullif(hex(t.parent), '')), p.account
            FROM token t LEFT JOIN token p ON p.hash = t.parent WHERE t.kind = 'user'"""
        )
        keys = ("hash", "kind", "account", "scopes", "note", "created_at", "expires_at", "made_with", "made_by")  # fmt: skip
        return answer({"tokens": [dict(zip(keys, row, strict=True)) for row in rows]})

    async def me(self, request: Request) -> Response:
        """GET /v1/me: who this token belongs to, and what their input files take."""
        who = self.side.who(request)
        used = sandboxes.used_by(self.side.db, who.name)
        return answer(
            {"name": who.name, "kind": who.kind, "vo": who.vo, "groups": who.groups, "admin": who.admin,
             "scopes": sorted(who.scopes),
             "inputs": {"files": used.files, "bytes": used.bytes, "limit": self.side.quota_bytes or None}}
        )  # fmt: skip

    async def openapi(self, _request: Request) -> Response:
        """GET /v1/openapi.json."""
        return answer(document())

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        need_user(self.side.who(request), "pilots:read")
        figures = await self.side.snapshots.get("metrics", gather_figures)
        hot = await self.side.snapshots.run(lambda _: self.side.hot_metrics())
        mask, queues = self.side.picture.mask(self.side.db), list(self.side.policy.config.tree.queue_ids())
        closed = mask.closed(queues, self.side.clock()).bit_count()
        text = render_metrics(figures, hot, self.side.upkeep(), closed_queues=closed)
        return Response(text, media_type="text/plain; version=0.0.4")


class _Id(Convertor[int]):
    """A number in a path that the database can hold."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """The inverse."""
        return str(value)


class ReadApp(Starlette):
    """Starlette raises a bug again that `failed` has logged and answered: here that ends nothing else."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        with suppress(Exception):
            await super().__call__(scope, receive, send)


def read_app(side: ReadSide) -> ReadApp:
    """The application; every route decides who may ask it."""
    register_url_convertor("id", _Id())
    calls = Calls(side)
    routes = [
        Route("/v1/jobs", calls.jobs),
        Route("/v1/jobs/counts", calls.counts),
        Route("/v1/jobs/{job:id}", calls.job),
        Route("/v1/jobs/{job:id}/why", calls.why),
        *DescriptionCalls(side).routes,
        *FileCalls(side).routes,
        Route("/v1/pilots", calls.pilots),
        Route("/v1/task-queues", calls.task_queues),
        Route("/v1/task-queues/reasons", calls.reasons),
        *WhyCalls(side).routes,
        *PoolReads(side).routes,
        Route("/v1/sites", calls.sites),
        Route("/v1/queues", calls.queues),
        Route("/v1/resources", calls.resource),
        Route("/v1/configuration", calls.configuration),
        Route("/v1/standing", calls.standing),
        Route("/v1/director", calls.director),
        Route("/v1/tokens", calls.tokens),
        Route("/v1/me", calls.me),
        Route("/v1/openapi.json", calls.openapi),
        Route("/metrics", calls.metrics),
        *Plans(side).routes(),
    ]
    app = ReadApp(
        routes=routes,
        exception_handlers={LodesmanError: refused, HTTPException: no_such_call, Exception: failed},
    )
    app.router.redirect_slashes = False
    return app
