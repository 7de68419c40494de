"""The reading process's application: lists, states, explanations and sandboxes. It changes nothing but files."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from operator import attrgetter
from typing import Any, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from lodesman.base.errors import NotFound
from lodesman.decide.resources import NodePath
from lodesman.languages.jobs import write_description
from lodesman.server.http import explain, files, job_lists, sites, users
from lodesman.server.http import jobs as job_calls
from lodesman.server.http import pilots as pilot_calls
from lodesman.server.http.auth import authenticate, own_vo, reach_of, sees_all, vo_administered, vo_of
from lodesman.server.http.dispatch import Dispatcher, Request, pattern_of, serves
from lodesman.server.http.job_lists import numbers, words
from lodesman.server.http.metrics import database_metrics, render_metrics
from lodesman.server.http.openapi import described, document
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import (
    METRICS_TYPE,
    Receive,
    Response,
    Scope,
    Send,
    error_answer,
    page,
    page_after,
    send_answer,
)
from lodesman.server.loops.hosts import list_hosts
from lodesman.server.reads.descriptions import describe_job, eligible_sites, hide_environment
from lodesman.server.reads.sites import exact_node, find_node, list_queues, list_sites, show_node
from lodesman.server.store.accounts import list_tokens, list_users, principal_of
from lodesman.server.store.audit import audit_entries
from lodesman.server.store.director import last_iteration
from lodesman.server.store.read.jobs import attempts_of_job, events_of_job
from lodesman.server.store.read.pilots import jobs_of_pilots, list_pilots
from lodesman.server.store.read.why import node_of_pilot, pilot_facts, waiting_by_reason
from lodesman.server.store.sandboxes import usage_of
from lodesman.server.store.submit_pools import list_pools, pool_by_prefix
from lodesman.server.store.task_queues import list_task_queues, with_groups_and_classes
from lodesman.server.writer.job_classes import unknown_classes
from lodesman.wire import (
    accounts,
    calls,
    director,
    hosts,
    inner_calls,
    jobs,
    nodes,
    pilots,
    server,
    task_queues,
)
from lodesman.wire import requests as asks
from lodesman.wire.accounts import Audit, AuditQuery
from lodesman.wire.call import Call, Nothing
from lodesman.wire.requests import MOST_ID
from lodesman.wire.vocabulary import MainReason


@serves(calls.JOB)
async def _job(side: ReadSide, request: Request[asks.JobAt, Nothing]) -> jobs.JobInFull:
    db, stored = side.db, side.job(request.query.job, request.who, for_vo_admins=True)
    (job,) = with_groups_and_classes(db, [stored])
    return jobs.JobInFull(
        **asdict(job), sites=eligible_sites(db, side.policy, job),
        attempts=attempts_of_job(db, job), events=events_of_job(db, job),
    )  # fmt: skip


@serves(calls.JOB_DESCRIPTION)
async def _job_description(side: ReadSide, request: Request[asks.JobInForm, Nothing]) -> jobs.JobDescription:
    row = side.job(request.query.job, request.who)
    record, description = describe_job(side.db, side.policy, row)
    if side.only_reads(row, request.who):
        record, description = hide_environment(record, description)
    form = request.query.form or description.form
    # That of an array may list a value for each of a million members.
    text = await asyncio.to_thread(write_description, record, form)
    return replace(description, form=form, text=text)


@serves(calls.PILOTS)
async def _pilots(side: ReadSide, request: Request[asks.PilotsQuery, Nothing]) -> pilots.Pilots:
    query, vo = request.query, own_vo(request.who)
    (before,) = numbers(query.after, 1) or (MOST_ID,)
    rows = list_pilots(side.db, alive_only=not query.all, limit=query.limit + 1, vo=vo, before=before)
    some, more = page(rows, query.limit, attrgetter("id"))
    return pilots.Pilots(some, **more)


@serves(calls.PILOT)
async def _pilot(side: ReadSide, request: Request[asks.PilotAt, Nothing]) -> pilots.PilotInFull:
    pilot = pilot_facts(side.db, request.query.pilot, own_vo(request.who))
    row = pilot.row
    facts = {name: getattr(row, name) for name in pilots.Pilot.__struct_fields__}
    return pilots.PilotInFull(
        **facts, node_host=pilot.host.host if pilot.host else "", jobs=jobs_of_pilots(side.db, [row.id]).get(row.id, []),
        drain_reason=pilot.drain_reason, node=node_of_pilot(side.db, row.id),
    )  # fmt: skip


@serves(calls.TASK_QUEUES)
async def _task_queues(
    side: ReadSide, request: Request[asks.TaskQueuesQuery, Nothing]
) -> task_queues.TaskQueueList:
    query, vo = request.query, own_vo(request.who)
    words("reason", query.reason, MainReason)
    after = numbers(query.after, 2)
    rows = list_task_queues(side.db, limit=query.limit + 1, reason=query.reason, vo=vo, after=after)
    some, more = page(rows, query.limit, lambda row: f"{row.waiting + row.held}.{row.id}")
    return task_queues.TaskQueueList(some, **more)


@serves(calls.WAITING_REASONS)
async def _waiting_reasons(side: ReadSide, request: Request[Nothing, Nothing]) -> task_queues.WaitingReasons:
    return waiting_by_reason(side.db, own_vo(request.who))


@serves(calls.POOLS)
async def _pools(side: ReadSide, request: Request[asks.PoolsQuery, Nothing]) -> task_queues.Pools:
    """Those that most jobs need first."""
    vo = vo_of(request.query.vo, request.who, usual=own_vo(request.who))
    pools = list_pools(side.db, vo)
    some, more = page_after(pools.pools, request.query, attrgetter("id"))
    return replace(pools, pools=some, **more)


@serves(calls.POOL)
async def _pool(side: ReadSide, request: Request[asks.PoolAt, Nothing]) -> task_queues.PoolInFull:
    vo = vo_of(request.query.vo, request.who, usual=own_vo(request.who))
    return pool_by_prefix(side.db, vo, request.query.pool)


@serves(calls.SITES)
async def _sites(side: ReadSide, request: Request[asks.AllQuery, Nothing]) -> nodes.Sites:
    """Of users those that admit their VO."""
    tree, vo = side.config(request.who).tree, own_vo(request.who)
    now = side.clock()
    closings = list(side.keeper.mask(side.db).known(now))
    if vo:
        closings = [closing for closing in closings if tree.find(closing.node) is not None]
    rows = list_sites(side.db, tree, closings, vo=vo, limits=side.policy.config.limits, now=now)
    some, more = page_after(rows, request.query, attrgetter("site"))
    return nodes.Sites(some, **nodes.by_time(closings, now), **more)


@serves(calls.HOSTS)
async def _hosts(side: ReadSide, request: Request[asks.AllQuery, Nothing]) -> hosts.Hosts:
    """Of users those with pilots of their VO."""
    query, vo = request.query, own_vo(request.who)
    rows = list_hosts(side.db, side.clock(), vo=vo)
    some, more = page_after(rows, query, _host_path)
    return hosts.Hosts(some, **more)


def _host_path(row: hosts.HostRow) -> str:
    return f"{row.site}\n{row.host}"


@serves(calls.QUEUES)
async def _queues(side: ReadSide, request: Request[asks.QueuesQuery, Nothing]) -> nodes.Queues:
    vo = vo_of(request.query.vo, request.who, usual=request.who.vo, known=side.policy.config.vos)
    mask, now = side.keeper.mask(side.db), side.clock()
    rows = list_queues(
        side.db, side.policy, vo, closed_by=lambda place: mask.closings_shutting_out(place, now, 0), now=now,
        pilots_of=own_vo(request.who), origin=request.query.origin and sees_all(request.who),
    )  # fmt: skip
    query = request.query
    some, more = page_after(rows, query, _path)
    return nodes.Queues(some, **more)


def _path(row: nodes.UsableQueue) -> str:
    return f"{row.site}\n{row.ce}\n{row.queue}"  # names may have slashes


@serves(calls.RESOURCES)
async def _resource(side: ReadSide, request: Request[asks.NodeQuery, Nothing]) -> nodes.ResourceNode:
    query, config = request.query, side.config(request.who)
    named = NodePath(query.site, query.ce, query.queue)
    node = find_node(config.tree, query.path) if query.path else exact_node(config.tree, named)
    vo = vo_of(query.vo, request.who, usual=request.who.vo, known=side.policy.config.vos)
    now = side.clock()
    concerned = (closing for closing in side.keeper.mask(side.db).known(now) if closing.concerns(node))
    closings = [closing for closing in concerned if config.tree.find(closing.node) is not None]
    return replace(show_node(config, node, vo), closings=closings or UNSET)


@serves(calls.CONFIGURATION)
async def _configuration(side: ReadSide, request: Request[Nothing, Nothing]) -> server.Configuration:
    """To administrators also its files, and what is wrong in them."""
    state = side.configuration()
    if not sees_all(request.who):
        state = replace(state, files=(), faults=(), notices=(), at_next_start=())
    else:
        unknown = unknown_classes(side.policy.config.tree, side.classes(side.db))
        state = replace(state, notices=(*state.notices, *(fault.as_dict() for fault in unknown)))
    return state.in_full(side.clock())


@serves(calls.DIRECTOR)
async def _last_iteration(
    side: ReadSide, request: Request[Nothing, Nothing]
) -> director.DirectorAnswer | Response:
    vo = own_vo(request.who)
    queues = {str(offer.queue) for offer in side.policy.vo_config(vo).offers} if vo else ()
    number, at, plan = await side.costly.run(partial(last_iteration, vo=vo, queues=queues))
    body = msgspec.json.encode({"iteration": number, "at": at, "plan": plan})
    return Response(body, media_type="application/json")


@serves(calls.TOKENS)
async def _tokens(side: ReadSide, request: Request[asks.AllQuery, Nothing]) -> accounts.Tokens:
    who = request.who
    all_in_reach = sees_all(who) or vo_administered(who)
    rows = list_tokens(side.db, "" if all_in_reach else who.name, reach_of(who))
    some, more = page_after(rows, request.query, attrgetter("hash"))
    return accounts.Tokens(some, **more)


@serves(calls.USERS)
async def _users(side: ReadSide, request: Request[asks.AllQuery, Nothing]) -> accounts.Users:
    rows = list_users(side.db, vo_administered(request.who))
    some, more = page_after(rows, request.query, attrgetter("name"))
    return accounts.Users(some, **more)


@serves(calls.AUDIT)
async def _audit(side: ReadSide, request: Request[AuditQuery, Nothing]) -> Audit:
    query = request.query
    (before,) = numbers(query.after, 1) or (MOST_ID,)
    action, most = query.action or "", query.limit + 1
    rows = audit_entries(side.db, before=before, since=query.since, action=action, by=query.by, limit=most)
    some, more = page(rows, query.limit, attrgetter("id"))
    return Audit(some, **more)


@serves(calls.ME)
async def _me(side: ReadSide, request: Request[Nothing, Nothing]) -> accounts.Me:
    who = request.who
    used = usage_of(side.db, who.name)
    inputs = accounts.Inputs(used.files, used.bytes, side.quota_bytes or None, used.outputs)
    return accounts.Me(
        who.name,
        cast("Any", who.kind),
        who.vo,
        list(who.groups),
        who.admin,
        sorted(who.scopes),
        inputs,
        who.vo_admin,
        who.expires_at,
    )


@serves(calls.OPENAPI)
async def _openapi(_side: ReadSide, _request: Request[Nothing, Nothing]) -> dict[str, Any]:
    return document()


@serves(calls.METRICS)
async def _metrics(side: ReadSide, request: Request[Nothing, Nothing]) -> Response:
    """Of all VOs for administrators, whatever their token is for; of their VO for others."""
    vo = "" if request.who.admin else request.who.vo
    tree = side.config(request.who).tree if vo else side.policy.config.tree
    queues = frozenset(tree.queue_ids())
    read = partial(database_metrics, vo=vo, sites={queue.site for queue in queues})
    database = await side.costly.get(("metrics", vo), read)
    hot = {} if vo else asdict(await side.ask_hot(inner_calls.HOT_METRICS, Nothing()))
    upkeep = side.upkeep().of_queues(queues) if vo else side.upkeep()
    mask, now = side.keeper.mask(side.db), side.clock()
    closed = sum(1 for queue in queues if mask.closings_of(queue, now))
    text = render_metrics(database, hot, upkeep, closed_queues=closed)
    return Response(text, media_type=METRICS_TYPE.decode())


class ReadApp(Dispatcher[ReadSide]):
    """The ASGI application of the reading process."""

    def __init__(self, side: ReadSide) -> None:
        here = sys.modules[__name__]
        modules = (here, explain, files, job_calls, job_lists, pilot_calls, sites, users)
        super().__init__("reading", side, modules)

    def authenticate(self, scope: Scope, _call: Call[Any, Any, Any]) -> accounts.Principal:
        """By the tokens in the database."""
        return authenticate(scope, partial(principal_of, self.state.db), self.state.clock())

    async def otherwise(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """There is no such path, or not with this method."""
        method, path = scope["method"], scope["path"]
        methods = sorted({call.method for call in described() if pattern_of(call).fullmatch(path)})
        before, version, _ = path.partition("/v1/")
        too_long = f"The server's address ends before {before[:80]}." if before and version else ""
        status, headers, body = error_answer(
            NotFound(f"No such endpoint: {method} {path[:200]}.", hint=too_long or "See /v1/openapi.json.")
        )
        if methods:
            status, headers = 405, [*headers, (b"allow", ", ".join(methods).encode())]
        await send_answer(send, status, headers, body)
