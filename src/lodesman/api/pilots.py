"""The endpoints of pilots, on bare ASGI: join, heartbeat, report, leave. Claims are in `api.claims`."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from lodesman.answers.vocabulary import PilotState
from lodesman.api import bodies
from lodesman.api.core import Core
from lodesman.api.wire import (
    REPORT_BODY,
    SMALL_BODY,
    Receive,
    Scope,
    Send,
    decode,
    read_body,
    send_json,
)
from lodesman.commands.pilot_place import believed, presented
from lodesman.commands.pilots import EndPilot, Join, Settled, hash_token, joining_pilot
from lodesman.commands.report import Report, TakeReports
from lodesman.commands.sessions import PilotSession
from lodesman.commands.silence import Heard
from lodesman.errors import LodesmanError

HEARTBEAT = msgspec.json.Decoder(bodies.HeartbeatBody)
REPORTS = msgspec.json.Decoder(bodies.ReportsBody)
JOIN = msgspec.json.Decoder(bodies.JoinBody)
LEAVE = msgspec.json.Decoder(bodies.LeaveBody)

# Characters of output: of one payload, of all payloads of one pilot.
KEEP_TAIL = 65_536
KEEP_TAILS = 8 << 20
# What a pilot calls an attempt that it hands in.
COMPLETING = "completing"
GOOD_ENDS = frozenset({"idle", "drained", "sigterm"})


class PilotCalls:
    """What pilots ask; every word of theirs counts as a heartbeat."""

    def __init__(self, core: Core, *, idle_seconds: float, sandbox_mb: int) -> None:
        self.core = core
        self.idle_seconds = idle_seconds
        self.sandbox_mb = sandbox_mb

    async def join(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/pilots/join."""
        body = decode(JOIN, await read_body(scope, receive, SMALL_BODY))
        core = self.core
        settled = self._settle(body)
        node = self._described(body, settled)
        joined = await core.command(Join(core.live, body.join_token, body.nonce, node, settled))
        core.joined(joined.row, hash_token(joined.token), joined.node)
        answer = {
            "pilot": joined.row.id,
            "stamp": joined.row.stamp,
            "token": joined.token,
            "lease_s": core.lease_seconds,
            "heartbeat_s": core.heartbeat_seconds,
            "idle_s": self.idle_seconds,
            "sandbox_mb": self.sandbox_mb,
            "server_time": core.clock(),
            "place": {"site": joined.row.site, "ce": joined.row.ce, "queue": joined.row.queue},
            "pools_pass": core.live.last_pass.id,
        }
        await send_json(send, msgspec.json.encode(answer))

    def _settle(self, body: bodies.JoinBody) -> Settled | None:
        """The queue of a pilot that was sent to none and found out where it runs."""
        if body.place is None:
            return None
        row = joining_pilot(self.core.reader, body.join_token)
        told = (body.place.site, body.place.ce, body.place.queue)
        return None if row is None else believed(row, told, self.core.policy)

    def _described(self, body: bodies.JoinBody, settled: Settled | None) -> dict[str, Any]:
        """The node as it describes itself, with what became of the SubmitPools that the pilot presents."""
        if body.place is None:
            return body.node
        place = settled.place if settled else (body.place.site, body.place.ce, body.place.queue)
        served = self.core.live.pools.of_queue(place)
        return {**body.node, "submit_pools": presented(body.pools_pass, body.submit_pools, served)}

    async def heartbeat(self, scope: Scope, receive: Receive, send: Send, pilot_id: int) -> None:
        """POST /v1/pilots/heartbeat."""
        body = decode(HEARTBEAT, await read_body(scope, receive, REPORT_BODY))
        core = self.core
        session = core.session(pilot_id)
        completing = _hear(session, body.jobs)
        if completing != session.completing or pilot_id in core.live.silent:
            await self._take_in(session, body.jobs, completing)
        orders = core.live.kill_orders.get(pilot_id) or {}
        running = {(job.id, job.attempt) for job in body.jobs}
        kill = [
            {"id": j, "attempt": a, "reason": why}
            for (j, a), why in list(orders.items())
            if (j, a) in running
        ]
        answer = {"kill": kill, "drain": session.drain, "lease_s": core.lease_seconds}
        await send_json(send, msgspec.json.encode(answer))

    async def _take_in(
        self, session: PilotSession, jobs: list[bodies.RunningBody], completing: AbstractSet[tuple[int, int]]
    ) -> None:
        """Store what a word changes: a pilot speaks again, or hands in what ran. What fails is told by the next one."""
        core = self.core
        if completing - session.completing or session.id in core.live.silent:
            attempts = {(job.id, job.attempt): (job.id, job.attempt) in completing for job in jobs}
            try:
                await core.command(Heard(core.live, session.id, attempts))
            except LodesmanError:
                return
        session.completing = completing

    async def report(self, scope: Scope, receive: Receive, send: Send, pilot_id: int) -> None:
        """POST /v1/pilots/report."""
        body = decode(REPORTS, await read_body(scope, receive, REPORT_BODY))
        # One that was lost has no session any more, and may still tell how its last attempts ended.
        session = self.core.session(pilot_id) if pilot_id in self.core.sessions else None
        reports = [_report(one) for one in body.reports]
        results = await self.core.command(TakeReports(self.core.live, pilot_id, reports))
        for one in body.reports:
            if session is not None and one.state != "Running":
                session.tails.pop((one.id, one.attempt), None)
                session.usage.pop((one.id, one.attempt), None)
        await send_json(send, msgspec.json.encode({"results": results}))

    async def leave(self, scope: Scope, receive: Receive, send: Send, pilot_id: int) -> None:
        """POST /v1/pilots/leave."""
        body = decode(LEAVE, await read_body(scope, receive, SMALL_BODY))
        self.core.session(pilot_id)
        state = PilotState.DONE if body.reason in GOOD_ENDS else PilotState.ABORTED
        reason = f"{body.reason}: {body.message}" if body.message else body.reason
        await self.core.command(EndPilot(self.core.live, pilot_id, state, reason))
        self.core.forget_pilot(pilot_id)
        await send_json(send, b"{}")


def _hear(session: PilotSession, jobs: list[bodies.RunningBody]) -> AbstractSet[tuple[int, int]]:
    """Keep the news of these payloads, and of no others: a pilot tells of all that it has. Returns what it hands in."""
    completing: set[tuple[int, int]] = set()
    before, session.tails, session.usage = session.tails, {}, {}
    room = KEEP_TAILS
    for job in jobs:
        key = (job.id, job.attempt)
        session.usage[key] = {
            "cpu_seconds": job.cpu_seconds, "wall_seconds": job.wall_seconds, "rss_mb": job.rss_mb,
        }  # fmt: skip
        tail = before.get(key, "") if job.tail is None else job.tail[-KEEP_TAIL:]
        room -= len(tail)
        if tail and room >= 0:
            session.tails[key] = tail
        if job.state == COMPLETING:
            completing.add(key)
    return completing


def _report(one: bodies.ReportBody) -> Report:
    return Report(
        id=one.id,
        attempt=one.attempt,
        state=one.state,
        cause=one.cause or ("ok" if one.state == "Done" else ""),
        exit_code=one.exit_code,
        signal=one.signal,
        cpu_seconds=one.cpu_seconds,
        wall_seconds=one.wall_seconds,
        max_rss_mb=one.max_rss_mb,
        started=one.started,
        ended=one.ended,
        output_sha256=one.output.sha256 if one.output else None,
        output_size=one.output.size if one.output else None,
        tail=one.tail[-KEEP_TAIL:],
        message=one.message,
    )
