"""The hot process's part of `GET /v1/pilots/{pilot}/why`: asked by the reading process, answered from memory."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from lodesman.api.core import Core
from lodesman.api.wire import REPORT_BODY, Receive, Scope, Send, decode, read_body, send_json
from lodesman.commands.sessions import PilotSession
from lodesman.errors import NotFound
from lodesman.services.why.pilot_now import LookAtPilot
from lodesman.store import pilots


class LookBody(Struct):
    """Which pilot, and what the jobs that it has were promised: (cores, memory_mb) of each."""

    pilot: int
    used: list[tuple[int, int]]


LOOK = msgspec.json.Decoder(LookBody)


async def look_at_pilot(core: Core, scope: Scope, receive: Receive, send: Send) -> None:
    """POST /v1/service/pilot: a `PilotNow`. Raises NotFound for a pilot that was never prepared."""
    body = decode(LOOK, await read_body(scope, receive, REPORT_BODY))
    session = core.sessions.get(body.pilot)
    silent = None if session is None else max(0.0, core.ticks() - session.last_seen)
    look = LookAtPilot(
        core.live,
        session or _coming(core, body.pilot),
        body.used,
        joined=session is not None,
        silent_seconds=silent,
    )
    await send_json(send, msgspec.json.encode(await core.command(look)))


def _coming(core: Core, number: int) -> PilotSession:
    """A pilot that has not joined, as far as it is known."""
    row = pilots.find_pilot(core.reader, number)
    if row is None:
        raise NotFound("There is no such pilot.", pilot=number)
    return PilotSession(row, msgspec.json.decode(row.node), now=core.ticks())
