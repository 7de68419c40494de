"""Hosts that get no jobs, shut and opened."""

from __future__ import annotations

from lodesman.base.errors import InvalidRequest
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import origin_of
from lodesman.server.live.core import Core
from lodesman.server.store.hosts import host_record, host_records, pilots_by_host
from lodesman.wire import calls, hosts, inner_calls
from lodesman.wire.accounts import AuditAction, AuditNote
from lodesman.wire.call import Nothing
from lodesman.wire.hosts import HostName, HostRecord, HostState


@serves(inner_calls.HOSTS_JUDGED)
async def _judged(core: Core, request: Request[Nothing, hosts.HostVerdicts]) -> Nothing:
    await core.hosts.judge(request.body.changed, request.body.forget)
    return Nothing()


@serves(calls.CLOSE_HOST)
async def _close_host(core: Core, request: Request[Nothing, hosts.CloseHostBody]) -> hosts.HostChanged:
    body, who = request.body, request.who.name
    host = _named(core, body.host, body.site)
    before = host_record(core.reader, host)
    record = HostRecord(
        shut=True, since=core.clock(), by=who, reason=body.reason, trips=before.trips if before else 0
    )
    return await _order(core, request, HostState(host, record), "host-closed", body.reason)


@serves(calls.OPEN_HOST)
async def _open_host(core: Core, request: Request[Nothing, hosts.OpenHostBody]) -> hosts.HostChanged:
    """What failed there before counts no more."""
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
    await core.hosts.change([state], note)
    pilots = sum(1 for session in core.sessions.values() if session.host == host)
    return hosts.HostChanged(host.site, host.host, shut=record is not None and record.shut, pilots=pilots)


def _named(core: Core, name: str, site: str) -> HostName:
    """At the site, or at the only one that has it. Raises InvalidRequest."""
    if site:
        return HostName(site, name)
    known_hosts = pilots_by_host(core.reader).keys() | host_records(core.reader).keys()
    same = sorted(host for host in known_hosts if host.host == name)
    if not same:
        words = f"No pilot lives on a host {name[:100]}."
        raise InvalidRequest(
            words, hint="Name its site, too: --site. Known hosts: lode host ls.", parameter="site"
        )
    if len(same) > 1:
        raise InvalidRequest(
            f"{len(same)} sites have a host {name[:100]}.", hint="Name the site: --site.",
            choices=[host.site for host in same], parameter="site",
        )  # fmt: skip
    return same[0]
