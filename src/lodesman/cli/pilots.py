"""`lode pilot`: the pilots that run jobs."""

from __future__ import annotations

from typing import Any

import click

from lodesman.answers import calls
from lodesman.answers.pilots import Pilot
from lodesman.answers.requests import DrainBody, PilotAt, PilotsQuery
from lodesman.cli.arguments import PILOT_RANGES, limit_option, merged, total
from lodesman.cli.pilot_files import make_files
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import Cell, emit_json, note, state
from lodesman.cli.words import age, counted, path_of, plain_lines
from lodesman.errors import InvalidRequest, NotFound

_MOST_DRAINED = 10_000
_PILOTS = (">pilot", "state", "queue", ">jobs", ">age", ">seen", "serves", "remark")


pilot = click.Group("pilot", help="List pilots, make files of them, let them leave.", commands=[make_files])


@pilot.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also pilots that have ended.")
@limit_option(100)
@with_session
def _list_pilots(session: Session, /, *, everything: bool, limit: int) -> None:
    """List live pilots, the newest first."""
    rows = session.call(calls.PILOTS, PilotsQuery(all=everything, limit=limit + 1)).pilots
    if not rows:
        note("There is no pilot." if everything else "There is no live pilot; --all shows those that ended.")
    session.show_some("pilots", rows, limit, _PILOTS, _pilot)


def _pilot(row: Pilot) -> list[Cell]:
    serves = " ".join(filter(None, (row.owner, row.group and f"({row.group})"))) or "any"
    if row.bound_job is not None:
        serves = f"job {row.bound_job}"
    remark = row.reason or ("draining" if row.drain else "")
    ages = (age(row.created_at), age(row.last_seen))
    return [str(row.id), state(row.state), path_of(row), str(row.jobs_done), *ages, serves, remark]


@pilot.command("log")
@click.argument("pilot_id", metavar="ID|STAMP")
@with_session
def _show_log(session: Session, /, *, pilot_id: str) -> None:
    """Show the end of what a pilot wrote (64 kB), as its batch system keeps it."""
    answer = session.answer(calls.PILOT_LOG, PilotAt(pilot_id))
    where = f" on {answer.host}" if answer.host else ""
    note(f"Pilot {answer.pilot}, {answer.native_id} of {answer.backend}{where}:")
    click.echo(plain_lines(answer.text), nl=not answer.text.endswith("\n"))


@pilot.command("drain")
@click.argument("ids", nargs=-1, required=True, type=PILOT_RANGES, metavar="ID|RANGE...")
@with_session
def _drain(session: Session, /, *, ids: tuple[Any, ...]) -> None:
    """Let pilots finish what they run and leave (administrators)."""
    ranges = merged(ids)
    if total(ranges) > _MOST_DRAINED:
        raise InvalidRequest(f"The maximum number of pilots is {_MOST_DRAINED:,} at once.")
    numbers = [pilot_id for one in ranges for pilot_id in range(one.first, one.last + 1)]
    answer = session.call(calls.DRAIN, body=DrainBody(numbers))
    if session.as_json:
        emit_json(answer)
    elif answer.changed:
        click.echo(f"{counted(answer.changed, 'pilot')} will finish and leave.")
    if not answer.changed and len(numbers) == 1:
        raise NotFound(f"There is no live pilot {numbers[0]} that was not draining already.")
