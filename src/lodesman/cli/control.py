"""`lode kill`, `hold`, `release`, `reschedule`, `delete`: actions on jobs and ranges of jobs."""

from __future__ import annotations

import sys
from typing import Any

import click

from lodesman.cli.exits import CONFLICT
from lodesman.cli.ranges import Range, total
from lodesman.cli.session import JobRanges, Session, json_option, merged, pass_session
from lodesman.cli.tables import emit_json, note
from lodesman.cli.words import counted, plain

ASK_ABOVE = 100
DONE = {
    "kill": "killed",
    "hold": "held",
    "release": "released",
    "reschedule": "rescheduled",
    "delete": "deleted",
}
HELP = {
    "kill": "Kill jobs, waiting or running.\n\nA running payload is ended with its whole process tree.",
    "hold": "Hold waiting jobs until they are released.",
    "release": "Let held jobs wait for a pilot again.",
    "reschedule": "Send failed, killed or running jobs back to their task queue for another attempt.",
    "delete": "Delete jobs that have ended, or that have not begun.",
}


def make_command(action: str) -> click.Command:
    """The command of one action; all have the same options."""

    @click.command(action, help=HELP[action])
    @click.argument("ranges", nargs=-1, required=True, type=JobRanges(), metavar="JOB|RANGE...")
    @click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the job.")
    @click.option("-y", "--yes", is_flag=True, help=f"Do not ask, also for more than {ASK_ABOVE} jobs.")
    @json_option
    @pass_session
    def command(session: Session, /, *, ranges: tuple[Any, ...], reason: str, yes: bool) -> int:
        wanted = merged(ranges)
        if not yes:
            confirm(action, wanted)
        body = {"action": action, "ranges": [[one.first, one.last] for one in wanted], "reason": reason}
        answer = session.post("/v1/jobs/control", body)
        if session.as_json:
            emit_json(answer)
        else:
            _tell(action, answer)
        return CONFLICT if answer["refused"] and not answer["changed"] else 0

    return command


def confirm(action: str, wanted: tuple[Range, ...]) -> None:
    """Ask before many jobs are touched, if there is a person to ask. Raises Abort."""
    count = total(wanted)
    if count > ASK_ABOVE and sys.stdin.isatty() and sys.stderr.isatty():
        name = ", ".join(map(str, wanted[:3])) + ("..." if len(wanted) > 3 else "")
        click.confirm(f"{action.capitalize()} up to {counted(count, 'job')} ({name})?", abort=True, err=True)


def _tell(action: str, answer: dict[str, Any]) -> None:
    changed, refused = answer["changed"], answer["refused"]
    if changed or not refused:
        click.echo(f"{counted(changed, 'job')} {DONE[action]}.")
    for one in answer["examples"][:5]:
        note(f"job {one['id']} was not {DONE[action]}: {one['reason']}.")
    if refused > min(5, len(answer["examples"])):
        note(f"In all {counted(refused, 'job')} could not be {plain(DONE[action])}.")


COMMANDS = tuple(make_command(action) for action in DONE)
