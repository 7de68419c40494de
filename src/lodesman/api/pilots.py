"""What pilots ask: join, heartbeat, report, leave, and which SubmitPools queues serve. Claims are in `api.claims`."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from lodesman.answers import calls, pilots
from lodesman.answers.accounts import Principal
from lodesman.answers.call import Nothing
from lodesman.answers.nodes import Place, QueueId
from lodesman.answers.requests import (
    DrainBody,
    HeartbeatBody,
    JoinBody,
    LeaveBody,
    QueuesBody,
    ReportBody,
    ReportsBody,
    RunningBody,
)
from lodesman.answers.task_queues import Served, ServedQueue
from lodesman.answers.vocabulary import PilotState
from lodesman.api.core import Core
from lodesman.api.dispatch import Request, serves
from lodesman.commands.accounts import JOINING
from lodesman.commands.pilots import DrainPilots, EndPilot, FoundQueue, Join, believed, hash_token, presented
from lodesman.commands.report import Heard, TakeReports
from lodesman.commands.sessions import PilotSession
from lodesman.errors import Forbidden, LodesmanError, TooLarge, Unauthorized
from lodesman.store.read.pilots import pilot_by_id, pilot_of_join_token
from lodesman.store.write.attempts import AttemptReport

# Characters of output: of one payload, of all payloads of one pilot.
_KEEP_TAIL = 65_536
_KEEP_TAILS = 8 << 20
# What a pilot calls an attempt that it hands in.
_COMPLETING = "completing"
_GOOD_ENDS = frozenset({"idle", "drained", "sigterm"})
# Identifiers in one answer; the pilots of one submission go to few queues.
_MOST_POOLS = 200_000

Attempts = AbstractSet[tuple[int, int]]


@serves(calls.JOIN)
async def join(core: Core, request: Request[Nothing, JoinBody]) -> pilots.Joined:
    """A pilot exchanges its join token for one of its own."""
    body = request.body
    found_queue = _settle(core, body)
    node = _described(core, body, found_queue)
    joined = await core.command(Join(core.live, body.join_token, body.nonce, node, found_queue))
    core.joined(joined.row, hash_token(joined.token), joined.node)
    row = joined.row
    return pilots.Joined(
        pilot=row.id,
        stamp=row.stamp,
        token=joined.token,
        lease_s=core.lease_seconds,
        heartbeat_s=core.heartbeat_seconds,
        idle_s=core.idle_seconds,
        sandbox_mb=core.sandbox_mb,
        server_time=core.clock(),
        place=Place(row.site, row.ce, row.queue),
        pools_pass=core.live.pools.last_pass.id,
    )


def _settle(core: Core, body: JoinBody) -> FoundQueue | None:
    """The queue of a pilot that was sent to none and found out where it runs."""
    if body.place is None:
        return None
    row = pilot_of_join_token(core.reader, hash_token(body.join_token))
    reported = QueueId(body.place.site, body.place.ce, body.place.queue)
    return None if row is None else believed(row, reported, core.policy)


def _described(core: Core, body: JoinBody, found_queue: FoundQueue | None) -> dict[str, Any]:
    """The node as it describes itself, with what became of the SubmitPools that the pilot presents."""
    if body.place is None:
        return body.node
    place = found_queue.place if found_queue else QueueId(body.place.site, body.place.ce, body.place.queue)
    served = core.live.pools.of_queue(place)
    return {**body.node, "submit_pools": presented(body.pools_pass, body.submit_pools, served)}


@serves(calls.HEARTBEAT)
async def heartbeat(core: Core, request: Request[Nothing, HeartbeatBody]) -> pilots.HeartbeatAnswer:
    """Keep what a pilot reports of its payloads, and answer what it shall end."""
    pilot_id, running = request.who.pilot_id, request.body.jobs
    session = core.session(pilot_id)
    completing = _hear(session, running)
    if completing != session.completing or pilot_id in core.live.pilots.silent:
        await _take_in(core, session, running, completing)
    orders = core.live.pilots.stop_orders.get(pilot_id) or {}
    attempts = {(job.id, job.attempt) for job in running}
    kill = [
        pilots.KillOrder(job, attempt, reason)
        for (job, attempt), reason in list(orders.items())
        if (job, attempt) in attempts
    ]
    return pilots.HeartbeatAnswer(kill, session.drain, core.lease_seconds)


def _hear(session: PilotSession, jobs: Sequence[RunningBody]) -> Attempts:
    """Keep the news of these payloads only: a pilot reports all that it has. Returns what it hands in."""
    completing: set[tuple[int, int]] = set()
    before, session.tails, session.usage = session.tails, {}, {}
    room = _KEEP_TAILS
    for job in jobs:
        key = (job.id, job.attempt)
        session.usage[key] = {
            "cpu_seconds": job.cpu_seconds, "wall_seconds": job.wall_seconds, "rss_mb": job.rss_mb,
        }  # fmt: skip
        tail = before.get(key, "") if job.tail is None else job.tail[-_KEEP_TAIL:]
        room -= len(tail)
        if tail and room >= 0:
            session.tails[key] = tail
        if job.state == _COMPLETING:
            completing.add(key)
    return completing


async def _take_in(
    core: Core, session: PilotSession, jobs: Sequence[RunningBody], completing: Attempts
) -> None:
    """Store what a heartbeat changes: a pilot is back, or hands in what ran. After a fault the next one is stored."""
    if completing - session.completing or session.id in core.live.pilots.silent:
        attempts = {(job.id, job.attempt): (job.id, job.attempt) in completing for job in jobs}
        try:
            await core.command(Heard(core.live, session.id, attempts))
        except LodesmanError:
            return
    session.completing = completing


@serves(calls.REPORT)
async def report(core: Core, request: Request[Nothing, ReportsBody]) -> pilots.ReportsAnswer:
    """Apply reports. A pilot that was lost has no session any more, and may report how its last attempts ended."""
    pilot_id, reports = request.who.pilot_id, request.body.reports
    session = core.session(pilot_id) if pilot_id in core.sessions else None
    results = await core.command(TakeReports(core.live, pilot_id, list(map(_report, reports))))
    for one in reports:
        if session is not None and one.state != "Running":
            session.tails.pop((one.id, one.attempt), None)
            session.usage.pop((one.id, one.attempt), None)
    return pilots.ReportsAnswer(results)


def _report(one: ReportBody) -> AttemptReport:
    return AttemptReport(
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
        tail=one.tail[-_KEEP_TAIL:],
        message=one.message,
    )


@serves(calls.LEAVE)
async def leave(core: Core, request: Request[Nothing, LeaveBody]) -> pilots.Left:
    """A pilot ends by itself."""
    pilot_id, body = request.who.pilot_id, request.body
    core.session(pilot_id)
    state = PilotState.DONE if body.reason in _GOOD_ENDS else PilotState.ABORTED
    reason = f"{body.reason}: {body.message}" if body.message else body.reason
    await core.command(EndPilot(core.live, pilot_id, state, reason))
    core.forget_pilot(pilot_id)
    return pilots.Left()


@serves(calls.DRAIN)
async def drain(core: Core, request: Request[Nothing, DrainBody]) -> pilots.Drained:
    """Let pilots finish what they run and leave."""
    numbers = request.body.pilots
    for session in map(core.sessions.get, numbers):
        if session is not None:
            session.drain = True
    core.pilots_drained()
    return pilots.Drained(await core.command(DrainPilots(core.live, numbers)))


@serves(calls.SERVED_POOLS)
async def served_pools(core: Core, request: Request[Nothing, QueuesBody]) -> Served:
    """GetSubmitPoolsForQueue of RFC #7: the pools of each of these queues, and the last pass."""
    queues = [QueueId(*names) for names in request.body.queues]
    _check_place(core, request.who, queues)
    last, found, count = core.live.pools.last_pass, [], 0
    for queue in queues:
        pools = core.live.pools.of_queue(queue)
        count += len(pools)
        if count > _MOST_POOLS:
            raise TooLarge(
                f"These queues serve more than {_MOST_POOLS} SubmitPools.", hint="Ask for fewer at once."
            )
        found.append(ServedQueue(*queue, list(pools)))
    return Served(last.id, last.at, found)


def _check_place(core: Core, who: Principal, queues: Sequence[tuple[str, str, str]]) -> None:
    """A pilot asks for the queue that it was sent to, or, if it was sent to none, for those that it may be in."""
    if who.kind not in ("pilot", JOINING):
        return
    pilot = pilot_by_id(core.reader, who.pilot_id)
    if pilot is None:
        raise Unauthorized("There is no such pilot.")
    row = (pilot.site, pilot.ce, pilot.queue)
    for place in queues:
        if any(known not in ("", named) for known, named in zip(row, place, strict=True)):
            raise Forbidden(f"This pilot was sent to {'/'.join(row)} and asks for {'/'.join(place)}.")
