"""The plan: which jobs go, how, when their cores are free and what it costs; or what is missing. Pure."""

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
from lodesman.site.jobstatus.vacate.several import ToFree, cheapest_for
from lodesman.site.jobstatus.waste import SILENT_SECONDS

TIEBREAK, STRICT, OFF = "tiebreak", "strict", "off"
CLAMPED = frozenset(("kill-clamped", "draining-clamped"))
ANY_NODE, ONE_NODE, HOSTS = "any-node", "node", "hosts"


@dataclass(frozen=True)
class VacateRequest:
    """What is to be freed."""

    need: ToFree
    scope: str = ANY_NODE  # on any nodes together, on one node, or on `hosts` together
    hosts: Sequence[str] = ()
    nodes: int | None = None  # on each of this many nodes (of `hosts`, if any)
    terms: Terms = field(default_factory=Terms)
    priority: str = TIEBREAK
    max_waste: int | None = None  # core-seconds
    exclude: Sequence[str] = ()  # jobs that stay


@dataclass(frozen=True)
class Victim:
    """A job that goes. Cores, memory and GPUs: what it frees where it was asked for. Times are seconds from the plan's."""

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
    """What to do. Costs are core-seconds."""

    made_at: float
    request: VacateRequest
    victims: Sequence[Victim] = ()
    cost: int = 0
    cost_without_priority: int = 0  # of the cheapest jobs
    inversions: int = 0
    youngest_first: int | None = None  # what killing the youngest jobs of the same nodes would lose
    proven: bool = True  # no cheaper set exists
    missing: ToFree | None = None  # what all jobs together do not free
    too_dear: bool = False
    too_old: bool = False  # all that jobs publish is too old
    places: Sequence[str] = ()  # the nodes that were chosen; '' where none was
    clamped: Sequence[str] = ()  # jobs that claim more than they can lose
    candidates: int = 0  # how many jobs could go
    silent: int = 0  # how many of them say nothing

    @property
    def is_feasible(self) -> bool:
        """There is something to do, and it may be done."""
        return self.missing is None and not self.too_dear and not self.too_old


Commands = Callable[[Candidate, str], Sequence[str]]
"""What the batch system calls an action on a job, as lines for people."""


def make_plan(
    candidates: Sequence[Candidate],
    request: VacateRequest,
    now: float,
    commands: Commands | None = None,
) -> VacatePlan:
    """The cheapest jobs that free what is asked for, at `now` (UNIX seconds)."""
    ages = [one.age for one in candidates if one.age is not None]
    planner = _Planner(candidates, request, now)
    plan = VacatePlan(
        now,
        request,
        too_old=bool(ages) and min(ages) > SILENT_SECONDS,
        clamped=sorted(
            one.job
            for one in planner.there.values()
            if one.estimate and not CLAMPED.isdisjoint(one.estimate.flags)
        ),
        candidates=len(planner.there),
        silent=sum(one.is_silent for one in planner.there.values()),
    )
    found = planner.choose(request.priority)
    if found is None:
        return replace(plan, missing=planner.missing())
    cheapest = planner.choose(OFF) or found
    victims = [planner.victim(one, commands) for one in found.choice.releases]
    return replace(
        plan,
        victims=sorted(victims, key=lambda one: (one.action, -one.cost, one.job)),
        places=found.places,
        cost=found.choice.cost,
        cost_without_priority=cheapest.choice.cost,
        inversions=inversions(found.choice.releases, planner.at(found.places)),
        youngest_first=planner.youngest_first(found.places),
        proven=found.choice.proven,
        too_dear=request.max_waste is not None and found.choice.cost > request.max_waste,
    )


@dataclass(frozen=True)
class _Found:
    """Jobs, and the places that they were chosen for."""

    places: Sequence[str]
    choice: VacateChoice


class _Planner:
    """The jobs that may go, with their prices, and what each frees everywhere or on a node."""

    def __init__(self, candidates: Sequence[Candidate], request: VacateRequest, now: float) -> None:
        self.request, self.now = request, now
        stay = set(request.exclude)
        self.there = {one.job: one for one in candidates if one.job not in stay and one.cores > 0}
        self.rate = silent_rate(self.there.values(), request.terms, now)
        self.prices = {job: price(one, request.terms, self.rate, now) for job, one in self.there.items()}
        self.by_node = request.scope == ONE_NODE or request.nodes is not None
        self.places: dict[str, list[Release]] = {} if self.by_node else {"": []}
        for one in self.there.values():
            self._offer(one)

    def clamped(self) -> list[str]:
        """The jobs that claim more than they can lose."""
        known = ((one.job, one.estimate.flags) for one in self.there.values() if one.estimate)
        return sorted(job for job, flags in known if not CLAMPED.isdisjoint(flags))

    def _offer(self, one: Candidate) -> None:
        hosts = self.request.hosts
        nodes = [node for node in one.nodes if not hosts or node in hosts]
        if self.by_node:
            for node in nodes:
                self.places.setdefault(node, []).append(self._release(one, 1))
        elif nodes or not hosts:
            self.places[""].append(self._release(one, len(nodes)))

    def _release(self, one: Candidate, nodes: int) -> Release:
        """What it frees on some of its nodes: an equal part on each, rounded down."""
        every = max(1, len(one.nodes))
        part = nodes if nodes and one.nodes else every
        frees = [amount * part // every for amount in (one.cores, one.memory_mb, one.gpus)]
        cost = self.prices[one.job].cost
        return Release(one.job, one.owner, one.priority, frees[0], cost, memory_mb=frees[1], gpus=frees[2])

    def choose(self, priority: str) -> _Found | None:
        """The cheapest place or places. Jobs that span nodes are counted once, and then the set is not proven."""
        count = self.request.nodes or 1
        found = {name: self._choose_at(self.places[name], priority) for name in self.places}
        best = sorted(
            (choice.cost, len(choice.releases), name, choice) for name, choice in found.items() if choice
        )[:count]
        if len(best) < count:
            return None
        jobs = {one.job: one for *_, choice in best for one in choice.releases}
        apart = count == 1 or all(len(one.nodes) <= 1 for one in self.there.values())
        proven = apart and all(choice.proven for *_, choice in best)
        return _Found([name for _, _, name, _ in best], VacateChoice(list(jobs.values()), proven))

    def _choose_at(self, releases: Sequence[Release], priority: str) -> VacateChoice | None:
        need = self.request.need
        if priority == STRICT:
            return cheapest_strict(releases, need.cores)
        choice = cheapest_for(releases, need)
        return with_lower_priority(choice, releases) if choice and priority == TIEBREAK else choice

    def at(self, places: Sequence[str]) -> list[Release]:
        """What could go at these places."""
        return [one for name in places for one in self.places[name]]

    def missing(self) -> ToFree:
        """What the place that has most of it lacks, each kind by itself."""
        frees = [
            (
                sum(one.cores for one in jobs),
                sum(one.memory_mb for one in jobs),
                sum(one.gpus for one in jobs),
            )
            for jobs in self.places.values()
        ] or [(0, 0, 0)]
        need, count = self.request.need, self.request.nodes or 1
        wanted = (need.cores, need.memory_mb, need.gpus)
        lacks = []
        for amount, kinds in zip(wanted, zip(*frees)):
            most = [*sorted(kinds, reverse=True)[:count], *[0] * (count - len(kinds))]
            lacks.append(sum(max(0, amount - one) for one in most))
        return ToFree(*lacks)

    def youngest_first(self, places: Sequence[str]) -> int:
        """What is lost if the youngest jobs at these places are killed until enough is free."""
        now_terms = replace(self.request.terms, within=0.0)
        lost: dict[str, int] = {}
        for name in places:
            left = self.request.need
            for one in sorted(self.places[name], key=lambda one: (-self.there[one.job].started, one.job)):
                if left.cores <= 0 and left.memory_mb <= 0 and left.gpus <= 0:
                    break
                left = ToFree(left.cores - one.cores, left.memory_mb - one.memory_mb, left.gpus - one.gpus)
                lost[one.job] = price(self.there[one.job], now_terms, self.rate, self.now).cost
        return sum(lost.values())

    def victim(self, release: Release, commands: Commands | None) -> Victim:
        """A chosen job, with all that there is to say about it."""
        one, cost = self.there[release.job], self.prices[release.job]
        return Victim(
            one.job, one.owner, one.nodes, release.cores, release.memory_mb, release.gpus, one.priority,
            cost.action, cost.cost, cost.frees_expected, cost.frees_max, cost.reason, one.age, cost.flags,
            tuple(commands(one, cost.action)) if commands else (),
        )  # fmt: skip
