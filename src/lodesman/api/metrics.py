"""Prometheus metrics, gathered in the reading process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lodesman.answers.task_queues import WaitingReasons
from lodesman.answers.usage import PilotCount
from lodesman.store import Reader
from lodesman.store.read.usage import count_jobs, count_pilots, count_waiting
from lodesman.store.read.why import waiting_by_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepFigures:
    """What upkeep counts since its process began: by step, and what the reconciler repaired by fault."""

    failures: Mapping[str, int] = field(default_factory=dict)
    succeeded_at: Mapping[str, float] = field(default_factory=dict)
    repaired: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the database says. `jobs` by (group, state)."""

    jobs: Mapping[tuple[str, str], int]
    pilots: Sequence[PilotCount]
    queues: int
    waiting: int
    reasons: WaitingReasons


def gather(db: Reader) -> Figures:
    """Goes through all jobs: for a thread."""
    # A scraper refuses a text that has one series twice: owners are added up.
    jobs: Counter[tuple[str, str]] = Counter()
    for one in count_jobs(db):
        jobs[one.group, one.state] += one.jobs
    queues, waiting = count_waiting(db)
    return Figures(
        jobs=jobs, pilots=count_pilots(db), queues=queues, waiting=waiting, reasons=waiting_by_reason(db),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Collector:
    """Nothing is counted twice: each scrape tells what was gathered."""

    figures: Figures
    hot: Mapping[str, float]
    upkeep: UpkeepFigures
    closed_queues: int

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        found = self.figures
        jobs = GaugeMetricFamily("lodesman_jobs", "Jobs by group and state", labels=["group", "state"])
        for labels, n in found.jobs.items():
            jobs.add_metric(labels, n)
        yield jobs
        pilots = GaugeMetricFamily("lodesman_pilots", "Pilots by site and state", labels=["site", "state"])
        for one in found.pilots:
            pilots.add_metric([one.site, one.state], one.pilots)
        yield pilots
        yield GaugeMetricFamily("lodesman_task_queues", "Task queues with waiting jobs", value=found.queues)
        yield GaugeMetricFamily("lodesman_waiting_jobs", "Jobs waiting in task queues", value=found.waiting)
        yield GaugeMetricFamily(
            "lodesman_closed_queues", "CE queues that administrators closed", value=self.closed_queues
        )
        reasons = GaugeMetricFamily(
            "lodesman_waiting_jobs_by_reason",
            "Waiting jobs, and those Held because nothing can run them, by main reason",
            labels=["reason", "detail", "verdict"],
        )
        for reason in found.reasons.reasons:
            reasons.add_metric([reason.reason, reason.detail, reason.verdict], reason.jobs)
        yield reasons
        for name, value in self.hot.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(f"lodesman_{name.removesuffix('_total')}", "Of the hot process", value=value)
        yield from self._upkeep()

    def _upkeep(self) -> Iterator[Metric]:
        found = self.upkeep
        failures = CounterMetricFamily(
            "lodesman_upkeep_failures", "Steps of upkeep that failed", labels=["step"]
        )
        success = GaugeMetricFamily(
            "lodesman_upkeep_success_timestamp_seconds", "When a step last succeeded", labels=["step"]
        )
        repaired = CounterMetricFamily(
            "lodesman_reconciled", "What the reconciler found wrong and repaired", labels=["fault"]
        )
        for family, values in (
            (failures, found.failures),
            (success, found.succeeded_at),
            (repaired, found.repaired),
        ):
            for name, value in values.items():
                family.add_metric([name], value)
            yield family


def render_metrics(
    figures: Figures, hot: Mapping[str, float], upkeep: UpkeepFigures, *, closed_queues: int = 0
) -> bytes:
    """The text of /metrics."""
    registry = CollectorRegistry()
    registry.register(_Collector(figures=figures, hot=hot, upkeep=upkeep, closed_queues=closed_queues))
    return generate_latest(registry)
