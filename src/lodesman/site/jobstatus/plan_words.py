"""What `vacate` says of a plan, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lodesman.site.jobstatus.sites.door import shown
from lodesman.site.jobstatus.vacate.candidates import KILL, Candidate
from lodesman.site.jobstatus.vacate.plan import VacatePlan, Victim

_HOUR = 3600
_NAMED = 20


def as_json(plan: VacatePlan) -> str:
    """One object; what is not known is null."""
    found = asdict(plan)
    found["feasible"] = plan.is_feasible
    return json.dumps(found, default=list) + "\n"


def in_words(plan: VacatePlan) -> Iterator[str]:
    """The plan for people."""
    if plan.too_old:
        yield "All that jobs publish is older than an hour: the pilots, or the reading of their files, do not work."
        return
    if plan.missing is not None:
        yield from missing_in_words(plan)
        return
    total = sum(one.cores for one in plan.victims)
    cores = "1 core" if total == 1 else f"{total:,} cores"
    where = f" on {', '.join(map(shown, plan.places))}" if any(plan.places) else ""
    yield f"Vacate {_jobs(len(plan.victims))} of {plan.candidates:,}{where}: {cores}, {_hours(plan.cost)} lost."
    yield f"  {'action':<6} {'job':<14} {'owner':<12} {'cores':>5} {'free in':>16} {'core-hours':>10} {'data':>6}  why"
    for one in plan.victims:
        yield from _victim(one)
    yield from _late(plan)
    if plan.youngest_first is not None:
        yield f"The youngest jobs first would lose {_hours(plan.youngest_first)}."
    more = plan.cost - plan.cost_without_priority
    if more or plan.inversions:
        yield f"Priority of owners costs {_hours(more)}; {_jobs(plan.inversions)} of higher priority than one that stays."
    if not plan.proven:
        yield "There may be a cheaper choice: not all were tried."
    if plan.clamped:
        yield f"These claim to lose more than they can: {', '.join(map(shown, plan.clamped))}."
    if plan.silent:
        yield f"Of the {_jobs(plan.candidates)}, {plan.silent:,} publish{'es' if plan.silent == 1 else ''} nothing."
    if plan.too_dear and plan.request.max_waste is not None:
        yield f"That is more than --max-waste allows, {_hours(plan.request.max_waste)}: it is not done."


def _late(plan: VacatePlan) -> Iterator[str]:
    within = plan.request.terms.within
    late = [one.frees_max for one in plan.victims if one.frees_max is not None and one.frees_max > within > 0]
    if late:
        yield (
            f"Of these, {_jobs(len(late))} may hold cores for {_time(max(late))}, longer than --within {_time(within)}: "
            "what the batch system waits before SIGKILL, and epilogs, count."
        )


def unread_in_words(candidates: Sequence[Candidate]) -> Iterator[str]:
    """The jobs that publish what could not be read, by reason."""
    found: dict[str, list[str]] = {}
    for one in candidates:
        if one.status is None and one.note:
            found.setdefault(one.note, []).append(shown(one.job))
    for note, jobs in found.items():
        more = f" and {len(jobs) - _NAMED:,} more" if len(jobs) > _NAMED else ""
        yield f"Charged as if they published nothing, each since {note}: {', '.join(jobs[:_NAMED])}{more}."


def _victim(one: Victim) -> Iterator[str]:
    is_now = one.action == KILL and not one.frees_max
    expected = "now" if is_now else _range(one.frees_expected, one.frees_max)
    age = "-" if one.age is None else _time(one.age)
    flags = f" [{', '.join(one.flags)}]" if one.flags else ""
    owner, job = shown(one.owner), shown(one.job)
    yield (
        f"  {one.action:<6} {job:<14} {owner:<12} {one.cores:>5} {expected:>16} {one.cost / _HOUR:>10.2f} {age:>6}  "
        f"{one.reason}{flags}"
    )
    for command in one.commands:
        yield f"         {shown(command)}"


def missing_in_words(plan: VacatePlan) -> Iterator[str]:
    """What there is not enough of."""
    lacks = plan.missing or plan.request.need
    kinds = (
        (lacks.cores, "core", "cores"),
        (lacks.memory_mb, "MB of memory", "MB of memory"),
        (lacks.gpus, "GPU", "GPUs"),
    )
    found = ", ".join(
        f"{amount:,} {one if amount == 1 else more}" for amount, one, more in kinds if amount > 0
    )
    yield f"Not enough: of {_jobs(plan.candidates)} that could go, {found or 'nothing'} would still be missing."


def still_there_in_words(plan: VacatePlan) -> Iterator[str]:
    """The jobs that were made to go and hold their cores."""
    if plan.victims:
        names = ", ".join(shown(one.job) for one in plan.victims[:_NAMED])
        holds = "holds its" if len(plan.victims) == 1 else "hold their"
        yield f"{_jobs(len(plan.victims))} made to go still {holds} cores, by the batch system's own word: {names}."


def _jobs(count: int) -> str:
    return f"{count:,} job" + ("" if count == 1 else "s")


def _hours(core_seconds: int) -> str:
    return f"{core_seconds / _HOUR:,.2f} core-hours"


def _range(expected: int | None, most: int | None) -> str:
    return " to ".join("?" if one is None else _time(one) for one in (expected, most))


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / _HOUR:.1f}h"
