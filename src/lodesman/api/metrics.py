"""Prometheus metrics, gathered in the reading process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import apsw
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lodesman.services.why.main_reasons import waiting_by_reason
from lodesman.store import views
from lodesman.store.engine import only_row

PILOTS = "SELECT site, state, count(*) FROM pilot GROUP BY site, state"
QUEUES = "SELECT count(*), coalesce(sum(waiting), 0) FROM queue_waiting WHERE waiting > 0"


class _Collector:
    """Reads the database at each scrape: nothing is counted twice."""

    def __init__(self, db: apsw.Connection, hot: Mapping[str, float]) -> None:
        self._db = db
        self._hot = hot

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        jobs = GaugeMetricFamily("lodesman_jobs", "Jobs by group and state", labels=["group", "state"])
        # A scraper refuses a text that has one series twice: owners are added up.
        counts: Counter[tuple[str, str]] = Counter()
        for _, group, state, n in views.job_counts(self._db):
            counts[group, state] += n
        for labels, n in counts.items():
            jobs.add_metric(labels, n)
        yield jobs
        pilots = GaugeMetricFamily("lodesman_pilots", "Pilots by site and state", labels=["site", "state"])
        for site, state, n in self._db.execute(PILOTS):
            pilots.add_metric([site, state], n)
        yield pilots
        queues, waiting = only_row(self._db, QUEUES)
        yield GaugeMetricFamily("lodesman_task_queues", "Task queues with waiting jobs", value=queues)
        yield GaugeMetricFamily("lodesman_waiting_jobs", "Jobs waiting in task queues", value=waiting)
        reasons = GaugeMetricFamily(
            "lodesman_waiting_jobs_by_reason",
            "Waiting jobs by main reason",
            labels=["reason", "detail", "verdict"],
        )
        for one in waiting_by_reason(self._db).reasons:
            reasons.add_metric([one.reason, one.detail, one.verdict], one.jobs)
        yield reasons
        for name, value in self._hot.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(f"lodesman_{name.removesuffix('_total')}", "Of the hot process", value=value)


def render_metrics(db: apsw.Connection, hot: Mapping[str, float]) -> bytes:
    """The text of /metrics."""
    registry = CollectorRegistry()
    registry.register(_Collector(db, hot))
    return generate_latest(registry)
