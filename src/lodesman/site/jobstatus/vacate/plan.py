"""The plan: which jobs go, how, when cores are free at what cost; or what is missing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Callable

from lodesman.site.jobstatus.vacate.candidates import Candidate, Terms, price, silent_rate
from lodesman.site.jobstatus.vacate.choice import (
    Release,
    VacateChoice,
    cheapest_strict,
    inversions,
    with_lower_priority,
)
from lodesman.site.jobstatus.vacate.several import ResourceNeed, cheapest_for
from lodesman.site.jobstatus.waste import SILENT_SECONDS

TIEBREAK, STRICT, OFF = "tiebreak", "strict", "off"
CLAMPED = frozenset(("kill-clamped", "draining-clamped"))
ANY_NODE, ONE_NODE, HOSTS = "any-node", "node", "hosts"


@dataclass(frozen=True)
class VacateRequest:
    """What is to be freed."""

    need: ResourceNeed
    scope: str = ANY_NODE  # on any nodes together, on one node, or on `hosts` together
    hosts: Sequence[str] = ()
    nodes: int | None = None  # on each of this many nodes (of `hosts`, if any)
    terms: Terms = field(default_factory=Terms)
    priority: str = TIEBREAK
    max_waste: int | None = None  # core-seconds
    exclude: Sequence[str] = ()  # jobs that stay


@dataclass(frozen=True)
class Victim:
    """A job that goes, and what it frees where asked. Times are seconds from the plan's."""

    job: str
    owner: str
    nodes: Sequence[str]
    cores: int
    memory_mb: int
    gpus: int
    priority: int
    action: str
    cost: int
    frees_expected: int | None
    frees_max: int | None
    reason: str
    age: float | None
    flags: Sequence[str]
    commands: Sequence[str]


@dataclass(frozen=True)
class VacatePlan:
    """Costs are core-seconds."""

    made_at: float
    request: VacateRequest
    victims: Sequence[Victim] = ()
    cost: int = 0
    cost_without_priority: int = 0  # of the cheapest jobs
    inversions: int = 0
    youngest_first: int | None = None  # what killing the youngest jobs of the same nodes would lose
    proven: bool = True  # no cheaper set exists
    missing: ResourceNeed | None = None  # what all jobs together do not free
    too_dear: bool = False
    too_old: bool = False  # all that jobs publish is too old
    places: Sequence[str] = ()  # the nodes that were chosen; '' where none was
    clamped: Sequence[str] = ()  # jobs that claim more than they can lose
    candidates: int = 0  # how many jobs could go
    silent: int = 0  # how many of them say nothing

    @property
    def is_feasible(self) -> bool:
        """Something is to be done, and may be."""
        return self.missing is None and not self.too_dear and not self.too_old


Commands = Callable[[Candidate, str], Sequence[str]]
"""What the batch system calls an action on a job, in lines for people."""


def make_plan(
    candidates: Sequence[Candidate],
    request: VacateRequest,
    now: float,
    commands: Commands | None = None,
) -> VacatePlan:
    """Of the cheapest jobs that free enough, at `now` (UNIX seconds)."""
    ages = [job.age for job in candidates if job.age is not None]
    planner = _Planner(candidates, request, now)
    plan = VacatePlan(
        now,
        request,
        too_old=bool(ages) and min(ages) > SILENT_SECONDS,
        clamped=sorted(
            job.job
            for job in planner.jobs.values()
            if job.estimate and not CLAMPED.isdisjoint(job.estimate.flags)
        ),
        candidates=len(planner.jobs),
        silent=sum(job.is_silent for job in planner.jobs.values()),
    )
    selection = planner.choose(request.priority)
    if selection is None:
        return replace(plan, missing=planner.missing())
    cheapest = planner.choose(OFF) or selection
    victims = [planner.victim(job, commands) for job in selection.choice.releases]
    return replace(
        plan,
        victims=sorted(victims, key=lambda job: (job.action, -job.cost, job.job)),
        places=selection.places,
        cost=selection.choice.cost,
        cost_without_priority=cheapest.choice.cost,
        inversions=inversions(selection.choice.releases, planner.at(selection.places)),
        youngest_first=planner.youngest_first(selection.places),
        proven=selection.choice.proven,
        too_dear=request.max_waste is not None and selection.choice.cost > request.max_waste,
    )


@dataclass(frozen=True)
class _Selection:
    places: Sequence[str]
    choice: VacateChoice


class _Planner:
    def __init__(self, candidates: Sequence[Candidate], request: VacateRequest, now: float) -> None:
        self.request, self.now = request, now
        stay = set(request.exclude)
        self.jobs = {job.job: job for job in candidates if job.job not in stay and job.cores > 0}
        self.rate = silent_rate(self.jobs.values(), request.terms, now)
        self.prices = {name: price(job, request.terms, self.rate, now) for name, job in self.jobs.items()}
        self.by_node = request.scope == ONE_NODE or request.nodes is not None
        self.places: dict[str, list[Release]] = {} if self.by_node else {"": []}
        for job in self.jobs.values():
            self._offer(job)

    def clamped(self) -> list[str]:
        flags = ((job.job, job.estimate.flags) for job in self.jobs.values() if job.estimate)
        return sorted(name for name, raised in flags if not CLAMPED.isdisjoint(raised))

    def _offer(self, job: Candidate) -> None:
        hosts = self.request.hosts
        nodes = [node for node in job.nodes if not hosts or node in hosts]
        if self.by_node:
            for node in nodes:
                self.places.setdefault(node, []).append(self._release(job, 1))
        elif nodes or not hosts:
            self.places[""].append(self._release(job, len(nodes)))

    def _release(self, job: Candidate, nodes: int) -> Release:
        """On some of its nodes: an equal part on each, rounded down."""
        every = max(1, len(job.nodes))
        part = nodes if nodes and job.nodes else every
        frees = [amount * part // every for amount in (job.cores, job.memory_mb, job.gpus)]
        cost = self.prices[job.job].cost
        return Release(job.job, job.owner, job.priority, frees[0], cost, memory_mb=frees[1], gpus=frees[2])

    def choose(self, priority: str) -> _Selection | None:
        """Jobs that span nodes are counted once, and then the set is not proven."""
        count = self.request.nodes or 1
        choices = {name: self._choose_at(self.places[name], priority) for name in self.places}
        best = sorted(
            (choice.cost, len(choice.releases), name, choice) for name, choice in choices.items() if choice
        )[:count]
        if len(best) < count:
            return None
        jobs = {job.job: job for *_, choice in best for job in choice.releases}
        apart = count == 1 or all(len(job.nodes) <= 1 for job in self.jobs.values())
        proven = apart and all(choice.proven for *_, choice in best)
        return _Selection([name for _, _, name, _ in best], VacateChoice(list(jobs.values()), proven))

    def _choose_at(self, releases: Sequence[Release], priority: str) -> VacateChoice | None:
        need = self.request.need
        if priority == STRICT:
            return cheapest_strict(releases, need.cores)
        choice = cheapest_for(releases, need)
        return with_lower_priority(choice, releases) if choice and priority == TIEBREAK else choice

    def at(self, places: Sequence[str]) -> list[Release]:
        return [release for name in places for release in self.places[name]]

    def missing(self) -> ResourceNeed:
        """What the place with most of it lacks, each kind by itself."""
        frees = [
            (
                sum(release.cores for release in jobs),
                sum(release.memory_mb for release in jobs),
                sum(release.gpus for release in jobs),
            )
            for jobs in self.places.values()
        ] or [(0, 0, 0)]
        need, count = self.request.need, self.request.nodes or 1
        needed = (need.cores, need.memory_mb, need.gpus)
        lacks = []
        for amount, kinds in zip(needed, zip(*frees)):
            most = [*sorted(kinds, reverse=True)[:count], *[0] * (count - len(kinds))]
            lacks.append(sum(max(0, amount - release) for release in most))
        return ResourceNeed(*lacks)

    def youngest_first(self, places: Sequence[str]) -> int:
        now_terms = replace(self.request.terms, within=0.0)
        lost: dict[str, int] = {}
        for name in places:
            left = self.request.need
            for release in sorted(
                self.places[name], key=lambda release: (-self.jobs[release.job].started, release.job)
            ):
                if left.cores <= 0 and left.memory_mb <= 0 and left.gpus <= 0:
                    break
                left = ResourceNeed(
                    left.cores - release.cores, left.memory_mb - release.memory_mb, left.gpus - release.gpus
                )
                lost[release.job] = price(self.jobs[release.job], now_terms, self.rate, self.now).cost
        return sum(lost.values())

    def victim(self, release: Release, commands: Commands | None) -> Victim:
        job, cost = self.jobs[release.job], self.prices[release.job]
        return Victim(
            job.job, job.owner, job.nodes, release.cores, release.memory_mb, release.gpus, job.priority,
            cost.action, cost.cost, cost.frees_expected, cost.frees_max, cost.reason, job.age, cost.flags,
            tuple(commands(job, cost.action)) if commands else (),
        )  # fmt: skip
