"""Files of pilots that people start themselves. The background process has the pilots' program."""

from __future__ import annotations

from lodesman.base.errors import Conflict, InvalidRequest, NotFound
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.http.auth import vo_of
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import origin_of
from lodesman.server.reads.pilot_files import check_room, new_pilots, notices_of, text_of
from lodesman.server.reads.sites import exact_node, find_node
from lodesman.server.store.read.pilots import pilot_by_stamp
from lodesman.wire import calls, inner_calls
from lodesman.wire.accounts import AuditNote
from lodesman.wire.call import Nothing
from lodesman.wire.nodes import utc
from lodesman.wire.pilots import MadePilot, PilotFiles, PilotFilesBody


@serves(calls.PILOT_FILES)
async def _pilot_files(side: ReadSide, request: Request[Nothing, PilotFilesBody]) -> PilotFiles:
    """Raises NotFound for what is no queue of the VO, InvalidRequest, Conflict where it is closed or full."""
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
    """What the body names. Raises NotFound, InvalidRequest."""
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
