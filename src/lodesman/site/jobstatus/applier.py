"""Does what a plan says: each job is read again before it goes, drains are watched, the audit has a line for every step."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, TextIO

from lodesman.site.jobstatus.sites.door import Act, SiteDoor, SiteFault, perform
from lodesman.site.jobstatus.survey import LookAt, with_status
from lodesman.site.jobstatus.vacate.candidates import DRAIN, KILL, Candidate, Terms, price, silent_rate
from lodesman.site.jobstatus.vacate.plan import HOSTS, VacatePlan, VacateRequest, Victim, make_plan
from lodesman.site.jobstatus.vacate.several import ResourceNeed
from lodesman.site.jobstatus.vacate_memory import VacateMemory

MOVED = 0.1
"""The part by which the cost of a job may differ from the plan's."""
_LEFT = "left"  # by itself, before its turn
_MOST_PLANS = 3  # in a row without an act: on a busy site something always changes
OLD_S = 2.0
"""What others publish is read again after these seconds, or ten times as long as reading takes."""


@dataclass
class Applier:
    """One call of `vacate --apply`. `settle_s`: how long killed jobs may take. `memory`: what was learned."""

    door: SiteDoor
    look_at: LookAt
    audit: TextIO
    known: dict[str, Candidate]
    memory: VacateMemory
    poll_s: float = 10.0
    settle_s: float = 120.0
    clock: Callable[[], float] = time.time
    wait: Callable[[float], None] = time.sleep
    do: Callable[[Act], None] = perform
    acted: dict[str, Victim] = field(default_factory=dict)
    acted_at: dict[str, float] = field(default_factory=dict)
    read_at: float = 0.0
    reading_s: float = 0.0
    failed: set[str] = field(default_factory=set)

    def run(self, plan: VacatePlan) -> VacatePlan | None:
        """Returns a plan of what is missing in the end; None: all is free. Raises SiteFault."""
        too_much: dict[str, list[str]] = {}
        for job in plan.clamped:
            too_much.setdefault(self.known[job].owner, []).append(job)
        self._note(
            "plan", cost=plan.cost, victims=[victim.job for victim in plan.victims], claims_too_much=too_much
        )
        self.read_at = plan.made_at
        parts = list(_parts(plan))
        ends = plan.made_at + plan.request.terms.drains_within
        lacking = self._carry_out_all(parts, ends) or self._watch(plan, ends)
        if lacking is None and self._overdue():
            # Drains that did not end in time: what is missing is made free now.
            for victim in self._overdue():
                del self.acted[victim.job]
            lacking = self._carry_out_all([(request, []) for request, _ in parts], 0.0) or self._watch(
                plan, 0.0
            )
        self._note("end", missing=lacking and lacking.missing and asdict(lacking.missing))
        return lacking

    def _carry_out_all(self, parts: Sequence[_Part], ends: float) -> VacatePlan | None:
        lacks = (self._carry_out(request, planned, ends) for request, planned in parts)
        return next(filter(None, lacks), None)

    def _carry_out(self, request: VacateRequest, planned: Sequence[Victim], ends: float) -> VacatePlan | None:
        plans = 0
        while _is_needed(self._lack(request)):
            now, is_same = self.clock(), self._refresh(planned)
            todo = [
                victim for victim in planned if victim.job not in self.acted and victim.job not in self.failed
            ]
            if todo and plans < _MOST_PLANS and is_same:
                is_same = not self._has_moved(todo[0], _at(request, ends, now).terms, now)
            if not todo or not (is_same or plans >= _MOST_PLANS):
                plan = self._plan_again(request, ends, now)
                if not plan.is_feasible:
                    return plan
                planned, plans = plan.victims, plans + 1
            else:
                self._act(todo[0], ends, now)
                plans = 0
        return None

    def _refresh(self, planned: Sequence[Victim]) -> bool:
        """Whether the running jobs are the same and were read lately, else they are. One that leaves by itself counts as
        made to go.
        """
        listed, now = {job.job: job for job in self.door.running()}, self.clock()
        running = {name: job for name, job in listed.items() if not job.leaving}
        is_old = not 0 <= now - self.read_at <= max(OLD_S, 10 * self.reading_s)
        for victim in planned:
            if victim.job not in running and victim.job not in self.acted:
                self.acted[victim.job] = replace(victim, action=_LEFT)
                self._note(_LEFT, job=victim.job)
        came = [
            job
            for name, job in running.items()
            if name not in self.known or (is_old and name not in self.acted)
        ]
        went = [name for name in self.known if name not in running]
        for name in went:
            if name not in listed or name not in self.acted:
                del self.known[name]
                if name in self.acted_at:
                    self._note("gone", job=name)
        came = [replace(job, can_drain=self.door.can_drain(job)) for job in came]
        looked = with_status(came, self.look_at, now)
        if came or is_old:
            history = self.memory.update(running.values(), now, looked)
            self.known.update((job.job, history.judged(job)) for job in looked)
        if is_old:
            self.read_at, self.reading_s = now, self.clock() - now
        return not came and all(job in self.acted for job in went)

    def _has_moved(self, victim: Victim, terms: Terms, now: float) -> bool:
        (job,) = with_status([self.known[victim.job]], self.look_at, now)
        self.known[victim.job] = job = self.memory.history.judged(job)
        cost = price(job, terms, silent_rate(self.known.values(), terms, now), now)
        return cost.action != victim.action or abs(cost.cost - victim.cost) > MOVED * victim.cost

    def _plan_again(self, request: VacateRequest, ends: float, now: float) -> VacatePlan:
        stay = (*request.exclude, *self.acted, *self.failed)
        spent = sum(victim.cost for victim in self.acted.values() if victim.action != _LEFT)
        most = None if request.max_waste is None else request.max_waste - spent
        smaller = replace(_at(request, ends, now), need=self._lack(request), exclude=stay, max_waste=most)
        plan = make_plan(list(self.known.values()), smaller, now)
        self._note("plan", cost=plan.cost, victims=[victim.job for victim in plan.victims])
        return plan

    def _lack(self, request: VacateRequest) -> ResourceNeed:
        need = request.need
        for victim in self.acted.values():
            if not request.hosts or set(request.hosts) & set(victim.nodes):
                need = ResourceNeed(
                    need.cores - victim.cores, need.memory_mb - victim.memory_mb, need.gpus - victim.gpus
                )
        return need

    def _act(self, victim: Victim, ends: float, now: float) -> None:
        job = self.known[victim.job]
        acts = self.door.kill(job) if victim.action == KILL else self.door.drain(job, ends, now)
        facts = {name: value for name, value in asdict(victim).items() if name not in ("action", "commands")}
        self._note(victim.action, commands=[str(act) for act in acts], **facts)
        if victim.action == KILL:
            self.memory.update(self.known.values(), now, killed=(job.job,))
        try:
            if not acts and victim.action == KILL:
                raise SiteFault("There is no way to kill it.")
            for act in acts:
                self.do(act)
        except SiteFault as fault:
            self.failed.add(victim.job)
            self._note("failed", job=victim.job, why=str(fault))
        else:
            self.acted[victim.job], self.acted_at[victim.job] = victim, now

    def _overdue(self) -> list[Victim]:
        return [
            victim for victim in self.acted.values() if victim.action == DRAIN and victim.job in self.known
        ]

    def _watch(self, plan: VacatePlan, ends: float) -> VacatePlan | None:
        """Until all that was made to go is gone; drains have until the deadline, the rest settle_s and what a kill takes."""
        until = self.clock() + self.settle_s + plan.request.terms.kill_s
        while True:
            with suppress(SiteFault):  # it may answer the next time
                running = {job.job: job for job in self.door.running()}
                self.memory.update([job for job in running.values() if not job.leaving], self.clock())
                for name in [
                    name
                    for name in self.acted
                    if name in self.known and self._has_gone(name, running.get(name))
                ]:
                    del self.known[name]
                    self._note("gone", job=name)
            waiting = [victim for victim in self.acted.values() if victim.job in self.known]
            drains, now = [victim for victim in waiting if victim.action == DRAIN], self.clock()
            if not waiting or (len(drains) == len(waiting) and now >= ends):
                return None
            if now >= max(until, ends if drains else 0.0):
                return replace(
                    plan, missing=ResourceNeed(sum(victim.cores for victim in waiting)), victims=waiting
                )
            self.wait(min(self.poll_s, max(0.1, ends - now)) if drains else min(self.poll_s, 1.0))

    def _has_gone(self, job: str, candidate: Candidate | None) -> bool:
        """A job that waited may have started anew under its id; one that is leaving holds its cores."""
        if candidate is None or candidate.leaving:
            return candidate is None
        at = self.acted_at.get(job, 0.0)
        return candidate.started > self.known[job].started and candidate.started >= math.floor(at)

    def _note(self, event: str, **facts: Any) -> None:
        line = json.dumps({"time": round(self.clock(), 3), "event": event, **facts}, default=list)
        self.audit.write(line + "\n")
        self.audit.flush()


_Part = tuple[VacateRequest, Sequence[Victim]]


def _parts(plan: VacatePlan) -> Iterator[_Part]:
    if not any(plan.places):
        yield plan.request, plan.victims
    for node in filter(None, plan.places):
        yield (
            replace(plan.request, scope=HOSTS, hosts=(node,), nodes=None),
            [victim for victim in plan.victims if node in victim.nodes],
        )


def _at(request: VacateRequest, ends: float, now: float) -> VacateRequest:
    terms = request.terms
    return replace(request, terms=replace(terms, within=max(0.0, ends - now) + terms.kill_s))


def _is_needed(lack: ResourceNeed) -> bool:
    return lack.cores > 0 or lack.memory_mb > 0 or lack.gpus > 0
