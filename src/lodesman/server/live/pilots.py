"""What pilots say of their payloads and themselves, and what follows."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

from msgspec import UNSET, UnsetType

from lodesman.base.errors import LodesmanError, Unauthorized
from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.decide.matching import ResourceRequest
from lodesman.server.live.core import Core
from lodesman.server.store.journal import Change, Command
from lodesman.server.store.read.pilots import attempts_of_pilot, pilot_by_id, pilot_of_join_token
from lodesman.server.store.write.attempts import AttemptReport
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
from lodesman.server.writer.site_mask import ClosingOutcome, leaving_reason
from lodesman.wire.nodes import Closing, Place, QueueId
from lodesman.wire.pilots import HeartbeatAnswer, KillOrder, PilotJoined, ReportResult, ReportsAnswer
from lodesman.wire.requests import JoinBody, OutputBody, ReportBody, RunningBody
from lodesman.wire.vocabulary import PilotState

log = logging.getLogger(__name__)

_JOIN_TOKEN: Final = "join token"
# Bytes of output: of one payload, of all payloads of one pilot.
_KEEP_TAIL: Final = 65_536
_KEEP_TAILS: Final = 8 << 20
# What a pilot calls an attempt that it hands in.
_COMPLETING: Final = "completing"
_MOST_UNNAMED: Final = 3
_WRONG_OUTPUT: Final = "the output has another size or SHA-256 than the report says"
_GIVEN_BACK: Final = "it went back: its pilot did not name it, or had not started it"
_GOOD_ENDS: Final = frozenset({"idle", "drained", "sigterm"})


async def let_join(core: Core, body: JoinBody, node: dict[str, Any], origin: str) -> PilotJoined:
    """Exchange a join token for a token of the pilot's own; `origin`: its address. Raises LodesmanError."""
    found_queue, row = None, pilot_of_join_token(core.reader, hash_token(body.join_token))
    if row is None:
        core.strangers.refused(origin, _JOIN_TOKEN)
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
        core.strangers.refused(origin, f"{_JOIN_TOKEN} of pilot {row.id}")
        raise
    row, terms = joined.row, core.terms
    core.sessions.join(row, hash_token(joined.token))
    return PilotJoined(
        pilot=row.id, stamp=row.stamp, token=joined.token, lease_s=terms.lease_seconds,
        heartbeat_s=terms.heartbeat_seconds, idle_s=terms.idle_seconds, sandbox_mb=terms.sandbox_mb,
        server_time=core.clock(), place=Place(row.site, row.ce, row.queue),
        pools_pass=core.live.pools.last_pass.id, bound_job=row.bound_job,
    )  # fmt: skip


# --- heartbeats ----------------------------------------------------------------------------------------------------------


async def take_heartbeat(
    core: Core, session: PilotSession, running: Sequence[RunningBody]
) -> HeartbeatAnswer:
    """Keep the news, and answer what the pilot shall end."""
    claimed = attempts_of_pilot(core.reader, session.id) if running else {}
    _keep_news(session, running, claimed, core.clock())
    attempts = {(job.id, job.attempt): job.state == _COMPLETING for job in running}
    completing = {attempt for attempt, completes in attempts.items() if completes}
    try:
        # A pilot is back, or hands in what ran.
        if completing - session.completing or session.id in core.live.pilots.silent:
            await core.commands.run(Change(note_heartbeat, core.live, session.id, attempts))
        session.completing, session.named_at = completing, core.ticks()
    except LodesmanError:
        pass  # the next heartbeat is stored
    await _give_back_unnamed(core, session, attempts)
    if core.hosts.shut:
        await core.hosts.see_probes(session, running)
    orders = core.live.pilots.stop_orders.get(session.id) or {}
    # A bound pilot that has its job gets no other.
    drain = session.drain or (session.bound_job is not None and bool(running))
    return HeartbeatAnswer(
        kill_orders(orders, session.given_back, attempts.keys()),
        drain,
        core.terms.lease_seconds,
        await _others_wait(core, session),
    )


def kill_orders(
    orders: Mapping[Attempt, str], given_back: Collection[Attempt], named: Container[Attempt]
) -> list[KillOrder]:
    """The orders for attempts that the pilot names."""
    kill = [KillOrder(*attempt, reason) for attempt, reason in list(orders.items()) if attempt in named]
    return kill + [KillOrder(*attempt, _GIVEN_BACK) for attempt in sorted(given_back) if attempt in named]


async def _others_wait(core: Core, session: PilotSession) -> bool | UnsetType:
    if not has_much_ahead(core.live, session.id, session.offer.cores):
        return UNSET
    with suppress(LodesmanError):
        return bool(await core.commands.run(Change(others_wait, core.live, session.id))) or UNSET
    return UNSET


async def _give_back_unnamed(core: Core, session: PilotSession, named: Container[Attempt]) -> None:
    missed, held = session.unnamed, list(core.live.pilots.held.get(session.id, ()))
    session.unnamed = {attempt: missed.get(attempt, 0) + 1 for attempt in held if attempt not in named}
    gone = [attempt for attempt, times in session.unnamed.items() if times >= _MOST_UNNAMED]
    if gone:
        with suppress(LodesmanError):
            await core.commands.run(Change(give_back, core.live, session.id, gone))
            session.given_back.update(gone)


def _keep_news(
    session: PilotSession, running: Sequence[RunningBody], claimed: Mapping[Attempt, float], now: float
) -> None:
    """`claimed`: when the pilot got its live attempts."""
    before, session.tails, session.usage = session.tails, {}, {}
    room = _KEEP_TAILS
    for job in running:
        attempt = (job.id, job.attempt)
        if attempt not in claimed:
            continue
        life = now - claimed[attempt]
        cpu, wall = bounded_times(job.cpu_seconds, job.wall_seconds, life=life, cores=session.offer.cores)
        rss = min(job.rss_mb, most_mb(session.offer.memory_mb))
        session.usage[attempt] = {"cpu_seconds": cpu, "wall_seconds": wall, "rss_mb": rss}
        tail = before.get(attempt, b"") if job.tail is None else _tail(job.tail)
        room -= len(tail)
        if tail and room >= 0:
            session.tails[attempt] = tail


def _tail(text: str) -> bytes:
    return text.encode("utf-8", "replace")[-_KEEP_TAIL:]


# --- reports -------------------------------------------------------------------------------------------------------------


async def follow_reports(core: Core, pilot: int, reports: Sequence[ReportBody]) -> ReportsAnswer:
    """Also the last ones of a lost pilot. Raises LodesmanError."""
    session = core.sessions.hear(pilot) if pilot in core.sessions else None
    offer = _offer_of_lost(core, pilot) if session is None else session.offer
    whole = [_attempt_report(report) for report in reports if _is_whole(report.output)]
    probe = None if session is None else core.hosts.take_probe(session, reports)
    results = await core.commands.run(
        Change(
            take_reports, core.live, pilot, whole, cores=offer.cores, memory_mb=offer.memory_mb,
            host=None if session is None else session.host,
        )
    )  # fmt: skip
    answered = results if len(whole) == len(reports) else _with_refusals(reports, results)
    if session is None:
        return ReportsAnswer(answered, UNSET)
    if probe is not None:
        await core.hosts.end_probe(probe[0], session.host, probe[1])
    accepted = {
        (result.id, result.attempt) for result in results if result.accepted and result.reason is UNSET
    }
    await _follow_ends(core, session, reports, accepted)
    return ReportsAnswer(answered, await _others_wait(core, session))


async def _follow_ends(
    core: Core, session: PilotSession, reports: Sequence[ReportBody], accepted: Container[Attempt]
) -> None:
    """Drain a pilot whose node fails, or that hands back all it gets."""
    for report in reports:
        attempt = (report.id, report.attempt)
        if report.cause == NODE_FAULT and attempt in accepted:
            core.sessions.drain([session.id])  # it says itself that it is of no use
            await core.hosts.fail_node(session.host, report.message.rstrip("."))
        if report.state != "Running":
            session.tails.pop(attempt, None)
            session.usage.pop(attempt, None)
    ends = ((report.state, report.cause) for report in reports if (report.id, report.attempt) in accepted)
    if session.hands_back(ends):
        log.warning("a pilot hands back all that it gets: it gets no more", extra={"pilot": session.id})
        core.sessions.drain([session.id])


def _offer_of_lost(core: Core, pilot: int) -> ResourceRequest:
    row = pilot_by_id(core.reader, pilot)
    if row is None:
        raise Unauthorized("There is no such pilot.")
    return presented_by(row.request, row.node, row.queue_id, joined_at=None, now=core.clock())


def _is_whole(output: OutputBody | None) -> bool:
    if output is None or output.content is None:
        return True
    return len(output.content) == output.size and sha256(output.content).hexdigest() == output.sha256


def _with_refusals(reports: Sequence[ReportBody], results: Iterable[ReportResult]) -> list[ReportResult]:
    left = iter(results)
    return [
        next(left)
        if _is_whole(report.output)
        else ReportResult(report.id, report.attempt, accepted=False, reason=_WRONG_OUTPUT)
        for report in reports
    ]


def _attempt_report(report: ReportBody) -> AttemptReport:
    cause, output = report.cause or ("ok" if report.state == "Done" else ""), report.output
    return AttemptReport(
        id=report.id, attempt=report.attempt, state=report.state, cause=cause, exit_code=report.exit_code,
        signal=report.signal, cpu_seconds=report.cpu_seconds, wall_seconds=report.wall_seconds,
        max_rss_mb=report.max_rss_mb, started=report.started, ended=report.ended,
        output_sha256=output.sha256 if output else None, output=output.content if output else None,
        tail=_tail(report.tail).decode("utf-8", "ignore"), message=report.message,
    )  # fmt: skip


# --- ends ----------------------------------------------------------------------------------------------------------------


async def let_leave(core: Core, pilot: int, reason: str, message: str) -> None:
    """Raises LodesmanError."""
    host = core.sessions.hear(pilot).host
    state = PilotState.DONE if reason in _GOOD_ENDS else PilotState.ABORTED
    words = f"{reason}: {message}" if message else reason
    await core.commands.run(Change(end_pilot, core.live, pilot, state, words))
    core.sessions.end(pilot)
    if reason == NODE_FAULT:
        await core.hosts.fail_node(host, message)


async def close_and_drain(core: Core, closing: Closing, command: Command[ClosingOutcome]) -> ClosingOutcome:
    """No pilot there claims any more, also by a claim on its way. Raises LodesmanError: all is as before."""
    sessions = core.sessions
    leave = sessions.drain(
        [session.id for session in sessions.values() if closing.node.covers(session.queue)]
    )
    try:
        done = await core.commands.run(command)
    except LodesmanError:
        sessions.drain(leave, drain=False)
        raise
    # Those that joined while that was on its way: what they may have asked for meanwhile is answered, too.
    late = sessions.drain(done.drained)
    if late:
        await core.commands.run(Change(drain_pilots, core.live, late, leaving_reason(done.closing)))
    return done
