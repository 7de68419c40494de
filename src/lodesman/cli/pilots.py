"""`lode pilot ls`, `lode pilot drain`: the pilots that run jobs."""

from __future__ import annotations

import time
from itertools import chain

import click

from lodesman.cli.session import JobRanges, Row, Session, json_option, merged, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, show_table, state
from lodesman.cli.words import age, counted
from lodesman.errors import InvalidRequest, NotFound

MOST_DRAINED = 10_000
COLUMNS = (
    Column(title="pilot", right=True),
    Column(title="state"),
    Column(title="queue"),
    Column(title="jobs", right=True),
    Column(title="age", right=True),
    Column(title="seen", right=True),
    Column(title="owner"),
    Column(title="remark"),
)


class PilotRanges(JobRanges):
    """A pilot or a range of pilots."""

    name = "pilot"


@click.group()
def pilot() -> None:
    """Look at pilots, and let them leave."""


@pilot.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also pilots that have ended.")
@click.option(
    "--limit", type=click.IntRange(1, 9_999), default=100, show_default=True, help="At most so many."
)
@json_option
@pass_session
def list_pilots(session: Session, /, *, everything: bool, limit: int) -> None:
    """List live pilots, the newest first."""
    rows = session.get("/v1/pilots", all="true" if everything else None, limit=limit + 1)["pilots"]
    more, rows = len(rows) > limit, rows[:limit]
    if session.as_json:
        emit_json({"pilots": rows, "more": more})
        return
    now = time.time()
    if rows:
        show_table(COLUMNS, [_cells(row, now) for row in rows])
    else:
        note("There is no pilot." if everything else "There is no live pilot; --all shows those that ended.")
    if more:
        note(f"There are more: --limit {min(limit * 10, 9_999)}.")


def _cells(row: Row, now: float) -> list[Cell]:
    whose = " ".join(filter(None, (row["owner"], row["group"] and f"({row['group']})")))
    remark = row["reason"] or ("draining" if row["drain"] else "")
    return [
        str(row["id"]),
        state(row["state"]),
        "/".join(filter(None, (row["site"], row["ce"], row["queue"]))),
        str(row["jobs_done"] or 0),
        age(row["created_at"], now),
        age(row["last_seen"], now),
        whose or "any",
        remark,
    ]


@pilot.command()
@click.argument("ids", nargs=-1, required=True, type=PilotRanges(), metavar="ID|RANGE...")
@json_option
@pass_session
def drain(session: Session, /, *, ids: tuple[object, ...]) -> None:
    """Let pilots finish what they run and leave (administrators)."""
    ranges = merged(ids)  # type: ignore[arg-type]
    if sum(one.size for one in ranges) > MOST_DRAINED:
        raise InvalidRequest(f"At most {MOST_DRAINED:,} pilots at once.")
    numbers = list(chain.from_iterable(range(one.first, one.last + 1) for one in ranges))
    changed = session.post("/v1/pilots/drain", {"pilots": numbers}, idempotent=True)["changed"]
    if session.as_json:
        emit_json({"changed": changed})
    elif changed:
        click.echo(f"{counted(changed, 'pilot')} will finish and leave.")
    if not changed and len(numbers) == 1:
        raise NotFound(f"There is no live pilot {numbers[0]} that was not draining already.")


COMMANDS = (pilot,)
