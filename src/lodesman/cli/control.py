"""`lode kill`, `hold`, `release`, `reschedule`, `delete`: actions on jobs and ranges of jobs."""

from __future__ import annotations

import sys
from typing import Any, Literal

import click

from lodesman.answers import calls
from lodesman.answers.jobs import Controlled
from lodesman.answers.requests import ControlBody
from lodesman.cli.arguments import JobRanges, Range, merged, total
from lodesman.cli.faults import CONFLICT
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import emit_json, note
from lodesman.cli.words import counted

ASK_ABOVE = 100
Action = Literal["kill", "hold", "release", "reschedule", "delete"]
DONE: dict[Action, str] = {
    "kill": "killed",
    "hold": "held",
    "release": "released",
    "reschedule": "rescheduled",
    "delete": "deleted",
}
_HELP: dict[Action, str] = {
    "kill": "Kill jobs, waiting or running.\n\nA running payload is ended with its whole process tree.",
    "hold": "Hold waiting jobs until they are released.",
    "release": "Let held jobs wait for a pilot again.",
    "reschedule": "Send failed, killed or running jobs back to their task queue for another attempt.",
    "delete": "Delete jobs that have ended, or that have not begun.",
}


def _command(action: Action) -> click.Command:
    """The command of one action; all have the same options."""

    @click.command(action, help=_HELP[action])
    @click.argument("ranges", nargs=-1, required=True, type=JobRanges(), metavar="JOB|RANGE...")
    @click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the job.")
    @click.option("-y", "--yes", is_flag=True, help=f"Do not ask, also for more than {ASK_ABOVE} jobs.")
    @json_option
    @pass_session
    def command(session: Session, /, *, ranges: tuple[Any, ...], reason: str, yes: bool) -> int:
        wanted = merged(ranges)
        if not yes:
            confirm(action, wanted)
        body = ControlBody(action, [(one.first, one.last) for one in wanted], reason)
        answer = session.call(calls.CONTROL, body=body)
        if session.as_json:
            emit_json(answer)
        else:
            _show(action, answer)
        return CONFLICT if answer.refused and not answer.changed else 0

    return command


def confirm(action: str, wanted: tuple[Range, ...]) -> None:
    """Ask before many jobs are touched, if there is a person to ask. Raises Abort."""
    count = total(wanted)
    if count > ASK_ABOVE and sys.stdin.isatty() and sys.stderr.isatty():
        name = ", ".join(map(str, wanted[:3])) + ("..." if len(wanted) > 3 else "")
        click.confirm(f"{action.capitalize()} up to {counted(count, 'job')} ({name})?", abort=True, err=True)


def _show(action: Action, answer: Controlled) -> None:
    done, examples = DONE[action], answer.examples[:5]
    if answer.changed or not answer.refused:
        click.echo(f"{counted(answer.changed, 'job')} {done}.")
    for one in examples:
        note(f"job {one.id} was not {done}: {one.reason}.")
    if answer.refused > len(examples):
        note(f"In all {counted(answer.refused, 'job')} could not be {done}.")


COMMANDS = tuple(_command(action) for action in DONE)
