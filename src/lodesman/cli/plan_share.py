"""`lode plan share`: which part of the starts each group would get by other shares."""

from __future__ import annotations

import math
from typing import Any

import click

from lodesman.cli.faults import remark
from lodesman.cli.plan_job import PLAN_SECONDS
from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, patience, say, show_table
from lodesman.cli.words import counted, joined, number

GROUPS = (
    Column(title="group"),
    Column(title="vo"),
    Column(title="waiting", right=True),
    *(Column(title=title, right=True) for title in ("share", "then", "starts", "then", "an hour", "then")),
)
PLACES = (
    Column(title="queues", right=True),
    Column(title="at"),
    Column(title="group"),
    Column(title="starts", right=True),
    Column(title="then", right=True),
)


class GroupShares(click.ParamType[Any, Any]):
    """GROUP=SHARE."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(group, share). A usage error for anything else."""
        if isinstance(value, tuple):
            return value
        group, equals, text = value.rpartition("=")
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not equals or not group or not math.isfinite(share) or share < 0:
            self.fail(f"{value[:60]!r} is no GROUP=SHARE; a share is a number of 0 or more.", param, ctx)
        return group, share


@click.command("share")
@click.argument("shares", nargs=-1, required=True, type=GroupShares(), metavar="GROUP=SHARE...")
@json_option
@pass_session
def plan_share(session: Session, /, *, shares: tuple[tuple[str, float], ...]) -> None:
    """Plan other shares: each group's part of the starts, now and then (administrators).

    Parts are those of the groups that have waiting jobs now: in all, and where the same groups compete for the same
    queues. "An hour" is the rate of starts in the last hour, parted so. Groups that gain most come first.
    """
    if len({group for group, _ in shares}) < len(shares):
        raise click.UsageError("A group is named twice.")
    with patience("The server holds all task queues against all queues."):
        answer = session.post(
            "/v1/plan/shares", {"shares": dict(shares)}, idempotent=True, timeout=PLAN_SECONDS
        )
    if session.as_json:
        emit_json(answer)
        return
    for notice in answer["notices"]:
        note(remark(**notice))
    _tell(answer)


def _tell(answer: Row) -> None:
    if answer["groups"]:
        show_table(GROUPS, [_group(row) for row in answer["groups"]])
    else:
        say("No job waits: shares matter only among groups that have waiting jobs.")
    if answer["places"]:
        click.echo()
        click.echo("Where they compete:")
        show_table(PLACES, [cells for place in answer["places"] for cells in _place(place)])
    if answer["without_waiting_jobs"]:
        names = joined(answer["without_waiting_jobs"])
        note(f"No job of {names} waits: without waiting jobs a share changes nothing.")


def _group(row: Row) -> list[Cell]:
    share, part, hour = row["share"], row["part"], row["starts_an_hour"] or {}
    return [
        row["group"],
        row["vo"],
        f"{row['waiting']:,}",
        number(share["before"]),
        number(share["after"]),
        _percent(part["before"]),
        _percent(part["after"]),
        *(f"{hour[when]:,.1f}" if hour else "" for when in ("before", "after")),
    ]


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _place(place: Row) -> list[list[Cell]]:
    more = f" and {counted(place['more_sites'], 'site')} more" if place["more_sites"] else ""
    where = [f"{place['queues']:,}", f"{joined(place['sites'])}{more}"]
    rows: list[list[Cell]] = []
    for group, part in place["groups"].items():
        first: list[Cell] = ["", ""] if rows else [*where]
        rows.append([*first, group, _percent(part["before"]), _percent(part["after"])])
    return rows
