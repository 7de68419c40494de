"""`lode pilot`: the pilots that run jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.user.cli.arguments import PILOT_RANGES, UTC, limit_option, merged, total
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.pilot_files import make_files
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, emit_json, note, show_fields, state
from lodesman.user.cli.words import age, counted, moment, path_of, plain_lines, shown
from lodesman.wire import calls
from lodesman.wire.pilots import ListedPilot, PilotInFull
from lodesman.wire.requests import DrainBody, PilotAt, PilotsQuery
from lodesman.wire.vocabulary import PilotState

_MOST_DRAINED = 10_000
# Jobs of one pilot that a list names.
_MOST_JOBS = 4


pilot = click.Group(
    "pilot",
    help="List pilots, show what they do and wrote, make files of them, let them leave.",
    commands=[make_files],
)


def _doing(row: ListedPilot) -> str | None:
    """The jobs that it runs, or that it is idle; None for one that does not run."""
    if row.jobs:
        return ", ".join(map(str, row.jobs[:_MOST_JOBS])) + (", ..." if len(row.jobs) > _MOST_JOBS else "")
    return "idle" if row.state is PilotState.RUNNING else None


def _serves(row: ListedPilot) -> str:
    if row.bound_job is not None:
        return f"job {row.bound_job}"
    return " ".join(filter(None, (row.owner, row.group and f"({row.group})"))) or "any"


def _remark(row: ListedPilot) -> str:
    serves = _serves(row)
    only = f"for {serves}" if serves != "any" and row.bound_job not in row.jobs else ""
    away = "runs, and has not reached the server" if row.is_unreached(time.time()) else ""
    return ", ".join(filter(None, (row.reason or ("draining" if row.drain else ""), away, only)))


_PILOTS: Final[Columns[ListedPilot]] = table_of(
    Column("pilot", "id", lambda row: row.id),
    Column("state", "state", lambda row: row.state.value),
    Column("queue", "text", path_of),
    Column("host", "text", lambda row: row.node_host or row.host or None),
    Column("jobs", "text", _doing),
    Column("running", "count", lambda row: len(row.jobs)),
    Column("done", "count", lambda row: row.jobs_done),
    Column("sent", "moment", lambda row: row.created_at),
    Column("age", "age", lambda row: row.created_at),
    Column("joined", "moment", lambda row: row.joined_at),
    Column("seen", "age", lambda row: row.last_seen),
    Column("ended", "moment", lambda row: row.ended_at),
    Column("serves", "text", _serves),
    Column("vo", "text", lambda row: row.vo),
    Column("stamp", "text", lambda row: row.stamp),
    Column("backend", "text", lambda row: row.backend),
    Column("native", "text", lambda row: row.native_id),
    Column("remark", "text", _remark),
)
_USUAL: Final = ("pilot", "state", "queue", "host", "jobs", "sent", "age", "seen", "remark")


@pilot.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also pilots that have ended.")
@limit_option(100)
@shaped(_PILOTS)
@with_session
def _list_pilots(session: Session, /, *, everything: bool, limit: int, shape: ListShape) -> None:
    """List live pilots, the newest first, with the jobs that each runs now."""
    rows = session.call(calls.PILOTS, PilotsQuery(all=everything, limit=limit + 1)).pilots
    if not rows and not session.as_json:
        note("There is no pilot." if everything else "There is no live pilot; --all shows those that ended.")
    session.show_some("pilots", rows, limit, lambda some: shape.show(_PILOTS, some, _USUAL))


@pilot.command("show")
@click.argument("pilot_id", metavar="ID|STAMP")
@UTC
@with_session
def _show_pilot(session: Session, /, *, pilot_id: str, utc: bool) -> None:
    """Show all that is known of a pilot: where it is, what it runs, and what its machine offers."""
    show_fields(_fields(session.answer(calls.PILOT, PilotAt(pilot_id)), utc=utc))


def _fields(row: PilotInFull, *, utc: bool) -> Iterator[tuple[str, Cell]]:
    def at(then: float | None) -> str:
        return "-" if then is None else f"{moment(then, utc=utc)}, {age(then)} ago"

    yield "pilot", str(row.id)
    yield "stamp", row.stamp
    yield "state", state(row.state)
    yield "runs", _doing(row) or ""
    yield "jobs done", row.jobs_done
    yield "queue", path_of(row)
    yield "host", row.node_host or row.host
    yield "batch system", f"{row.backend}, as {row.native_id or 'not accepted yet'}"
    yield "serves", f"{_serves(row)}, VO {row.vo}"
    yield "sent", at(row.created_at)
    yield "accepted", at(row.submitted_at)
    yield "joined", at(row.joined_at)
    yield "last seen", at(row.last_seen)
    yield "ended", at(row.ended_at)
    leaves = row.drain_reason or "a user said so"
    yield "remark", row.reason or (f"it leaves: {leaves}" if row.drain else "")
    for name, value in sorted(row.node.items()):
        yield f"node.{name}", shown(value)
    yield "more", f"lode pilot logs {row.id}, lode why pilot:{row.id}"


@pilot.command("logs")
@click.argument("pilot_id", metavar="ID|STAMP")
@with_session
def _show_logs(session: Session, /, *, pilot_id: str) -> None:
    """Show the end of what a pilot wrote (64 kB), as its batch system keeps it."""
    answer = session.answer(calls.PILOT_LOGS, PilotAt(pilot_id))
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
        raise NotFound(
            f"Pilot {numbers[0]} has ended, is draining already, or was never there.",
            hint="See: lode pilot ls --all",
        )
