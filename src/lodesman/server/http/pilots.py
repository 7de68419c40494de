"""What pilots ask, but for claims; and the files of pilots that people start themselves."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from lodesman.base.errors import Conflict, Forbidden, InvalidRequest, NotFound, TooLarge, Unauthorized
from lodesman.decide.resources import NodePath
from lodesman.server.http.auth import own_vo, vo_of
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import origin_of
from lodesman.server.live.core import Core
from lodesman.server.live.pilots import follow_reports, let_join, let_leave, take_heartbeat
from lodesman.server.reads.pilot_files import check_room, new_pilots, notices_of, text_of
from lodesman.server.reads.sites import exact_node, find_node
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import pilot_by_id, pilot_by_stamp
from lodesman.server.store.submit_pools import pools_of_vo
from lodesman.server.writer.accounts import JOINING
from lodesman.server.writer.pilots import (
    drain_pilots,
)
from lodesman.wire import calls, inner_calls, pilots
from lodesman.wire import requests as asks
from lodesman.wire.accounts import AuditNote, Principal
from lodesman.wire.call import Nothing
from lodesman.wire.nodes import QueueId, utc
from lodesman.wire.pilots import MadePilot, PilotFiles, PilotFilesBody
from lodesman.wire.task_queues import PoolsOfQueues, ServedQueue

if TYPE_CHECKING:
    from lodesman.server.http.read_side import ReadSide

# Of the description of a node.
_NODE_BYTES, _NODE_DEPTH = 16 << 10, 8
# Identifiers in one answer; the pilots of one submission go to few queues.
_MOST_POOLS = 200_000


@serves(calls.JOIN)
async def _join(core: Core, request: Request[Nothing, asks.JoinBody]) -> pilots.PilotJoined:
    return await let_join(core, request.body, _small(request.body.node), origin_of(request.scope))


def _small(node: dict[str, Any]) -> dict[str, Any]:
    """Raises TooLarge for more than a node has to say."""
    left: list[Any] = [node]
    for _ in range(_NODE_DEPTH):
        parts = (part.values() if isinstance(part, dict) else part for part in left)
        left = [below for part in parts for below in part if isinstance(below, (dict, list))]
    size = len(msgspec.json.encode(node)) if not left else 0
    if left or size > _NODE_BYTES:
        raise TooLarge(f"A node is described in {_NODE_BYTES} bytes at most, {_NODE_DEPTH} levels deep.")
    return node


@serves(calls.HEARTBEAT)
async def _heartbeat(core: Core, request: Request[Nothing, asks.HeartbeatBody]) -> pilots.HeartbeatAnswer:
    return await take_heartbeat(core, core.sessions.hear(request.who.pilot_id), request.body.jobs)


@serves(calls.REPORT)
async def _take_reports(core: Core, request: Request[Nothing, asks.ReportsBody]) -> pilots.ReportsAnswer:
    return await follow_reports(core, request.who.pilot_id, request.body.reports)


@serves(calls.LEAVE)
async def _leave(core: Core, request: Request[Nothing, asks.LeaveBody]) -> Nothing:
    await let_leave(core, request.who.pilot_id, request.body.reason, request.body.message)
    return Nothing()


@serves(calls.DRAIN)
async def _drain(core: Core, request: Request[Nothing, asks.DrainBody]) -> pilots.PilotsDrained:
    numbers = request.body.pilots
    core.sessions.drain(numbers)
    command = Change(drain_pilots, core.live, numbers)
    subject = ", ".join(map(str, numbers))
    return pilots.PilotsDrained(await core.commands.run(request.audited(command, "pilots-drained", subject)))


@serves(calls.SERVED_POOLS)
async def _served_pools(core: Core, request: Request[Nothing, asks.QueuesBody]) -> PoolsOfQueues:
    """GetSubmitPoolsForQueue of RFC #7: the pools of each queue, and the last pass."""
    queues = [QueueId(*names) for names in request.body.queues]
    _check_place(core, request.who, queues)
    vo = "" if request.who.kind in ("pilot", JOINING) else own_vo(request.who)
    return pools_of_queues(core, queues, mine=pools_of_vo(core.reader, vo) if vo else None)


def pools_of_queues(
    core: Core, queues: Sequence[QueueId], *, mine: Container[str] | None = None
) -> PoolsOfQueues:
    """Of `mine` if given, and the last pass. Raises TooLarge."""
    last, rows, count = core.live.pools.last_pass, [], 0
    for queue in queues:
        served = core.live.pools.of_queue(queue).pools
        pools = served if mine is None else [pool for pool in served if pool in mine]
        count += len(pools)
        if count > _MOST_POOLS:
            raise TooLarge(
                f"These queues serve more than {_MOST_POOLS} SubmitPools.", hint="Ask for fewer at once."
            )
        rows.append(ServedQueue(*queue, list(pools)))
    return PoolsOfQueues(last.id, last.at, rows)


def _check_place(core: Core, who: Principal, queues: Sequence[QueueId]) -> None:
    """A pilot asks for where it may be, a user for queues of the VO. Raises Forbidden, NotFound."""
    if who.kind not in ("pilot", JOINING):
        vo = own_vo(who)
        config = core.policy.vo_config(vo) if vo else None
        shut = [place for place in queues if config is not None and config.offer(place) is None]
        if shut:
            raise NotFound(f"There is no queue {str(shut[0])[:200]}.", hint="See: lode queue ls.")
        return
    pilot = pilot_by_id(core.reader, who.pilot_id)
    if pilot is None:
        raise Unauthorized("There is no such pilot.")
    for place in queues:
        if not pilot.sent_to and not pilot.queue_id.covers(place):
            raise Forbidden(
                f"This pilot was sent to {'/'.join(pilot.queue_id)} and asks for {'/'.join(place)}."
            )


# --- files of pilots that people start ------------------------------------------------------------------------------------


@serves(calls.PILOT_FILES)
async def _pilot_files(side: ReadSide, request: Request[Nothing, PilotFilesBody]) -> PilotFiles:
    body, now = request.body, side.clock()
    vo = vo_of(body.vo, request.who, usual=request.who.vo, known=side.policy.config.vos)
    queue = _queue(side, body)
    offer = side.policy.vo_config(vo).offer(queue)
    if offer is None:
        raise NotFound(f"VO {vo} may not use {queue}.", hint="For another VO: --vo NAME.")
    most = check_room(side.db, side.policy, offer, body.count)
    closed = side.keeper.mask(side.db).reason(queue, now)
    if closed:
        raise Conflict(f"{queue} is {closed}.", hint="Open it first: lode site open")
    rows, files = new_pilots(offer, side.pilot_settings, body.count, body.hours * 3_600, most)
    words = f"{body.count} for VO {vo}, good until {utc(now + body.hours * 3_600)}"
    note = AuditNote("pilots-made", str(queue), request.who.name, origin_of(request.scope), detail=words)
    await side.ask_hot(inner_calls.PREPARE_PILOTS, rows)
    await side.ask_hot(inner_calls.NOTE, [note])
    stored = [pilot_by_stamp(side.db, row.stamp) for row in rows]
    return PilotFiles(
        *queue,
        vo=vo,
        pilots=[
            MadePilot(row.id, row.stamp, text_of(file))
            for row, file in zip(stored, files, strict=True)
            if row is not None
        ],
        expires_at=now + body.hours * 3_600,
        servers=list(side.pilot_settings.servers),
        notices=notices_of(side.pilot_settings),
        program=side.pilot_settings.program,
    )


def _queue(side: ReadSide, body: PilotFilesBody) -> QueueId:
    if not body.path and not (body.site and body.ce and body.queue):
        raise InvalidRequest("Name a queue: site, CE and queue; or path.", parameter="path")
    tree = side.policy.config.tree
    node = (
        find_node(tree, body.path)
        if body.path
        else exact_node(tree, NodePath(body.site, body.ce, body.queue))
    )
    if not node.queue:
        raise NotFound(f"{node} is no queue.", hint="Name it as SITE/CE/QUEUE; see: lode queue ls")
    return QueueId(*node)
