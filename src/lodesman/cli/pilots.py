"""`lode pilot ls`, `lode pilot drain`: the pilots that run jobs."""

from __future__ import annotations

import time
from itertools import chain
from typing import Any

import click

from lodesman.answers import calls
from lodesman.answers.pilots import Pilot
from lodesman.answers.requests import DrainBody, PilotsQuery
from lodesman.cli.arguments import JobRanges, merged
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import Cell, emit_json, note, show_table, state
from lodesman.cli.words import age, counted
from lodesman.errors import InvalidRequest, NotFound

_MOST_DRAINED = 10_000


class _PilotRanges(JobRanges):
    """A pilot or a range of pilots."""

    name = "pilot"


@click.group()
def pilot() -> None:
    """List pilots, and let them leave."""


@pilot.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also pilots that have ended.")
@click.option(
    "--limit", type=click.IntRange(1, 9_999), default=100, show_default=True, help="Maximum number of rows."
)
@json_option
@pass_session
def list_pilots(session: Session, /, *, everything: bool, limit: int) -> None:
    """List live pilots, the newest first."""
    rows = session.call(calls.PILOTS, PilotsQuery(all=everything, limit=limit + 1)).pilots
    more, rows = len(rows) > limit, rows[:limit]
    if session.as_json:
        emit_json({"pilots": rows, "more": more})
        return
    now = time.time()
    if rows:
        columns = (">pilot", "state", "queue", ">jobs", ">age", ">seen", "owner", "remark")
        show_table(columns, [_cells(row, now) for row in rows])
    else:
        note("There is no pilot." if everything else "There is no live pilot; --all shows those that ended.")
    if more:
        note(f"There are more: --limit {min(limit * 10, 9_999)}.")


def _cells(row: Pilot, now: float) -> list[Cell]:
    return [
        str(row.id),
        state(row.state),
        "/".join(filter(None, (row.site, row.ce, row.queue))),
        str(row.jobs_done),
        age(row.created_at, now),
        age(row.last_seen, now),
        " ".join(filter(None, (row.owner, row.group and f"({row.group})"))) or "any",
        row.reason or ("draining" if row.drain else ""),
    ]


@pilot.command()
@click.argument("ids", nargs=-1, required=True, type=_PilotRanges(), metavar="ID|RANGE...")
@json_option
@pass_session
def drain(session: Session, /, *, ids: tuple[Any, ...]) -> None:
    """Let pilots finish what they run and leave (administrators)."""
    ranges = merged(ids)
    if sum(one.size for one in ranges) > _MOST_DRAINED:
        raise InvalidRequest(f"At most {_MOST_DRAINED:,} pilots at once.")
    numbers = list(chain.from_iterable(range(one.first, one.last + 1) for one in ranges))
    answer = session.call(calls.DRAIN, body=DrainBody(numbers))
    if session.as_json:
        emit_json(answer)
    elif answer.changed:
        click.echo(f"{counted(answer.changed, 'pilot')} will finish and leave.")
    if not answer.changed and len(numbers) == 1:
        raise NotFound(f"There is no live pilot {numbers[0]} that was not draining already.")


COMMANDS = (pilot,)
