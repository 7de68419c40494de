"""What pilots ask: join, heartbeat, report, leave, and which SubmitPools queues serve. Claims are in `api.claims`."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from lodesman.base.errors import Forbidden, LodesmanError, NotFound, TooLarge, Unauthorized
from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.decide.matching import ResourceRequest
from lodesman.server.http.auth import own_vo
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.hosts import node_failed, probe_ended, probe_of, probe_runs
from lodesman.server.http.wire import origin_of
from lodesman.server.live.core import Core
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import attempts_of_pilot, pilot_by_id, pilot_of_join_token
from lodesman.server.store.submit_pools import pools_of_vo
from lodesman.server.store.write.attempts import AttemptReport
from lodesman.server.writer.accounts import JOINING
from lodesman.server.writer.ahead import has_much_ahead, others_wait
from lodesman.server.writer.bookings import Attempt
from lodesman.server.writer.pilots import (
    believed_queue,
    drain_pilots,
    end_pilot,
    hash_token,
    join_pilot,
    presented_pools,
    unknown_join_token,
)
from lodesman.server.writer.report import bounded_times, give_back, most_mb, note_heartbeat, take_reports
from lodesman.server.writer.sessions import PilotSession, presented_by
from lodesman.wire import calls, pilots
from lodesman.wire import requests as asks
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing
from lodesman.wire.nodes import Place, QueueId
from lodesman.wire.task_queues import PoolsOfQueues, ServedQueue
from lodesman.wire.vocabulary import PilotState

log = logging.getLogger(__name__)

# Bytes of output: of one payload, of all payloads of one pilot.
_KEEP_TAIL = 65_536
_KEEP_TAILS = 8 << 20
# Of the description of a node.
_NODE_BYTES, _NODE_DEPTH = 16 << 10, 8
# What a pilot calls an attempt that it hands in.
_COMPLETING = "completing"
_JOIN_TOKEN = "join token"
_MOST_UNNAMED = 3
_WRONG_OUTPUT = "the output has another size or SHA-256 than the report says"
_GIVEN_BACK = "it went back: its pilot did not name it, or had not started it"
_GOOD_ENDS = frozenset({"idle", "drained", "sigterm"})
# Identifiers in one answer; the pilots of one submission go to few queues.
_MOST_POOLS = 200_000


@serves(calls.JOIN)
async def _join(core: Core, request: Request[Nothing, asks.JoinBody]) -> pilots.PilotJoined:
    """A pilot exchanges its join token for one of its own."""
    body, node, found_queue = request.body, _small(request.body.node), None
    row = pilot_of_join_token(core.reader, hash_token(body.join_token))
    if row is None:
        core.strangers.refused(origin_of(request.scope), _JOIN_TOKEN)
        raise unknown_join_token()
    if body.place is not None:
        place = QueueId(body.place.site, body.place.ce, body.place.queue)
        # The queue of a pilot that was sent to none and found out where it runs.
        found_queue = believed_queue(row, place, core.policy)
        served = core.live.pools.of_queue(found_queue.place if found_queue else place).pools
        node = {**node, "submit_pools": presented_pools(body.pools_pass, body.submit_pools, served)}
    try:
        joined = await core.commands.run(
            Change(join_pilot, core.live, body.join_token, body.nonce, node, found_queue=found_queue)
        )
    except Unauthorized:
        core.strangers.refused(origin_of(request.scope), f"{_JOIN_TOKEN} of pilot {row.id}")
        raise
    core.sessions.join(joined.row, hash_token(joined.token))
    return pilots.PilotJoined(
        pilot=joined.row.id,
        stamp=joined.row.stamp,
        token=joined.token,
        lease_s=core.lease_seconds,
        heartbeat_s=core.heartbeat_seconds,
        idle_s=core.idle_seconds,
        sandbox_mb=core.sandbox_mb,
        server_time=core.clock(),
        place=Place(joined.row.site, joined.row.ce, joined.row.queue),
        pools_pass=core.live.pools.last_pass.id,
        bound_job=joined.row.bound_job,
    )


def _small(node: dict[str, Any]) -> dict[str, Any]:
    """What a pilot says of its node. Raises TooLarge for more than a node has to say."""
    left: list[Any] = [node]
    for _ in range(_NODE_DEPTH):
        found = (one.values() if isinstance(one, dict) else one for one in left)
        left = [below for one in found for below in one if isinstance(below, (dict, list))]
    size = len(msgspec.json.encode(node)) if not left else 0
    if left or size > _NODE_BYTES:
        raise TooLarge(f"A node is described in {_NODE_BYTES} bytes at most, {_NODE_DEPTH} levels deep.")
    return node


@serves(calls.HEARTBEAT)
async def _heartbeat(core: Core, request: Request[Nothing, asks.HeartbeatBody]) -> pilots.HeartbeatAnswer:
    """Keep what a pilot reports of its payloads, and answer what it shall end."""
    session, running = core.sessions.hear(request.who.pilot_id), request.body.jobs
    _keep_news(session, running, attempts_of_pilot(core.reader, session.id) if running else {}, core.clock())
    attempts = {(job.id, job.attempt): job.state == _COMPLETING for job in running}
    completing = {key for key, completes in attempts.items() if completes}
    try:
        # A pilot is back, or hands in what ran.
        if completing - session.completing or session.id in core.live.pilots.silent:
            await core.commands.run(Change(note_heartbeat, core.live, session.id, attempts))
        session.completing, session.named_at = completing, core.ticks()
    except LodesmanError:
        pass  # the next heartbeat is stored
    await _give_back_unnamed(core, session, attempts)
    if core.hosts.shut:
        await probe_runs(core, session, running)
    orders = core.live.pilots.stop_orders.get(session.id) or {}
    kill = [pilots.KillOrder(*key, reason) for key, reason in list(orders.items()) if key in attempts]
    kill += [pilots.KillOrder(*key, _GIVEN_BACK) for key in sorted(session.given_back & attempts.keys())]
    # A bound pilot that has its job gets no other.
    drain = session.drain or (session.bound_job is not None and bool(running))
    return pilots.HeartbeatAnswer(kill, drain, core.lease_seconds, await _others_wait(core, session))


async def _others_wait(core: Core, session: PilotSession) -> bool | UnsetType:
    """True if other pilots wait for jobs that this one has ahead; else it is not said."""
    if not has_much_ahead(core.live, session.id, session.offer.cores):
        return UNSET
    with suppress(LodesmanError):
        return bool(await core.commands.run(Change(others_wait, core.live, session.id))) or UNSET
    return UNSET


async def _give_back_unnamed(core: Core, session: PilotSession, named: Container[tuple[int, int]]) -> None:
    """What three heartbeats in a row do not name, the pilot does not have: its jobs wait again."""
    held = list(core.live.pilots.held.get(session.id, ()))
    missed, session.unnamed = session.unnamed, {}
    session.unnamed = {key: missed.get(key, 0) + 1 for key in held if key not in named}
    gone = [key for key, times in session.unnamed.items() if times >= _MOST_UNNAMED]
    if gone:
        with suppress(LodesmanError):
            await core.commands.run(Change(give_back, core.live, session.id, gone))
            session.given_back.update(gone)


def _keep_news(
    session: PilotSession, running: Sequence[asks.RunningBody], claimed: Mapping[Attempt, float], now: float
) -> None:
    """Keep the news of these payloads only: a pilot reports all that it has. `claimed`: when it got its live attempts."""
    before, session.tails, session.usage = session.tails, {}, {}
    room = _KEEP_TAILS
    for job in running:
        key = (job.id, job.attempt)
        if key not in claimed:
            continue
        life = now - claimed[key]
        cpu, wall = bounded_times(job.cpu_seconds, job.wall_seconds, life=life, cores=session.offer.cores)
        rss = min(job.rss_mb, most_mb(session.offer.memory_mb))
        session.usage[key] = {"cpu_seconds": cpu, "wall_seconds": wall, "rss_mb": rss}
        tail = before.get(key, b"") if job.tail is None else _tail(job.tail)
        room -= len(tail)
        if tail and room >= 0:
            session.tails[key] = tail


def _tail(text: str) -> bytes:
    """What is kept of the output of a payload, in UTF-8."""
    return text.encode("utf-8", "replace")[-_KEEP_TAIL:]


@serves(calls.REPORT)
async def _take_reports(core: Core, request: Request[Nothing, asks.ReportsBody]) -> pilots.ReportsAnswer:
    """Apply reports. A pilot that was lost has no session any more, and may report how its last attempts ended."""
    pilot_id, reports = request.who.pilot_id, request.body.reports
    session = core.sessions.hear(pilot_id) if pilot_id in core.sessions else None
    offer = _offer_of_lost(core, pilot_id) if session is None else session.offer
    changes = [_report(one) for one in reports if _is_whole(one.output)]
    probe = None if session is None else probe_of(core, session, reports)
    host = None if session is None else session.host
    change = Change(
        take_reports, core.live, pilot_id, changes, cores=offer.cores, memory_mb=offer.memory_mb, host=host
    )
    results = await core.commands.run(change)
    if session is not None and probe is not None:
        await probe_ended(core, session, *probe)
    taken = {(one.id, one.attempt) for one in results if one.accepted and one.reason is UNSET}
    for one in reports:
        if session is not None and one.cause == NODE_FAULT and (one.id, one.attempt) in taken:
            core.sessions.drain([session.id])  # it says itself that it is of no use
            await node_failed(core, session.host, one.message.rstrip("."))
        if session is not None and one.state != "Running":
            session.tails.pop((one.id, one.attempt), None)
            session.usage.pop((one.id, one.attempt), None)
    if session is not None and session.hands_back(
        (one.state, one.cause) for one in reports if (one.id, one.attempt) in taken
    ):
        log.warning("a pilot hands back all that it gets: it gets no more", extra={"pilot": pilot_id})
        core.sessions.drain([session.id])
    if len(changes) < len(reports):
        results = _with_refusals(reports, results)
    return pilots.ReportsAnswer(results, UNSET if session is None else await _others_wait(core, session))


def _offer_of_lost(core: Core, pilot_id: int) -> ResourceRequest:
    row = pilot_by_id(core.reader, pilot_id)
    if row is None:
        raise Unauthorized("There is no such pilot.")
    return presented_by(row.request, row.node, row.queue_id, joined_at=None, now=core.clock())


def _is_whole(output: asks.OutputBody | None) -> bool:
    """Whether an output that comes with its report is what that says of it."""
    if output is None or output.content is None:
        return True
    return len(output.content) == output.size and sha256(output.content).hexdigest() == output.sha256


def _with_refusals(
    reports: Sequence[asks.ReportBody], results: Iterable[pilots.ReportResult]
) -> list[pilots.ReportResult]:
    """The results, and refusals in the places of reports whose output is not what they say."""
    left = iter(results)
    return [
        next(left)
        if _is_whole(one.output)
        else pilots.ReportResult(one.id, one.attempt, accepted=False, reason=_WRONG_OUTPUT)
        for one in reports
    ]


def _report(one: asks.ReportBody) -> AttemptReport:
    cause, output = one.cause or ("ok" if one.state == "Done" else ""), one.output
    return AttemptReport(
        id=one.id, attempt=one.attempt, state=one.state, cause=cause, exit_code=one.exit_code, signal=one.signal,
        cpu_seconds=one.cpu_seconds, wall_seconds=one.wall_seconds, max_rss_mb=one.max_rss_mb, started=one.started,
        ended=one.ended, output_sha256=output.sha256 if output else None, output=output.content if output else None,
        tail=_tail(one.tail).decode("utf-8", "ignore"), message=one.message,
    )  # fmt: skip


@serves(calls.LEAVE)
async def _leave(core: Core, request: Request[Nothing, asks.LeaveBody]) -> Nothing:
    pilot_id, body = request.who.pilot_id, request.body
    host = core.sessions.hear(pilot_id).host
    state = PilotState.DONE if body.reason in _GOOD_ENDS else PilotState.ABORTED
    reason = f"{body.reason}: {body.message}" if body.message else body.reason
    await core.commands.run(Change(end_pilot, core.live, pilot_id, state, reason))
    core.sessions.end(pilot_id)
    if body.reason == NODE_FAULT:
        await node_failed(core, host, body.message)
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
    """GetSubmitPoolsForQueue of RFC #7: the pools of each of these queues, and the last pass."""
    queues = [QueueId(*names) for names in request.body.queues]
    _check_place(core, request.who, queues)
    vo = "" if request.who.kind in ("pilot", JOINING) else own_vo(request.who)
    return pools_of_queues(core, queues, mine=pools_of_vo(core.reader, vo) if vo else None)


def pools_of_queues(
    core: Core, queues: Sequence[QueueId], *, mine: Container[str] | None = None
) -> PoolsOfQueues:
    """The pools of each queue, of `mine` if given, and the last pass. Raises TooLarge."""
    last, found, count = core.live.pools.last_pass, [], 0
    for queue in queues:
        served = core.live.pools.of_queue(queue).pools
        pools = served if mine is None else [one for one in served if one in mine]
        count += len(pools)
        if count > _MOST_POOLS:
            raise TooLarge(
                f"These queues serve more than {_MOST_POOLS} SubmitPools.", hint="Ask for fewer at once."
            )
        found.append(ServedQueue(*queue, list(pools)))
    return PoolsOfQueues(last.id, last.at, found)


def _check_place(core: Core, who: Principal, queues: Sequence[QueueId]) -> None:
    """A pilot asks for the queue that it was sent to, or, if it was sent to none, for those that it may be in; a user for
    those that admit the VO. Raises Forbidden, NotFound.
    """
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
