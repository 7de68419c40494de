"""How the server is: its health, and what it counts, for people and for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lodesman.base.errors import Unavailable
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.live.core import Core
from lodesman.server.store import Reader
from lodesman.server.store.accounts import count_accounts
from lodesman.server.store.director import breaker_orders, breakers
from lodesman.server.store.hosts import host_records
from lodesman.server.store.read.pilots import unreached_pilots
from lodesman.server.store.read.usage import count_jobs, count_pilots, count_waiting
from lodesman.server.store.read.why import waiting_by_reason
from lodesman.wire import calls, inner_calls, server
from lodesman.wire.call import Nothing
from lodesman.wire.nodes import QueueId
from lodesman.wire.pilots import UNREACHED_SECONDS
from lodesman.wire.vocabulary import BreakerState, StartFault


class UpkeepFigures(Struct, frozen=True, kw_only=True):
    """What upkeep counted since its process began, and how it stands."""

    failures: Mapping[str, int] = field(default_factory=dict)  # by step
    succeeded_at: Mapping[str, float] = field(default_factory=dict)  # by step
    repaired: Mapping[str, int] = field(default_factory=dict)  # by fault, of the reconciler
    gates: Mapping[str, bool] = field(default_factory=dict)  # by site: whether it is open
    failed_starts: Mapping[tuple[QueueId, StartFault], int] = field(default_factory=dict)
    breakers: Mapping[QueueId, BreakerState] = field(default_factory=dict)  # absent: closed

    def of_queues(self, queues: Collection[QueueId]) -> UpkeepFigures:
        """What concerns these CE queues and their sites."""
        sites = {queue.site for queue in queues}
        return UpkeepFigures(
            gates={site: is_open for site, is_open in self.gates.items() if site in sites},
            failed_starts={key: number for key, number in self.failed_starts.items() if key[0] in queues},
            breakers={queue: state for queue, state in self.breakers.items() if queue in queues},
        )


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


# --- the hot process -----------------------------------------------------------------------------------------------------


@serves(calls.HEALTH)
async def _is_well(core: Core, _request: Request[Nothing, Nothing]) -> server.Health:
    """`degraded`: the background process or the database fails. Raises Unavailable."""
    if not core.journal.is_open:
        raise Unavailable("The server takes no changes: its writer has ended.")
    now, ticks = core.clock(), core.ticks()
    return server.Health(
        status="ok" if core.background.is_well(ticks) and not core.journal.trouble else "degraded",
        time=now,
        commits=core.journal.commits,
        configuration=core.configuration().in_short(now),
        background=core.background.answer(ticks),
        local_pilots=core.local_pilots(count_accounts(core.reader)),
        trouble=core.journal.trouble,
        warnings=_warnings(core),
        faults=_faults(core),
    )


def _warnings(core: Core) -> list[str]:
    """Strangers ask, too: sites have no names here."""
    db = core.reader
    failing = {place for place, breaker in breakers(db).items() if breaker.failures}
    opened = {place for place, breaker in breakers(db).items() if breaker.state is not BreakerState.CLOSED}
    orders = breaker_orders(db)
    opened -= {place for place, order in orders.items() if order.state == "closed"}
    opened |= {place for place, order in orders.items() if order.state == "open"}
    failing -= opened | orders.keys()
    troubles = ((opened, "the breaker is open"), (failing, "the last ones failed"))
    pilots = [
        f"{_queues(places)} not start pilots: {why} (lode site ls)" for places, why in troubles if places
    ]
    if away := unreached_pilots(db, core.clock() - UNREACHED_SECONDS):
        run = "1 pilot runs and has" if away == 1 else f"{away} pilots run and have"
        pilots.append(f"{run} not reached this server: is public_url of [server] right? (lode pilot ls)")
    return [core.openness, *pilots] if core.openness else pilots


# Of what is left out, so many are named.
_NAMED: Final = 10
# By the kind of a repair.
_MENDED = {
    "waiting_without_queue": "Jobs that waited in no task queue",
    "active_without_attempt": "Jobs that ran without an attempt",
    "wrong_counters": "Task queues that counted other jobs than wait in them",
    "attempts_without_job": "Attempts that lived without a job",
    "attempts_not_named": "Attempts that lived though their jobs did not name them",
    "attempts_of_ended_pilots": "Attempts that lived though their pilots had ended",
    "wrong_outputs": "Outputs that had another size than was stored of them",
    "wrong_usage": "Users whose files took another space than was counted",
}


def _faults(core: Core) -> list[str]:
    repaired, failed = core.live.repaired, core.journal.faults
    mended = [f"{words}: {repaired[kind]}, mended." for kind, words in _MENDED.items() if repaired[kind]]
    state = core.background.said
    left_out, damaged = _named(map(_for_strangers, state.left_out)), _named(state.damaged)
    return [
        *mended,
        *([f"What the server cannot handle now, and leaves out: {left_out}."] if left_out else []),
        *([f"Files were damaged, as by a power cut: {damaged}."] if damaged else []),
        *([f"Changes that the server failed to make, and rolled back: {failed}."] if failed else []),
    ]


def _named(items: Iterable[str]) -> str:
    names = sorted(items)
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def _for_strangers(item: str) -> str:
    kind = next((kind for kind in ("CE queue", "breaker", "site", "user") if item.startswith(f"{kind} ")), "")
    return f"a {kind} (lode why names it)" if kind else item


def _queues(places: Collection[QueueId]) -> str:
    return "1 CE queue does" if len(places) == 1 else f"{len(places)} CE queues do"


def own_metrics(core: Core, *, of_all: bool) -> bytes:
    """/metrics without the background process; `of_all`: of all VOs."""
    figures = {**(asdict(_hot_figures(core)) if of_all else {}), "background_up": 0}
    lines = []
    for name, value in figures.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP lodesman_{name} Of the hot process", f"# TYPE lodesman_{name} {kind}"]
        lines.append(f"lodesman_{name} {float(value)!r}")
    return "\n".join([*lines, ""]).encode()


@serves(inner_calls.HOT_METRICS)
async def _hot_metrics(core: Core, _request: Request[Nothing, Nothing]) -> server.HotMetrics:
    return _hot_figures(core)


def _hot_figures(core: Core) -> server.HotMetrics:
    configuration, background, ticks = core.configuration(), core.background, core.ticks()
    return server.HotMetrics(
        background_heard_seconds_ago=ticks - background.at,
        background_ok=int(background.is_well(ticks)),
        background_restarts_total=background.restarts,
        configuration_loaded_timestamp_seconds=configuration.loaded_at,
        configuration_refused=int(configuration.refused_at is not None),
        configuration_refusals_total=configuration.refusals,
        database_ok=int(not core.journal.trouble),
        commits_total=core.journal.commits,
        commands_total=core.journal.commands,
        claims_total=core.counts.claims,
        claimed_jobs_total=core.counts.claimed_jobs,
        submitted_jobs_total=core.counts.submitted_jobs,
        pilots_joined=len(core.sessions),
        clock_jumps_total=core.clock_watch.jumps,
    )
