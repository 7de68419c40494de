"""Hosts that get no jobs, in the hot process: shut by evidence or by administrators, tried by a probe, opened."""

from __future__ import annotations

from collections.abc import Sequence

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.decide.director.hosts import FAILS_WITHIN_S, opened, probe_holds, shut_again, shut_by_fault
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import origin_of
from lodesman.server.live.core import Core
from lodesman.server.store.audit import AuditedCommand
from lodesman.server.store.hosts import host_record, host_records, pilots_by_host
from lodesman.server.store.journal import Change, Command
from lodesman.server.writer.hosts import ShutHost, set_hosts
from lodesman.server.writer.sessions import PilotSession
from lodesman.wire import calls, hosts, inner_calls
from lodesman.wire.accounts import AuditAction, AuditNote
from lodesman.wire.call import Nothing
from lodesman.wire.hosts import HostName, HostRecord, HostState
from lodesman.wire.requests import ReportBody, RunningBody


async def _change(core: Core, changed: Sequence[HostState], *notes: AuditNote, forget: int = 0) -> None:
    """Shut or open hosts, for claims that are on their way, too. Raises LodesmanError: all is as before."""
    gate = core.hosts
    before = [
        HostState(host, known.record if (known := gate.shut.get(host)) else None) for host, _ in changed
    ]
    gate.take(changed)
    shut = {host for host, record in changed if record is not None and record.shut}
    pilots = [one.id for one in core.sessions.values() if one.host in shut] if shut else []
    command: Command[None] = Change(set_hosts, core.live, changed, pilots, forget=forget)
    for note in notes:
        command = AuditedCommand(command, note)
    core.commands.post_all()
    try:
        await core.commands.run(command)
    except LodesmanError:
        gate.take(before)
        raise


def _note(state: HostState) -> AuditNote:
    """What the server did by itself."""
    host, record = state
    if record is None:
        return AuditNote(
            "host-opened", str(host), detail="the jobs that failed there fail on other hosts, too"
        )
    if not record.shut:
        return AuditNote("host-opened", str(host), detail="its probe did not fail")
    return AuditNote("host-shut", str(host), detail=record.ground)


@serves(inner_calls.HOSTS_JUDGED)
async def _judged(core: Core, request: Request[Nothing, hosts.HostVerdicts]) -> Nothing:
    """What the background process found. A host that an administrator shut or opened meanwhile stays as it is."""
    known = host_records(core.reader)
    changed = [one for one in request.body.changed if _is_due(one, known.get(one.host))]
    was_shut = [one for one in changed if one.record is not None or one.host in core.hosts.shut]
    await _change(core, changed, *map(_note, was_shut), forget=request.body.forget)
    return Nothing()


def _is_due(state: HostState, known: HostRecord | None) -> bool:
    if state.record is not None:
        return known is None or (not known.shut and known.since < state.record.since)
    return known is not None and not (known.shut and known.by)


@serves(calls.CLOSE_HOST)
async def _close_host(core: Core, request: Request[Nothing, hosts.CloseHostBody]) -> hosts.HostChanged:
    """No pilot of this host gets jobs until an administrator opens it."""
    body, who = request.body, request.who.name
    host = _named(core, body.host, body.site)
    before = host_record(core.reader, host)
    record = HostRecord(
        shut=True, since=core.clock(), by=who, reason=body.reason, trips=before.trips if before else 0
    )
    return await _order(core, request, HostState(host, record), "host-closed", body.reason)


@serves(calls.OPEN_HOST)
async def _open_host(core: Core, request: Request[Nothing, hosts.OpenHostBody]) -> hosts.HostChanged:
    """Its pilots get jobs from now on; what failed there before counts no more."""
    body = request.body
    host = _named(core, body.host, body.site)
    record = HostRecord(shut=False, since=core.clock(), by=request.who.name, reason=body.reason)
    return await _order(core, request, HostState(host, record), "host-opened", body.reason)


async def _order(
    core: Core,
    request: Request[Nothing, hosts.OpenHostBody] | Request[Nothing, hosts.CloseHostBody],
    state: HostState,
    action: AuditAction,
    reason: str,
) -> hosts.HostChanged:
    host, record = state
    note = AuditNote(action, str(host), request.who.name, origin_of(request.scope), detail=reason)
    await _change(core, [state], note)
    pilots = sum(1 for one in core.sessions.values() if one.host == host)
    return hosts.HostChanged(host.site, host.host, shut=record is not None and record.shut, pilots=pilots)


def _named(core: Core, name: str, site: str) -> HostName:
    """The host of this name: of the site that is given, or of the only one that has it. Raises InvalidRequest."""
    if site:
        return HostName(site, name)
    known = pilots_by_host(core.reader).keys() | host_records(core.reader).keys()
    found = sorted(one for one in known if one.host == name)
    if not found:
        words = f"No pilot lives on a host {name[:100]}."
        raise InvalidRequest(
            words, hint="Name its site, too: --site. Known hosts: lode host ls.", parameter="site"
        )
    if len(found) > 1:
        raise InvalidRequest(
            f"{len(found)} sites have a host {name[:100]}.", hint="Name the site: --site.",
            choices=[one.site for one in found], parameter="site",
        )  # fmt: skip
    return found[0]


# --- the probe ----------------------------------------------------------------------------------------------------------


def probe_of(
    core: Core, session: PilotSession, reports: Sequence[ReportBody]
) -> tuple[ShutHost, ReportBody] | None:
    """The report that ends the probe of a pilot's host; from now on the probe is not taken for lost."""
    for one in reports if core.hosts.shut else ():
        host = core.hosts.has_probe(session, (one.id, one.attempt))
        if host is not None and one.state != "Running":
            host.attempt = None
            return host, one
    return None


async def probe_ended(core: Core, session: PilotSession, host: ShutHost, end: ReportBody) -> None:
    """The probe failed at once: the host stays shut, for longer. It did not: it is open. Anything else: another probe."""
    ran = 0.0 if end.started is None else (end.ended or core.clock()) - end.started
    holds = probe_holds(end.state, end.cause or "", ran)
    if holds is None:
        host.pilot = 0
    else:
        after = opened if holds else shut_again
        await _settle(core, HostState(session.host, after(host.record, core.clock())))


async def probe_runs(core: Core, session: PilotSession, running: Sequence[RunningBody]) -> None:
    """A probe that has run for longer than a failure takes opens the host."""
    for one in running:
        host = core.hosts.has_probe(session, (one.id, one.attempt))
        if host is not None and one.wall_seconds > FAILS_WITHIN_S:
            await _settle(core, HostState(session.host, opened(host.record, core.clock())))


async def node_failed(core: Core, host: HostName, fault: str) -> None:
    """A pilot on this host has found the machine of no use."""
    words = fault or "its pilot does not say why"
    if (
        host.host
        and (record := shut_by_fault(host_record(core.reader, host), words, core.clock())) is not None
    ):
        await _settle(core, HostState(host, record))


async def _settle(core: Core, state: HostState) -> None:
    try:
        await _change(core, [state], _note(state))
    except LodesmanError:
        host = core.hosts.shut.get(state.host)
        if host is not None:  # the next probe decides
            host.pilot = 0
