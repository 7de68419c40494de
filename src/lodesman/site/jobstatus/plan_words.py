"""What `vacate` says of a plan, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lodesman.base.errors import counted
from lodesman.site.jobstatus.sites.door import shown
from lodesman.site.jobstatus.vacate.candidates import KILL, Candidate
from lodesman.site.jobstatus.vacate.plan import VacatePlan, Victim

_HOUR = 3600
_NAMED = 20


def as_json(plan: VacatePlan) -> str:
    """What is not known is null."""
    record = asdict(plan)
    record["feasible"] = plan.is_feasible
    return json.dumps(record, default=list) + "\n"


def in_words(plan: VacatePlan) -> Iterator[str]:
    """The plan for people."""
    if plan.too_old:
        yield "All that jobs publish is older than an hour: the pilots, or the reading of their files, do not work."
        return
    if plan.missing is not None:
        yield from missing_in_words(plan)
        return
    total = sum(victim.cores for victim in plan.victims)
    cores = counted(total, "core")
    where = f" on {', '.join(map(shown, plan.places))}" if any(plan.places) else ""
    yield f"Vacate {counted(len(plan.victims), 'job')} of {plan.candidates:,}{where}: {cores}, {_hours(plan.cost)} lost."
    yield f"  {'action':<6} {'job':<14} {'owner':<12} {'cores':>5} {'free in':>16} {'core-hours':>10} {'data':>6}  why"
    for victim in plan.victims:
        yield from _victim(victim)
    yield from _late(plan)
    if plan.youngest_first is not None:
        yield f"The youngest jobs first would lose {_hours(plan.youngest_first)}."
    more = plan.cost - plan.cost_without_priority
    if more or plan.inversions:
        spared = counted(plan.inversions, "job")
        yield f"Priority of owners costs {_hours(more)}; {spared} of higher priority than one that stays."
    if not plan.proven:
        yield "There may be a cheaper choice: not all were tried."
    if plan.clamped:
        yield f"These claim to lose more than they can: {', '.join(map(shown, plan.clamped))}."
    if plan.silent:
        yield f"Of the {counted(plan.candidates, 'job')}, {plan.silent:,} publish{'es' if plan.silent == 1 else ''} nothing."
    if plan.too_dear and plan.request.max_waste is not None:
        yield f"That is more than --max-waste allows, {_hours(plan.request.max_waste)}: it is not done."


def _late(plan: VacatePlan) -> Iterator[str]:
    within = plan.request.terms.within
    late = [
        victim.frees_max
        for victim in plan.victims
        if victim.frees_max is not None and victim.frees_max > within > 0
    ]
    if late:
        yield (
            f"Of these, {counted(len(late), 'job')} may hold cores for {_time(max(late))}, "
            f"longer than --within {_time(within)}: "
            "what the batch system waits before SIGKILL, and epilogs, count."
        )


def unread_in_words(candidates: Sequence[Candidate]) -> Iterator[str]:
    """The jobs by reason."""
    reasons: dict[str, list[str]] = {}
    for job in candidates:
        if job.status is None and job.note:
            reasons.setdefault(job.note, []).append(shown(job.job))
    for note, jobs in reasons.items():
        more = f" and {len(jobs) - _NAMED:,} more" if len(jobs) > _NAMED else ""
        yield f"Charged as if they published nothing, each since {note}: {', '.join(jobs[:_NAMED])}{more}."


def _victim(victim: Victim) -> Iterator[str]:
    is_now = victim.action == KILL and not victim.frees_max
    expected = "now" if is_now else _range(victim.frees_expected, victim.frees_max)
    age = "-" if victim.age is None else _time(victim.age)
    flags = f" [{', '.join(victim.flags)}]" if victim.flags else ""
    owner, job = shown(victim.owner), shown(victim.job)
    yield (
        f"  {victim.action:<6} {job:<14} {owner:<12} {victim.cores:>5} {expected:>16} {victim.cost / _HOUR:>10.2f}"
        f" {age:>6}  "
        f"{victim.reason}{flags}"
    )
    for command in victim.commands:
        yield f"         {shown(command)}"


def missing_in_words(plan: VacatePlan) -> Iterator[str]:
    """What there is not enough of."""
    lacks = plan.missing or plan.request.need
    kinds = (
        (lacks.cores, "core", "cores"),
        (lacks.memory_mb, "MB of memory", "MB of memory"),
        (lacks.gpus, "GPU", "GPUs"),
    )
    words = ", ".join(
        f"{amount:,} {single if amount == 1 else more}" for amount, single, more in kinds if amount > 0
    )
    yield f"Not enough: of {counted(plan.candidates, 'job')} that could go, {words or 'nothing'} would still be missing."


def still_there_in_words(plan: VacatePlan) -> Iterator[str]:
    """Jobs that were made to go and hold their cores."""
    if plan.victims:
        names = ", ".join(shown(victim.job) for victim in plan.victims[:_NAMED])
        holds = "holds its" if len(plan.victims) == 1 else "hold their"
        yield f"{counted(len(plan.victims), 'job')} made to go still {holds} cores, by the batch system's own word: {names}."


def _hours(core_seconds: int) -> str:
    return f"{core_seconds / _HOUR:,.2f} core-hours"


def _range(expected: int | None, most: int | None) -> str:
    return " to ".join("?" if seconds is None else _time(seconds) for seconds in (expected, most))


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / _HOUR:.1f}h"
