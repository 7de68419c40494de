"""`lode plan`: nothing is stored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from lodesman.base.errors import InvalidRequest, TooLarge
from lodesman.user.cli.arguments import FILE, ParsedArgument, limit_option
from lodesman.user.cli.drafts import DescriptionOptions, description_options
from lodesman.user.cli.job_command import JobCommand
from lodesman.user.cli.job_plans import plan_files
from lodesman.user.cli.progress import patience
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, note_all, say, show_table
from lodesman.user.cli.words import counted, joined, number, path_of, percent, shown
from lodesman.wire import calls, plans
from lodesman.wire.plans import SharedPlaces, WaitingGroup
from lodesman.wire.requests import PlanFileBody, PlanResourcesBody, PlanSharesBody
from lodesman.wire.site_ads import PlanGatesBody
from lodesman.wire.vocabulary import FORMS

_GATE: Final = re.compile(r"(?P<site>.+?):(?P<name>[A-Za-z_]\w*)=(?P<text>.+)", re.DOTALL)


class GateChange(NamedTuple):
    """An attribute that a site is taken to advertise."""

    site: str
    name: str
    text: str  # an expression


def _gate_change(word: str) -> GateChange:
    match = _GATE.fullmatch(word)
    if match is None:
        raise ValueError(f"{word[:60]!r} is not SITE:ATTRIBUTE=EXPRESSION, as North:MaxJobs=200.")
    return GateChange(match["site"], match["name"], match["text"])


def _plan_gates(session: Session, gates: Iterable[GateChange], limit: int) -> None:
    changes: dict[str, dict[str, str]] = {}
    for gate in gates:
        changes.setdefault(gate.site, {})[gate.name] = gate.text
    with patience("The server works out two iterations of the director."):
        answer = session.answer(calls.PLAN_GATES, body=PlanGatesBody(changes, limit=limit))
    _show_director(answer)


_GROUPS = ("group", "vo", ">waiting", ">share", ">then", ">starts", ">then", ">an hour", ">then")
_PLACES = (">queues", "at", "group", ">starts", ">then")


@click.group(invoke_without_command=True, no_args_is_help=True)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    type=ParsedArgument("gate", _gate_change),
    metavar="SITE:ATTRIBUTE=EXPRESSION",
    help="What a site is taken to advertise now, beside what its last ad says; may be repeated.",
)
@limit_option(100, 10_000, "rows of each list", least=0)
@with_session
@click.pass_context
def plan(context: click.Context, session: Session, /, *, gates: tuple[GateChange, ...], limit: int) -> None:
    """Show what would happen to jobs, or through other resources, shares or ads of sites.

    Worked out by the server on its live state; nothing is stored. With --gate, as in lode plan --gate FNAL:MaxJobs=200
    --gate FNAL:MaxSubmittingJobs=20: what the director would do next (administrators), pilots by group and queue before
    and after, and the limits that bind. A site that never advertised says these attributes alone.
    """
    if context.invoked_subcommand is None:
        if not gates:
            raise click.UsageError("Name a command, or other ads of sites: --gate North:MaxJobs=200.")
        _plan_gates(session, gates, limit)
    elif gates or context.get_parameter_source("limit") is not ParameterSource.DEFAULT:
        raise click.UsageError("--gate stands alone, and --limit before a command belongs to it.")


@plan.command("job", cls=JobCommand)
@click.argument("files", nargs=-1, metavar="FILE... | SCRIPT [ARG...] | -- COMMAND [ARG...]")
@click.option("--group", default="", metavar="NAME", help="The group that the jobs count for.")
@click.option("--hold", is_flag=True, help="As if submitted with this option.")
@click.option("--hold-if-impossible", is_flag=True, help="As if submitted with this option.")
@description_options
@click.option("--form", type=click.Choice(FORMS), help="The language. [default: found from the text]")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show every step, suggestion and decision of the director."
)
@with_session
def _plan_job(session: Session, /, *, files: tuple[str, ...], verbose: bool, **options: Any) -> int:
    """Plan jobs: show what lode why would show right after they were submitted.

    Each FILE ('-' for standard input) is a description in JDL, CFG or JSON; or a script or command, as for lode submit.
    For each cohort (the members that would
    join one task queue): the queues that can run it, what excludes the others, a suggestion if there is none, the pilots
    that could take it, its group's share. Nothing is submitted and no file is uploaded; files of the InputSandbox must
    exist. The exit code is 1 if one FILE would be refused.
    """
    return plan_files(session, files, DescriptionOptions(**options), verbose=verbose)


def _group_share(word: str) -> tuple[str, float]:
    group, _, text = word.rpartition("=")
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not group or not math.isfinite(share) or share < 0:
        raise ValueError(f"{word[:60]!r} is not GROUP=SHARE; a share is a number of 0 or more.")
    return group, share


@plan.command("share")
@click.argument(
    "shares", nargs=-1, required=True, type=ParsedArgument("share", _group_share), metavar="GROUP=SHARE..."
)
@with_session
def _plan_share(session: Session, /, *, shares: tuple[tuple[str, float], ...]) -> None:
    """Plan other shares: each group's part of the starts, now and then (administrators).

    Parts are those of the groups that have waiting jobs now: in all, and where the same groups compete for the same
    queues. "An hour" is the rate of starts in the last hour, without those by private pilots, parted so. Groups that
    gain most come first.
    """
    if len({group for group, _ in shares}) < len(shares):
        raise click.UsageError("A group is named twice.")
    with patience("The server holds all task queues against all queues."):
        answer = session.answer(calls.PLAN_SHARES, body=PlanSharesBody(dict(shares)))
    note_all(answer.notices)
    show_table(_GROUPS, map(_waiting, answer.groups))
    if not answer.groups:
        say("No job waits: shares matter only among groups that have waiting jobs.")
    for vo, rate in sorted(answer.private_starts_an_hour.items()):
        say(
            f"Beside these, private pilots start {rate:,.1f} jobs of VO {vo} an hour; shares do not change that."
        )
    if answer.places:
        click.echo("\nWhere they compete:")
        show_table(_PLACES, chain.from_iterable(map(_place, answer.places)))
    if answer.without_waiting_jobs:
        names = joined(answer.without_waiting_jobs)
        note(f"No job of {names} waits: without waiting jobs a share changes nothing.")


def _waiting(row: WaitingGroup) -> list[Cell]:
    rate = row.starts_an_hour
    hour = ["", ""] if rate is None else [f"{rate.before:,.1f}", f"{rate.after:,.1f}"]
    return [row.group, row.vo, row.waiting, *_before_after(row.share), *_percents(row.part), *hour]


def _place(place: SharedPlaces) -> Iterator[list[Cell]]:
    more = f" and {counted(place.more_sites, 'site')} more" if place.more_sites else ""
    first: list[Cell] = [place.queues, f"{joined(place.sites)}{more}"]
    for group, part in place.groups.items():
        yield [*first, group, *_percents(part)]
        first = ["", ""]


_MOST_BYTES = 15 << 20
_MOST_LISTED = 10_000
_FEW = 10
_CHANGES = ("change", "what", "value", "before", "after")
_EFFECT = (">before", ">after", ">gained", ">lost")
_TASK_QUEUES = (">tq", "owner", "group", ">jobs", *_EFFECT, "becomes")
_PARTS = ("group", "vo", ">jobs", ">share", ">then", ">starts", ">then")
_PILOTS = ("group", "vo", ">expected", ">then", ">asked", ">then", ">placed", ">then")
_LIMITS = ("limit", "of", ">number", ">then", ">pilots", ">then", "for instance")
_QUEUES = ("queue", ">pilots", ">then", ">free capacity", ">then")


@plan.command("resources")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@click.option("--add", is_flag=True, help="Beside the server's own resource files, not instead of them.")
@limit_option(100, _MOST_LISTED, "rows of each list", least=0)
@with_session
def _plan_resources(session: Session, /, *, files: tuple[Path, ...], add: bool, limit: int) -> None:
    """Plan other resource files: what changes, and for which jobs (administrators).

    The server reads FILE... (TOML if the name ends so, else DIRAC CFG) as its whole resource configuration and reports
    every fault with file, line and section. If there is none: the queues that come, go and change, the eligible queues
    of each task queue before and after, the jobs that would be Held or released, the SubmitPools that change, and what
    the director would do next, before and after: pilots by group and queue, and the limits that bind.
    """
    body = PlanResourcesBody([_file(path) for path in files], add=add, limit=limit)
    with patience("The server holds all task queues against both configurations."):
        answer = session.answer(calls.PLAN_RESOURCES, body=body)
    _show_resources(answer, limit)


def _file(path: Path) -> PlanFileBody:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise TooLarge(f"{path} has more than {_MOST_BYTES} bytes.", limit=_MOST_BYTES)
    try:
        return PlanFileBody(str(path), data.decode("utf-8"))
    except UnicodeDecodeError as fault:
        raise InvalidRequest(f"{path} is not UTF-8: {fault.reason}.") from None


def _show_resources(answer: plans.ResourcesPlan, limit: int) -> None:
    note_all(answer.notices)
    queues = answer.queues
    click.echo(
        f"Queues: {queues.before:,} before, {queues.after:,} after; {queues.added.count:,} added, "
        f"{queues.removed.count:,} removed, {queues.changed.count:,} changed."
    )
    show_table(_CHANGES, _changes(answer))
    if any(_differ(row.share) or _differ(row.part) for row in answer.parts):
        parts = (
            [row.group, row.vo, row.jobs, *_before_after(row.share), *_percents(row.part)]
            for row in answer.parts
        )
        show_table(_PARTS, parts)
    _show_task_queues(answer)
    pools = answer.submit_pools
    click.echo(f"SubmitPools: {pools.checked:,}; the queues of {pools.changed.count:,} change.")
    show_table(
        ("SubmitPool", "vo", *_EFFECT), ([row.id, row.vo, *_effect(row)] for row in pools.changed.rows)
    )
    lists: list[plans.Cut[Any]] = [
        queues.added,
        queues.removed,
        queues.changed,
        answer.task_queues.changed,
        pools.changed,
    ]
    if director := answer.director:
        _show_director(director)
        lists += [director.groups, director.queues, director.only_after, director.only_before]
    longest = max(rows.count for rows in lists)
    if longest > limit:
        note(f"There is more: --limit {min(_MOST_LISTED, longest)}.")


def _changes(answer: plans.ResourcesPlan) -> Iterator[list[Cell]]:
    for change, places in (("added", answer.queues.added), ("removed", answer.queues.removed)):
        for place in places.rows:
            yield [change, path_of(place), "", "", ""]
    for queue in answer.queues.changed.rows:
        seen_by = f" (VO {queue.vo})" if queue.vo else ""
        for name, value in queue.parameters.items():
            yield ["changed", path_of(queue) + seen_by, name, shown(value.before), shown(value.after)]
    for group in answer.groups:
        if not group.values:
            yield [group.change, f"group {group.group}", "", shown(None), shown(None)]
        for name, value in group.values.items():
            yield [group.change, f"group {group.group}", name, shown(value.before), shown(value.after)]
    for row in answer.types:
        yield [row.change, f"parameter {row.parameter}", "type", shown(row.before), shown(row.after)]


def _show_task_queues(answer: plans.ResourcesPlan) -> None:
    effect = answer.task_queues
    changed = effect.changed
    click.echo(f"Task queues: {effect.checked:,} with jobs; the eligible queues of {changed.count:,} change.")
    rows = (
        [str(row.id), row.owner, row.group, row.jobs, *_effect(row), row.becomes or ""]
        for row in changed.rows
    )
    show_table(_TASK_QUEUES, rows)
    for kind, count, words in (
        ("impossible", effect.impossible, "would be Held"), ("possible", effect.possible, "would be released"),
    ):  # fmt: skip
        if count.task_queues:
            click.echo(f"{counted(count.jobs, 'job')} of {counted(count.task_queues, 'task queue')} {words}:")
            for row in changed.rows:
                if row.becomes == kind:
                    say(f"  tq {row.id}, {counted(row.jobs, 'job')}: {row.why}")


def _effect(row: plans.QueueEffect) -> list[Cell]:
    return [row.before, row.after, row.gained, row.lost]


def _before_after(pair: plans.BeforeAfter[Any]) -> list[Cell]:
    return [
        number(round(value, 1) if isinstance(value, float) else value) for value in (pair.before, pair.after)
    ]


def _percents(pair: plans.BeforeAfter[float]) -> list[Cell]:
    return [percent(pair.before), percent(pair.after)]


def _show_director(iteration: plans.PlannedIteration) -> None:
    pilots = iteration.pilots
    if _changes_anything(iteration):
        pairs = (("expected", pilots.expected), ("asked", pilots.asked), ("placed", pilots.placed))
        words = ", ".join(f"{' -> '.join(map(str, _before_after(pair)))} {name}" for name, pair in pairs)
        click.echo(f"Next iteration of the director, pilots before and after: {words}.")
        groups = [
            [
                row.group,
                row.vo,
                *_before_after(row.expected),
                *_before_after(row.asked),
                *_before_after(row.placed),
            ]
            for row in iteration.groups.rows
        ]
        _show_first(_PILOTS, groups, iteration.groups.count)
    else:
        click.echo(
            f"Next iteration of the director: nothing changes, {counted(pilots.asked.after, 'pilot')} asked and "
            f"{pilots.placed.after:,} placed."
        )
    limits = [_limit(row) for row in iteration.limits if row.pilots.after]
    _show_first(_LIMITS, limits, len(limits))
    queues = [
        [path_of(row), *_before_after(row.pilots), *_before_after(row.room)] for row in iteration.queues.rows
    ]
    _show_first(_QUEUES, queues, iteration.queues.count)
    _show_only(iteration.only_after, "only after the change")
    _show_only(iteration.only_before, "only before it")
    for line in iteration.assumed:
        note(f"Assumed: {line}.")


def _changes_anything(iteration: plans.PlannedIteration) -> bool:
    pilots = iteration.pilots
    pairs: list[plans.BeforeAfter[Any]] = [
        pilots.expected,
        pilots.asked,
        pilots.without_submission_pool,
        pilots.placed,
    ]
    for row in iteration.groups.rows:
        pairs += [row.expected, row.asked, row.placed]
    for limit in iteration.limits:
        pairs += [limit.count, limit.pilots]
    return bool(iteration.queues.count) or any(map(_differ, pairs))


def _show_first(titles: Sequence[str], rows: Sequence[Sequence[Cell]], count: int) -> None:
    show_table(titles, rows[:_FEW])
    if rows and count > min(len(rows), _FEW):
        note(f"{count - min(len(rows), _FEW):,} more: --json.")


def _limit(row: plans.BindingLimit) -> list[Cell]:
    name = f"tq {row.example.name}" if row.of == "task queues" else row.example.name
    return [
        row.limit,
        row.of,
        *_before_after(row.count),
        *_before_after(row.pilots),
        f"{name}: {row.example.text}",
    ]


def _show_only(some: plans.TaskQueuesPilots, when: str) -> None:
    if not some.count:
        return
    who = f"{counted(some.count, 'task queue')} {'gets' if some.count == 1 else 'get'} pilots"
    say(f"{who} {when}, {some.pilots:,} together:")
    for row in some.rows[:_FEW]:
        jobs, pilots = counted(row.jobs, "job"), counted(row.pilots, "pilot")
        say(f"  tq {row.id} of {row.owner}, {jobs}: {pilots} to {', '.join(row.queues)}")


def _differ(pair: plans.BeforeAfter[Any]) -> bool:
    return bool(pair.before != pair.after)
