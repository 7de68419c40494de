"""`lode plan job`, and `lode submit --dry-run`: what would become of jobs if they were submitted now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from msgspec import convert

from lodesman.answers.jobs import Notice
from lodesman.cli.drafts import Draft, Outcome, Wanted, read_all, warn
from lodesman.cli.faults import FAILED
from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, patience, show_table, state
from lodesman.cli.why import tell
from lodesman.cli.words import counted, plain
from lodesman.errors import LodesmanError, Unauthorized, Unavailable

PLAN_SECONDS = 180.0
FEW = 5
COLUMNS = (
    Column(title="members"),
    Column(title="jobs", right=True),
    Column(title="verdict"),
    Column(title="queues", right=True),
    Column(title="of", right=True),
    Column(title="task queue", right=True),
    Column(title="waiting there", right=True),
)


@click.command("job")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--group", default="", metavar="NAME", help="The group that the jobs count for.")
@click.option("--hold-if-impossible", is_flag=True, help="As if submitted with this option.")
@click.option("--form", type=click.Choice(["jdl", "cfg", "json"]), help="The language; else the text tells.")
@json_option
@pass_session
def plan_job(session: Session, /, *, files: tuple[str, ...], **options: Any) -> int:
    """Plan jobs: tell what lode why would tell right after they were submitted.

    Each FILE ('-' for standard input) is a description in JDL, CFG or JSON. For each cohort (the members that would
    join one task queue): the queues that can run it, what excludes the others, a suggestion if there is none,
    the pilots that could take it, its group's share. Nothing is submitted and no file is uploaded; files of the
    InputSandbox must exist. The exit code is 1 if one FILE would be refused.
    """
    return plan_files(session, files, Wanted(**options))


def plan_files(session: Session, files: Sequence[str], wanted: Wanted) -> int:
    """Plan all files; returns the exit code."""
    outcome = Outcome()
    ready = read_all(files, wanted, outcome)
    if not outcome.faults:
        with patience("The server is working it out."):
            _ask_all(session, ready, wanted, outcome)
    if session.as_json:
        emit_json({"plans": outcome.made, "errors": outcome.faults_as_json()})
    outcome.show_faults()
    refused = any(answer["refusal"] for answer in outcome.made)
    return outcome.exit_code(len(files)) or (FAILED if refused else 0)


def _ask_all(session: Session, ready: Sequence[Draft], wanted: Wanted, outcome: Outcome) -> None:
    for one in ready:
        body = {
            "text": one.text,
            "form": one.form,
            "group": wanted.group,
            "hold_if_impossible": wanted.hold_if_impossible,
        }
        try:
            answer = session.post("/v1/plan/job", body, idempotent=True, timeout=PLAN_SECONDS)
        except (Unauthorized, Unavailable) as fault:
            # It would be the same for all that follow.
            outcome.faults.append((one.label, fault))
            return
        except LodesmanError as fault:
            outcome.faults.append((one.label, fault))
            continue
        outcome.made.append({"file": one.label, **answer})
        if not session.as_json:
            if len(outcome.made) > 1:
                click.echo()
            _tell(one.label, answer)


def _tell(label: str, answer: Row) -> None:
    warn(label, convert(answer["notices"], list[Notice]))
    click.echo(_first_line(label, answer))
    cohorts = answer["cohorts"]
    if len(cohorts) == 1:
        click.echo(_joins(cohorts[0]["task_queue"], cohorts[0]["jobs"]))
        tell(cohorts[0], _members(cohorts[0], answer["count"]))
        return
    show_table(COLUMNS, [_cells(one) for one in cohorts])
    if answer["more_cohorts"]:
        note(f"and {counted(answer['more_cohorts'], 'more cohort')}.")
    for one in _different(cohorts):
        click.echo()
        tell({**one, "chain": None, "director": None}, _members(one, answer["count"]))


def _different(cohorts: Sequence[Row]) -> list[Row]:
    """The first few that are not `now`, one for each thing that there is to say."""
    found = {one["summary"]: one for one in reversed(cohorts) if one["verdict"] != "now"}
    return list(reversed(found.values()))[:FEW]


def _first_line(label: str, answer: Row) -> str:
    what = f"{plain(label)}: {counted(answer['count'], 'job')}"
    if answer["refusal"]:
        never = answer["verdicts"]["never"]
        why = "no queue could run it" if answer["count"] == 1 else f"no queue could run {never:,} of them"
        return f"{what} would be refused, since {why}."
    held = f", {answer['held']:,} of them Held" if answer["held"] else ""
    return f"{what} would be submitted{held}, for group {plain(answer['group'])}."


def _joins(queue: Mapping[str, Any], jobs: int) -> str:
    who = "It" if jobs == 1 else "They"
    if queue["new"]:
        return f"{who} would join a new task queue."
    there = counted(queue["waiting_before"], "waiting job")
    return f"{who} would join task queue {queue['id']}, which has {there}."


def _members(one: Row, count: int) -> str:
    """`The job`, `All 30 members`, `Members 0-4, 7`."""
    if one["jobs"] == count:
        return "The job" if count == 1 else f"All {count:,} members"
    return f"{'Member' if one['jobs'] == 1 else 'Members'} {_ranges(one)}"


def _ranges(one: Row) -> str:
    told = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in one["members"])
    return f"{told}, ..." if one["more_members"] else told


def _cells(one: Row) -> list[Cell]:
    queue = one["task_queue"]
    return [
        _ranges(one),
        f"{one['jobs']:,}",
        state(one["verdict"]),
        f"{one['queues']['eligible']:,}",
        f"{one['queues']['total']:,}",
        "new" if queue["new"] else str(queue["id"]),
        f"{queue['waiting_before']:,}",
    ]
