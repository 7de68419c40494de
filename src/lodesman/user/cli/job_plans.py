"""`lode plan job` and `lode submit --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import click
from msgspec import to_builtins

from lodesman.user.cli.drafts import DescriptionOptions, Outcome, ReadyFile, read_all, warn
from lodesman.user.cli.explanations import show_explained, show_suggestions, show_verdict
from lodesman.user.cli.faults import FAILED
from lodesman.user.cli.progress import patience
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import Cell, note, show_table, state
from lodesman.user.cli.words import counted, plain
from lodesman.wire import calls
from lodesman.wire.plans import JobPlan, PlannedCohort

_COHORTS = ("members", ">jobs", "verdict", ">queues", ">of", ">task queue", ">waiting there")
_FEW = 5


def plan_files(
    session: Session, files: Sequence[str], options: DescriptionOptions, *, verbose: bool = False
) -> int:
    """Returns the exit code."""
    outcome, refused = Outcome(), False
    ready = read_all(session, files, options, outcome)
    if not outcome.faults:
        with patience("The server is working it out."):
            for draft, answer in outcome.each(
                ready, lambda draft: session.call(calls.PLAN_JOB, body=draft.body)
            ):
                refused = refused or answer.refusal is not None
                outcome.made.append({"file": draft.label, **to_builtins(answer)})
                if not session.as_json:
                    if len(outcome.made) > 1:
                        click.echo()
                    _show_job(draft, answer, verbose=verbose)
    return outcome.finish(session, "plans") or (FAILED if refused else 0)


def _show_job(draft: ReadyFile, answer: JobPlan, *, verbose: bool) -> None:
    warn(draft.label, answer.notices, as_written=draft.as_written)
    if draft.body.hold:
        note(f"{draft.label}: it would be Held until you release it; this is what would become of it then.")
    click.echo(_first_line(draft.label, answer))
    cohorts = answer.cohorts
    if len(cohorts) == 1:
        who, queue = "It" if cohorts[0].jobs == 1 else "They", cohorts[0].task_queue
        waiting = counted(queue.waiting_before, "waiting job")
        which = "a new task queue" if queue.new else f"task queue {queue.id}, which has {waiting}"
        click.echo(f"{who} would join {which}.")
        show_explained(cohorts[0], _members(cohorts[0], answer.count), verbose=verbose)
        return
    show_table(_COHORTS, map(_cohort, cohorts))
    if answer.more_cohorts:
        note(f"and {counted(answer.more_cohorts, 'more cohort')}.")
    # The first few that are not `now`, one for each different summary.
    problems = {cohort.summary: cohort for cohort in reversed(cohorts) if cohort.verdict != "now"}
    for cohort in islice(reversed(problems.values()), _FEW):
        click.echo()
        show_verdict(cohort, _members(cohort, answer.count))
        show_suggestions(cohort.queues.nearest, cohort.queues.total)


def _first_line(label: str, answer: JobPlan) -> str:
    jobs = f"{plain(label)}: {counted(answer.count, 'job')}"
    if answer.refusal:
        many = f"no queue could run {answer.verdicts.never:,} of them"
        return f"{jobs} would be refused, since {'no queue could run it' if answer.count == 1 else many}."
    held = f", {answer.held:,} of them Held" if answer.held else ""
    return f"{jobs} would be submitted{held}, for group {plain(answer.group)}."


def _members(cohort: PlannedCohort, count: int) -> str:
    """`The job`, `All 30 members`, `Members 0-4, 7`."""
    if cohort.jobs == count:
        return "The job" if count == 1 else f"All {count:,} members"
    return f"{'Member' if cohort.jobs == 1 else 'Members'} {_ranges(cohort)}"


def _ranges(cohort: PlannedCohort) -> str:
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in cohort.members)
    return f"{text}, ..." if cohort.more_members else text


def _cohort(cohort: PlannedCohort) -> list[Cell]:
    queue, queues = cohort.task_queue, cohort.queues
    first: list[Cell] = [_ranges(cohort), cohort.jobs, state(cohort.verdict), queues.eligible, queues.total]
    return [*first, "new" if queue.new else str(queue.id), queue.waiting_before]
