"""`lode director show`: what the director decided last."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import Cell, emit_json, note, say, show_table
from lodesman.cli.words import age, counted, number
from lodesman.errors import NotFound

Row = dict[str, Any]


@click.group()
def director() -> None:
    """Show the director, which decides how many pilots go where."""


@director.command("show")
@click.argument("task_queues", nargs=-1, type=click.IntRange(1), metavar="[TQ]...")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Maximum number of task queues, and of CE queues.",
)
@json_option
@pass_session
def show_director(session: Session, /, *, task_queues: tuple[int, ...], limit: int) -> None:
    """Show the director's last iteration; for a task queue TQ (lode tq ls) with all its arithmetic."""
    answer = session.get("/v1/director")
    plan = answer["plan"]
    if plan is None:
        if session.as_json:
            emit_json(answer)
        else:
            note("The director has not decided anything yet.")
        return
    rows = _chosen(plan, task_queues) or _foremost(plan)
    if session.as_json:
        emit_json({**answer, "plan": _narrowed(plan, [row["tq_id"] for row in rows[:limit]], limit)})
        return
    for line in _head(answer["at"], plan):
        say(line)
    if task_queues:
        _tell_stories(plan, rows)
    else:
        _show_rows(plan, rows, limit)
        _show_rooms(plan, limit)


def _chosen(plan: Mapping[str, Any], task_queues: Iterable[int]) -> list[Row]:
    """The rows of these task queues. Raises NotFound."""
    known = {row["tq_id"]: row for row in plan_rows(plan)} if task_queues else {}
    for tq_id in task_queues:
        if tq_id not in known:
            raise NotFound(f"The last iteration had no task queue {tq_id}.", hint="See: lode tq ls")
    return [known[tq_id] for tq_id in task_queues]


def _foremost(plan: Mapping[str, Any]) -> list[Row]:
    """All rows, those with most jobs first."""
    return sorted(plan_rows(plan), key=lambda row: (-row["waiting_jobs"], row["tq_id"]))


def _narrowed(plan: Mapping[str, Any], shown: list[int], limit: int) -> dict[str, Any]:
    """The record with what it says of these task queues, and of so many CE queues, only."""
    place, keep = plan["row_fields"].index("tq_id"), set(shown)
    return {
        **plan,
        "rows": [row for row in plan["rows"] if row[place] in keep],
        "asks": [one for one in plan["asks"] if one["tq_id"] in keep],
        "no_pool": [one for one in plan["no_pool"] if one["tq_id"] in keep],
        "placements": [one for one in plan.get("placements", ()) if one[0] in keep],
        "borrowed": {tq_id: n for tq_id, n in plan["borrowed"].items() if int(tq_id) in keep},
        "rooms": dict(sorted(plan["rooms"].items())[:limit]),
    }


def _head(at: float, plan: Mapping[str, Any]) -> Iterator[str]:
    whole = plan["plan"]
    placed = sum(ask["placed"] for ask in plan["asks"])
    asked = sum(row["asked"] for row in plan_rows(plan))
    vo = f" for VO {plan['vo']}" if plan.get("vo") else ""
    yield f"Decided {age(at, time.time())} ago{vo}."
    yield (
        f"Target {number(whole['target'])} pilots for {counted(whole['waiting_jobs'], 'waiting job')} "
        f"in {counted(len(plan['rows']), 'task queue')}: {asked:,} asked, {placed:,} placed, "
        f"{len(plan['cancel']):,} cancelled, {plan['spare']:,} to spare."
    )


def plan_rows(plan: Mapping[str, Any]) -> list[Row]:
    """The plan's rows with their names; they are stored as bare lists."""
    return [dict(zip(plan["row_fields"], values, strict=True)) for values in plan["rows"]]


def _tell_stories(plan: Mapping[str, Any], rows: Iterable[Row]) -> None:
    from lodesman.director.record import Stories

    stories = Stories(plan)
    for row in rows:
        first, *lines = stories.lines(row["tq_id"])
        say(f"Task queue {row['tq_id']}: {first}")
        for line in lines:
            say(f"  {line}")


def _show_rows(plan: Mapping[str, Any], rows: list[Row], limit: int) -> None:
    from lodesman.director.record import Stories

    stories = Stories(plan)
    placed = {ask["tq_id"]: ask["placed"] for ask in plan["asks"]}
    columns = (">tq", ">waiting", ">mean", ">drawn", ">asked", ">placed", "in words")
    cells: list[list[Cell]] = [
        [
            str(row["tq_id"]), f"{row['waiting_jobs']:,}", f"{row['mean']:.2f}", str(row["drawn"]),
            str(row["asked"]),
            str(placed.get(row["tq_id"], 0)), stories.lines(row["tq_id"])[0],
        ]
        for row in rows[:limit]
    ]  # fmt: skip
    if cells:
        show_table(columns, cells)
    if len(rows) > limit:
        note(f"There are {len(rows) - limit:,} more task queues: --limit {limit * 10}.")


def _show_rooms(plan: Mapping[str, Any], limit: int) -> None:
    """How much room each CE queue had, and what took the rest."""
    rooms = sorted(plan["rooms"].items())
    if not rooms:
        return
    cells: list[list[Cell]] = [
        [name, str(room["wanted"]), str(room["room"]), "; ".join(str(bite[-1]) for bite in room["clamps"])]
        for name, room in rooms[:limit]
    ]
    click.echo()
    show_table(("queue", ">wanted", ">room", "limited by"), cells)


COMMANDS = (director,)
