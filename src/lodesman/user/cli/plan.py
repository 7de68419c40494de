"""`lode plan`, and `lode submit --dry-run`: dry runs of jobs, of other resources and of other shares. Nothing is stored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource
from msgspec import to_builtins

from lodesman.user.cli.arguments import Parsed, limit_option
from lodesman.user.cli.drafts import Outcome, ReadyFile, Wanted, description_options, read_all, warn
from lodesman.user.cli.faults import FAILED
from lodesman.user.cli.job_command import JobCommand
from lodesman.user.cli.plan_resources import both, percents, plan_resources, show_director
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, note_all, patience, say, show_table, state
from lodesman.user.cli.why import show_explained, show_suggestions, show_verdict
from lodesman.user.cli.words import counted, joined, plain
from lodesman.wire import calls
from lodesman.wire.plans import JobPlan, PlannedCohort, SharedPlaces, WaitingGroup
from lodesman.wire.requests import PlanSharesBody
from lodesman.wire.site_ads import PlanGatesBody
from lodesman.wire.vocabulary import FORMS

_GATE: Final = re.compile(r"(?P<site>.+?):(?P<name>[A-Za-z_]\w*)=(?P<text>.+)", re.DOTALL)


class GateChange(NamedTuple):
    """An attribute that a site is taken to advertise, with its expression."""

    site: str
    name: str
    text: str


def gate_change(word: str) -> GateChange:
    """SITE:ATTRIBUTE=EXPRESSION. Raises ValueError for anything else."""
    found = _GATE.fullmatch(word)
    if found is None:
        raise ValueError(f"{word[:60]!r} is not SITE:ATTRIBUTE=EXPRESSION, as North:MaxJobs=200.")
    return GateChange(found["site"], found["name"], found["text"])


def plan_gates(session: Session, gates: Iterable[GateChange], limit: int) -> None:
    """Show the next iteration of the director as sites advertise themselves, and with these attributes instead."""
    asked: dict[str, dict[str, str]] = {}
    for one in gates:
        asked.setdefault(one.site, {})[one.name] = one.text
    with patience("The server works out two iterations of the director."):
        answer = session.answer(calls.PLAN_GATES, body=PlanGatesBody(asked, limit=limit))
    show_director(answer)


_FEW = 5
_COHORTS = ("members", ">jobs", "verdict", ">queues", ">of", ">task queue", ">waiting there")
_GROUPS = ("group", "vo", ">waiting", ">share", ">then", ">starts", ">then", ">an hour", ">then")
_PLACES = (">queues", "at", "group", ">starts", ">then")


@click.group(invoke_without_command=True, no_args_is_help=True)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    type=Parsed("gate", gate_change),
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
        plan_gates(session, gates, limit)
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
    return plan_files(session, files, Wanted(**options), verbose=verbose)


def plan_files(session: Session, files: Sequence[str], wanted: Wanted, *, verbose: bool = False) -> int:
    """Plan all files; returns the exit code."""
    outcome, refused = Outcome(), False
    ready = read_all(session, files, wanted, outcome)
    if not outcome.faults:
        with patience("The server is working it out."):
            for one, answer in outcome.each(ready, lambda one: session.call(calls.PLAN_JOB, body=one.body)):
                refused = refused or answer.refusal is not None
                outcome.made.append({"file": one.label, **to_builtins(answer)})
                if not session.as_json:
                    if len(outcome.made) > 1:
                        click.echo()
                    _show_job(one, answer, verbose=verbose)
    return outcome.finish(session, "plans") or (FAILED if refused else 0)


def _show_job(draft: ReadyFile, answer: JobPlan, *, verbose: bool) -> None:
    warn(draft.label, answer.notices, as_written=draft.as_written)
    if draft.body.hold:
        note(f"{draft.label}: it would be Held until you release it; this is what would become of it then.")
    click.echo(_first_line(draft.label, answer))
    cohorts = answer.cohorts
    if len(cohorts) == 1:
        who, queue = "It" if cohorts[0].jobs == 1 else "They", cohorts[0].task_queue
        there = counted(queue.waiting_before, "waiting job")
        which = "a new task queue" if queue.new else f"task queue {queue.id}, which has {there}"
        click.echo(f"{who} would join {which}.")
        show_explained(cohorts[0], _members(cohorts[0], answer.count), verbose=verbose)
        return
    show_table(_COHORTS, map(_cohort, cohorts))
    if answer.more_cohorts:
        note(f"and {counted(answer.more_cohorts, 'more cohort')}.")
    # The first few that are not `now`, one for each different summary.
    problems = {one.summary: one for one in reversed(cohorts) if one.verdict != "now"}
    for one in islice(reversed(problems.values()), _FEW):
        click.echo()
        show_verdict(one, _members(one, answer.count))
        show_suggestions(one.queues.nearest, one.queues.total)


def _first_line(label: str, answer: JobPlan) -> str:
    what = f"{plain(label)}: {counted(answer.count, 'job')}"
    if answer.refusal:
        many = f"no queue could run {answer.verdicts.never:,} of them"
        return f"{what} would be refused, since {'no queue could run it' if answer.count == 1 else many}."
    held = f", {answer.held:,} of them Held" if answer.held else ""
    return f"{what} would be submitted{held}, for group {plain(answer.group)}."


def _members(one: PlannedCohort, count: int) -> str:
    """`The job`, `All 30 members`, `Members 0-4, 7`."""
    if one.jobs == count:
        return "The job" if count == 1 else f"All {count:,} members"
    return f"{'Member' if one.jobs == 1 else 'Members'} {_ranges(one)}"


def _ranges(one: PlannedCohort) -> str:
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in one.members)
    return f"{text}, ..." if one.more_members else text


def _cohort(one: PlannedCohort) -> list[Cell]:
    queue, queues = one.task_queue, one.queues
    first: list[Cell] = [_ranges(one), one.jobs, state(one.verdict), queues.eligible, queues.total]
    return [*first, "new" if queue.new else str(queue.id), queue.waiting_before]


def _group_share(word: str) -> tuple[str, float]:
    """GROUP=SHARE. Raises ValueError for anything else."""
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
    "shares", nargs=-1, required=True, type=Parsed("share", _group_share), metavar="GROUP=SHARE..."
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
    return [row.group, row.vo, row.waiting, *both(row.share), *percents(row.part), *hour]


def _place(place: SharedPlaces) -> Iterator[list[Cell]]:
    more = f" and {counted(place.more_sites, 'site')} more" if place.more_sites else ""
    first: list[Cell] = [place.queues, f"{joined(place.sites)}{more}"]
    for group, part in place.groups.items():
        yield [*first, group, *percents(part)]
        first = ["", ""]


plan.add_command(plan_resources)
