"""Black holes: hosts where every job fails at once, so that they get more (ADR 0044). Evidence: jobs of the same task
queues fail there, and not elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from lodesman.wire.hosts import HostEvidence, HostName, HostRecord

# why an attempt ended, and a pilot left, that found its node of no use to any job
NODE_FAULT: Final = "node-fault"
NODE_FAILED: Final = "the node failed"  # as a job's reason begins whose last attempt ended so
# against a queue that has other hosts, too
ON_SHUT_HOST: Final = "its pilots start on a host that gets no jobs"
FAILS_WITHIN_S: Final = 60.0
WINDOW_S: Final = 1_800.0
_LEAST_FAILURES: Final = 5
_LEAST_TASK_QUEUES: Final = 2
# A job that fails on as many hosts is the cause itself.
_CLEARS: Final = 3
_FIRST_WAIT_S: Final = 900.0
_LONGEST_WAIT_S: Final = 4 * 3_600.0
# A host that was well for so long is shut for the first wait again.
_FORGIVEN_S: Final = 86_400.0
_MOST_JOBS: Final = 100
_MARGIN_S: Final = 5.0
_MOST_WORDS: Final = 300

_COUNTED: Final = frozenset(
    {
        "exit",
        "signal",
        "cpu-limit",
        "wall-limit",
        "memory-limit",
        "output-limit",
        "not-started",
        "never-started",
        "warden-lost",
        "input",
    }
)  # causes that the host may have: neither orders of users nor the end of the pilot


class Failure(NamedTuple):
    """An attempt that failed at once."""

    at: float
    host: HostName
    tq_id: int
    job_id: int
    seconds: float  # how long it ran


class HostTrial(NamedTuple):
    """A task queue's attempts on a host that ended, or outlived the failures."""

    tq_id: int
    host: HostName
    attempts: int
    failed: int


def is_failure(state: str, cause: str) -> bool:
    """Whether an attempt's end is a failure."""
    return state != "Done" and cause in _COUNTED


def failed_at_once(state: str, cause: str, seconds: float) -> bool:
    """Whether the attempt makes its host suspect."""
    return is_failure(state, cause) and seconds <= FAILS_WITHIN_S


def probe_holds(state: str, cause: str, seconds: float) -> bool | None:
    """Whether a probe's end says that its host is well; None: nothing."""
    if state == "Done":
        return True
    return seconds > FAILS_WITHIN_S if is_failure(state, cause) else None


def find_suspects(failures: Iterable[Failure], now: float) -> dict[HostName, list[Failure]]:
    """Hosts with enough failures in the window, but for jobs that are the cause."""
    recent = [failure for failure in failures if failure.host.host and now - WINDOW_S < failure.at]
    guilty = find_cleared_jobs(recent)
    by_host: defaultdict[HostName, list[Failure]] = defaultdict(list)
    for failure in recent:
        if failure.job_id not in guilty:
            by_host[failure.host].append(failure)
    return {host: failures_there for host, failures_there in by_host.items() if _enough(failures_there)}


def outlived_s(failures: Iterable[Failure]) -> float:
    """The least run of an attempt that does not fail as these did."""
    return min(
        FAILS_WITHIN_S, _MARGIN_S + 2 * max((failure.seconds for failure in failures), default=FAILS_WITHIN_S)
    )


def find_cleared_jobs(failures: Iterable[Failure]) -> frozenset[int]:
    """Jobs that failed on three hosts."""
    hosts: defaultdict[int, set[HostName]] = defaultdict(set)
    for failure in failures:
        hosts[failure.job_id].add(failure.host)
    return frozenset(job for job, hosts_of_job in hosts.items() if len(hosts_of_job) >= _CLEARS)


def _enough(failures: Collection[Failure]) -> bool:
    return (
        len(failures) >= _LEAST_FAILURES
        and len({failure.tq_id for failure in failures}) >= _LEAST_TASK_QUEUES
    )


@dataclass(slots=True)
class _TrialSum:
    attempts: int = 0
    failed: int = 0

    @property
    def mostly_fails(self) -> bool:
        return 2 * self.failed >= self.attempts


class _Trials:
    """Task queue -> host -> sum."""

    def __init__(self, tried: Iterable[HostTrial]) -> None:
        self.sums: defaultdict[int, defaultdict[HostName, _TrialSum]] = defaultdict(
            lambda: defaultdict(_TrialSum)
        )
        for trial in tried:
            if trial.host.host:  # one that is not known may be any
                tally = self.sums[trial.tq_id][trial.host]
                tally.attempts += trial.attempts
                tally.failed += trial.failed
        self.failing = {
            tq_id: sum(tally.mostly_fails for tally in by_host.values())
            for tq_id, by_host in self.sums.items()
        }

    def fails_only_on(self, host: HostName, tq_id: int) -> bool:
        """Whether three quarters fail here, and less than half on other hosts, each with one vote: another black hole
        has most attempts.
        """
        tally = self.sums[tq_id].get(host, _TrialSum())
        others = len(self.sums[tq_id]) - (host in self.sums[tq_id])
        failing = self.failing.get(tq_id, 0) - (host in self.sums[tq_id] and tally.mostly_fails)
        return 4 * tally.failed >= 3 * tally.attempts and 2 * failing < others

    def together(self, queues: Iterable[int]) -> dict[HostName, _TrialSum]:
        sums: defaultdict[HostName, _TrialSum] = defaultdict(_TrialSum)
        for tq_id in queues:
            for host, tally in self.sums[tq_id].items():
                sums[host].attempts += tally.attempts
                sums[host].failed += tally.failed
        return sums


def _evidence(host: HostName, failures: Iterable[Failure], trials: _Trials) -> HostEvidence | None:
    ordered = sorted(failures)
    against = {tq_id for tq_id in {failure.tq_id for failure in ordered} if trials.fails_only_on(host, tq_id)}
    counted = [failure for failure in ordered if failure.tq_id in against]
    if not _enough(counted):
        return None
    others = trials.together(against)
    tally = others.pop(host, _TrialSum())
    return HostEvidence(
        failures=len(counted),
        task_queues=len(against),
        attempts=max(tally.attempts, len(counted)),
        hosts=len(others),
        hosts_failing=sum(other.mostly_fails for other in others.values()),
        jobs=[failure.job_id for failure in counted[-_MOST_JOBS:]],
    )


def judge_hosts(
    records: Mapping[HostName, HostRecord],
    failures: Collection[Failure],
    tried: Collection[HostTrial],
    now: float,
) -> Iterator[tuple[HostName, HostRecord | None]]:
    """The new record of each host that changes; None: forgotten."""
    guilty = find_cleared_jobs(failures)
    for host, record in records.items():
        evidence = record.evidence
        clears = evidence is not None and not evidence.whole_site and not guilty.isdisjoint(evidence.jobs)
        if record.shut and not record.by and evidence is not None and clears:
            left = [job for job in evidence.jobs if job not in guilty]
            if len(left) < _LEAST_FAILURES:
                yield host, None
        elif not record.shut and now - record.since >= _FORGIVEN_S:
            yield host, None
    trials = _Trials(tried)
    for host, found_there in find_suspects(failures, now).items():
        before = records.get(host)
        if before is None or not before.shut:
            since = 0.0 if before is None else before.since
            against = _evidence(host, (failure for failure in found_there if failure.at > since), trials)
            if against is not None:
                yield host, shut_host(before, now, against)


def failing_sites(
    failures: Iterable[Failure], tried: Iterable[HostTrial], now: float
) -> dict[str, HostEvidence]:
    """Sites with the same evidence, all their hosts together."""
    trials = _Trials(trial._replace(host=_as_one(trial.host)) for trial in tried if trial.host.host)
    judged = {
        place.site: _evidence(place, failures_there, trials)
        for place, failures_there in _by_site(failures, now).items()
    }
    return {
        site: replace(against, whole_site=True) for site, against in judged.items() if against is not None
    }


def shut_with_sites(
    sites: Mapping[str, HostEvidence],
    records: Mapping[HostName, HostRecord],
    failures: Iterable[Failure],
    now: float,
) -> Iterator[tuple[HostName, HostRecord]]:
    """At a failing site one failure shuts a host."""
    newest: dict[HostName, float] = {}
    for failure in failures:
        if failure.host.host and failure.host.site in sites:
            newest[failure.host] = max(failure.at, newest.get(failure.host, 0.0))
    for host, at in newest.items():
        before = records.get(host)
        if before is None or (not before.shut and at > before.since):
            yield host, shut_host(before, now, sites[host.site])


def suspects_by_site(failures: Iterable[Failure], now: float) -> list[Failure]:
    """Failures at sites with enough of them."""
    return [failure for failures_there in _by_site(failures, now).values() for failure in failures_there]


def _by_site(failures: Iterable[Failure], now: float) -> dict[HostName, list[Failure]]:
    return find_suspects(
        (failure._replace(host=_as_one(failure.host)) for failure in failures if failure.host.host), now
    )


def _as_one(host: HostName) -> HostName:
    return HostName(host.site, "*")


def shut_host(record: HostRecord | None, now: float, against: HostEvidence | None = None) -> HostRecord:
    """Shut a host, or keep it shut: each time twice as long, up to 4 hours."""
    trips = 0 if record is None else record.trips
    wait_s = min(_FIRST_WAIT_S * 2.0 ** min(trips, 30), _LONGEST_WAIT_S)
    since = record.since if record is not None and record.shut else now
    kept = record.evidence if record is not None and against is None else against
    fault = record.fault if record is not None and record.shut and against is None else ""
    return HostRecord(
        shut=True, since=since, retry_at=now + wait_s, trips=trips + 1, evidence=kept, fault=fault
    )


def shut_by_fault(record: HostRecord | None, fault: str, now: float) -> HostRecord | None:
    """Shut a host where a pilot found the machine of no use; None: no change."""
    if record is not None and record.shut and (record.by or not may_probe(record, now)):
        return None
    return replace(shut_host(record, now), evidence=None, fault=fault[:_MOST_WORDS])


def open_host(record: HostRecord, now: float) -> HostRecord:
    """Open a host; only its count of shuttings stays."""
    return HostRecord(shut=False, since=now, trips=record.trips)


def after_probe(record: HostRecord, state: str, cause: str, seconds: float, now: float) -> HostRecord | None:
    """Open, or shut for longer; None: another probe decides."""
    holds = probe_holds(state, cause, seconds)
    if holds is None:
        return None
    return open_host(record, now) if holds else shut_host(record, now)


def still_holds(judged: HostRecord | None, known: HostRecord | None) -> bool:
    """False if the host was shut or opened meanwhile, or an administrator shut it."""
    if judged is not None:
        return known is None or (not known.shut and known.since < judged.since)
    return known is not None and not (known.shut and known.by)


def may_probe(record: HostRecord, now: float) -> bool:
    """Whether a shut host gets a probe."""
    return record.retry_at is not None and now >= record.retry_at
