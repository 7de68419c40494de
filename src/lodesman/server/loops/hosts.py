"""Which hosts get no jobs, judged by jobs that failed at once and by their task queues elsewhere."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import asdict

from lodesman.decide.director.hosts import (
    WINDOW_S,
    Failure,
    failing_sites,
    find_suspects,
    judge_hosts,
    may_probe,
    outlived_s,
    shut_with_sites,
    suspects_by_site,
)
from lodesman.decide.director.limits import Limit
from lodesman.decide.explain.closing import shut_text
from lodesman.decide.resources import LOCAL, QueueId
from lodesman.server.store import Reader
from lodesman.server.store.hosts import (
    MOST_FAILURES,
    attempts_by_host,
    host_records,
    newest_failure,
    pilots_by_host,
    quick_failures,
)
from lodesman.server.store.read.pilots import LivePilot
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.hosts import (
    HostEvidence,
    HostName,
    HostRecord,
    HostRow,
    HostState,
    HostVerdicts,
    reported_host,
)
from lodesman.wire.vocabulary import ClampName, StartFault

# Failures that count no more are forgotten when they are so many, or the oldest is so old.
_MANY: Final = 1_000
_OLD_S: Final = 2 * WINDOW_S
# Without suspect hosts sites are judged this often: some jobs fail at every large site.
_SITES_S: Final = 10.0


@dataclass(slots=True)
class HostWatch:
    """Judges hosts; reads only a number while nothing has failed at once lately."""

    db: Reader
    post: Post
    # By site, where jobs fail at once on all hosts, and not elsewhere. Any thread may read it.
    failing: Mapping[str, HostEvidence] = field(init=False, default_factory=dict)
    _newest: int = -1
    _failures: list[tuple[int, Failure]] = field(default_factory=list)
    _sites_at: float = field(init=False, default=0.0)

    def tick(self, now: float) -> None:
        """Shut hosts on enough evidence against them; open those that evidence speaks for."""
        newest, stored = newest_failure(self.db), host_records(self.db)
        if newest != self._newest:
            self._failures, self._newest = quick_failures(self.db), newest
        if not (self._failures or stored):
            self.failing = {}
            return
        recent = [failure for _, failure in self._failures if failure.at > now - WINDOW_S]
        against = self._against(recent, now)
        queues, long = {failure.tq_id for failure in against}, outlived_s(against)
        trials = attempts_by_host(self.db, queues, now, outlived_s=long) if against else []
        if self._sites_at == now:
            self.failing = failing_sites(recent, trials, now)
        judged: dict[HostName, HostRecord | None] = dict(shut_with_sites(self.failing, stored, recent, now))
        judged |= dict(judge_hosts(stored, recent, trials, now))
        changed = [HostState(*state) for state in judged.items()]
        forget = self._forget(now, len(recent))
        if changed or forget:
            self.post(inner_calls.HOSTS_JUDGED, HostVerdicts(changed=changed, forget=forget))
            self._newest = -1

    def weigh(self, queue: QueueId, fault: StartFault | None, reason: str) -> tuple[StartFault | None, str]:
        """The fault of a start. Where jobs fail at once, and at no other site, to join is one, too."""
        against = None if fault else self.failing.get(queue.site)
        if against is None:
            return fault, reason
        return StartFault.JOBS_FAIL, f"jobs fail at once at this site, and not at others: {against.in_short}"

    def _against(self, recent: Sequence[Failure], now: float) -> list[Failure]:
        if not find_suspects(recent, now) and 0.0 <= now - self._sites_at < _SITES_S:
            return []
        self._sites_at = now
        return suspects_by_site(recent, now)

    def _forget(self, now: float, recent: int) -> int:
        """The number up to which failures count no more; 0: too few to be deleted."""
        if recent == MOST_FAILURES:
            return self._failures[-1][0]
        old = self._failures[recent:]
        if not old or (len(old) < _MANY and old[-1][1].at > now - _OLD_S):
            return 0
        return old[0][0]


def local_hosts(db: Reader, pilots: Iterable[LivePilot], now: float) -> dict[str, Limit]:
    """By site where this machine is shut, how many pilots its local queues may start: one, if it may be tried with
    a job for which no live pilot there could ask.
    """
    here = reported_host(socket.gethostname())
    shut = {
        host.site: record
        for host, record in host_records(db).items()
        if record.shut and here and host.host == here
    }
    asking = {
        pilot.queue_id.site for pilot in pilots if pilot.backend == LOCAL and not (pilot.is_busy or pilot.drain)
    } if shut else set()  # fmt: skip
    return {
        site: Limit(
            name=ClampName.HOST_SHUT,
            limit=int(may_probe(record, now) and site not in asking),
            detail=f"{HostName(site, here)}: {shut_text(record, now)}",
        )
        for site, record in shut.items()
    }


def list_hosts(db: Reader, now: float, *, vo: str = "") -> list[HostRow]:
    """Hosts with live pilots, recent failures or a record that shuts them; `vo`: only those with pilots of it."""
    pilots, stored = pilots_by_host(db, vo), host_records(db)
    failed = Counter(failure.host for _, failure in quick_failures(db) if failure.at > now - WINDOW_S)
    shut = {host for host, record in stored.items() if record.shut}
    hosts = sorted(pilots if vo else pilots.keys() | failed.keys() | shut)
    return [_row(host, stored.get(host), pilots.get(host, 0), failed[host], now) for host in hosts]


def _row(host: HostName, record: HostRecord | None, pilots: int, failed: int, now: float) -> HostRow:
    shown = record or HostRecord(shut=False, since=0.0)
    return HostRow(
        **asdict(shown),
        site=host.site,
        host=host.host,
        pilots=pilots,
        failures=failed,
        text=shut_text(shown, now),
    )
