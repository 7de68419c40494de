"""How the server is, as the hot process says it. What Prometheus reads of the whole server is in `metrics`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import asdict

from lodesman.base.errors import Unavailable
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.live.core import Core
from lodesman.server.store.accounts import count_accounts
from lodesman.server.store.director import breaker_orders, breakers
from lodesman.server.store.read.pilots import unreached_pilots
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
