"""What the server counts, for Prometheus; rendered by the background process, which alone loads its library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lodesman.server.http.health import UpkeepFigures
from lodesman.server.store import Reader
from lodesman.server.store.hosts import host_records
from lodesman.server.store.read.usage import count_jobs, count_pilots, count_waiting
from lodesman.server.store.read.why import waiting_by_reason
from lodesman.wire.vocabulary import BreakerState


def database_metrics(db: Reader, vo: str = "", sites: Collection[str] = ()) -> list[Metric]:
    """Of all or of one VO. It goes through all jobs: for a thread."""
    # A scraper refuses a text that has one series twice: owners are added up.
    jobs: Counter[tuple[str, str]] = Counter()
    for one in count_jobs(db, vo=vo):
        jobs[one.group, one.state] += one.jobs
    pilots = {(one.site, one.state): one.pilots for one in count_pilots(db, vo)}
    queues, waiting = count_waiting(db, vo)
    reasons = {(one.reason, one.detail, one.verdict): one.jobs for one in waiting_by_reason(db, vo).reasons}
    shut = dict.fromkeys(("evidence", "order"), 0) | Counter(
        "order" if record.by else "evidence"
        for host, record in host_records(db).items()
        if record.shut and (not vo or host.site in sites)
    )
    by_reason = "Waiting jobs, and those Held because nothing can run them, by pending reason"
    return [
        _family("jobs", "Jobs by group and state", jobs, "group", "state"),
        _family("pilots", "Pilots by site and state", pilots, "site", "state"),
        _family("task_queues", "Task queues with waiting jobs", {(): queues}),
        _family("waiting_jobs", "Jobs waiting in task queues", {(): waiting}),
        _family("shut_hosts", "Hosts that get no jobs, by what shut them", shut, "cause"),
        _family("waiting_jobs_by_reason", by_reason, reasons, "reason", "detail", "verdict"),
    ]


def render_metrics(
    database: Iterable[Metric], hot: Mapping[str, float], upkeep: UpkeepFigures, *, closed_queues: int = 0
) -> bytes:
    """The text of /metrics."""
    closed, repaired = "CE queues that administrators closed", "What the reconciler found wrong and repaired"
    succeeded = "When a step last succeeded"
    gates = {
        "open": sum(upkeep.gates.values()),
        "shut": sum(not is_open for is_open in upkeep.gates.values()),
    }
    metrics = [
        *database,
        _family("closed_queues", closed, {(): closed_queues}),
        _family("site_gates", "Sites that advertise themselves, by the state of their gates", gates, "state"),
        *_pilot_starts(upkeep),
        _family("background_up", "Whether the background process answered", {(): 1}),
        *(_family(name, "Of the hot process", {(): value}) for name, value in hot.items()),
        _family("upkeep_failures_total", "Steps of upkeep that failed", upkeep.failures, "step"),
        _family("upkeep_success_timestamp_seconds", succeeded, upkeep.succeeded_at, "step"),
        _family("reconciled_total", repaired, upkeep.repaired, "fault"),
    ]
    return generate_latest(_Gathered(metrics))


def _pilot_starts(upkeep: UpkeepFigures) -> Iterator[Metric]:
    """Of breakers those that are or were not closed: the others are as many as queues."""
    failed = {(*queue, cause.value): count for (queue, cause), count in upkeep.failed_starts.items()}
    words = "Starts of pilots that failed, by CE queue and cause"
    yield _family("failed_pilot_starts_total", words, failed, "site", "ce", "queue", "cause")
    codes = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}
    seen = dict.fromkeys((queue for queue, _ in upkeep.failed_starts), BreakerState.CLOSED)
    states = {queue: codes[state] for queue, state in {**seen, **upkeep.breakers}.items()}
    words = "Breakers of CE queues whose pilots failed to start: 0 closed, 1 half-open, 2 open"
    yield _family("breaker_state", words, states, "site", "ce", "queue")
    opened = Counter(state.value for state in upkeep.breakers.values() if state is not BreakerState.CLOSED)
    open_words = "CE queues with a breaker that is not closed, by state"
    yield _family("breakers", open_words, {"open": 0, "half-open": 0} | opened, "state")


class _Gathered(list[Metric], Collector):
    def collect(self) -> Iterable[Metric]:
        return self


def _family(name: str, words: str, values: Mapping[Any, float], *labels: str) -> Metric:
    """The name says whether it only grows."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(f"lodesman_{name}", words, labels=labels)
    for label, value in values.items():
        family.add_metric([label] if isinstance(label, str) else label, value)
    return family
