"""`lode director show`, `lode standing`: what the director decided, and how the shares come out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, say, show_table, state
from lodesman.cli.words import age, counted, number, span, states
from lodesman.errors import NotFound


@click.group()
def director() -> None:
    """Look at the director, which decides how many pilots go where."""


@director.command("show")
@click.argument("task_queues", nargs=-1, type=click.IntRange(1), metavar="[TQ]...")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="At most so many task queues, and CE queues.",
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
    from lodesman.director import Stories

    stories = Stories(plan)
    for row in rows:
        first, *lines = stories.lines(row["tq_id"])
        say(f"Task queue {row['tq_id']}: {first}")
        for line in lines:
            say(f"  {line}")


def _show_rows(plan: Mapping[str, Any], rows: list[Row], limit: int) -> None:
    from lodesman.director import Stories

    stories = Stories(plan)
    placed = {ask["tq_id"]: ask["placed"] for ask in plan["asks"]}
    columns = (
        Column(title="tq", right=True),
        Column(title="waiting", right=True),
        Column(title="mean", right=True),
        Column(title="drawn", right=True),
        Column(title="asked", right=True),
        Column(title="placed", right=True),
        Column(title="in words"),
    )
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
    columns = (
        Column(title="queue"),
        Column(title="wanted", right=True),
        Column(title="room", right=True),
        Column(title="limited by"),
    )
    # A clamp is stored as [name, before, after, detail].
    cells: list[list[Cell]] = [
        [name, str(room["wanted"]), str(room["room"]), "; ".join(str(bite[-1]) for bite in room["clamps"])]
        for name, room in rooms[:limit]
    ]
    click.echo()
    show_table(columns, cells)


@click.command()
@json_option
@pass_session
def standing(session: Session, /) -> None:
    """Show how things stand: states, shares received and deserved, sites, times, failures."""
    answer = session.get("/v1/standing")
    if session.as_json:
        emit_json(answer)
        return
    say(f"Jobs: {states(answer['states'])}.")
    for word, times in (("Waited", answer["waiting_seconds"]), ("Ran", answer["running_seconds"])):
        say(f"{word}: half at most {span(times['p50'])}, 95 % at most {span(times['p95'])}.")
    attempts = answer["attempts"]
    say(f"Attempts: {attempts['all']:,} of {counted(attempts['jobs'], 'job')}.")
    _show_groups(answer["groups"])
    _show_sites(answer["sites"], answer["pilots"])
    _show_faulty(answer["faulty"])


def _show_groups(groups: list[Row]) -> None:
    if not groups:
        return
    compared = sum(group["compared"] for group in groups)
    deserved = sum(group["deserved"] for group in groups)
    columns = (
        Column(title="group"),
        Column(title="share", right=True),
        Column(title="starts", right=True),
        Column(title="received", right=True),
        Column(title="deserved", right=True),
    )
    cells: list[list[Cell]] = [
        [group["group"], number(group["share"]), f"{group['claims']:,}", _part(group["compared"], compared),
         _part(group["deserved"], deserved)]
        for group in groups
    ]  # fmt: skip
    click.echo()
    show_table(columns, cells)


def _part(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _show_sites(sites: list[Row], pilots: list[Row]) -> None:
    live: dict[str, dict[str, int]] = {}
    for row in pilots:
        live.setdefault(row["site"], {})[row["state"]] = row["pilots"]
    rows = {row["site"]: row for row in sites}
    names = sorted({*rows, *live})
    if not names:
        return
    columns = (
        Column(title="site"),
        Column(title="ended attempts"),
        Column(title="cpu", right=True),
        Column(title="pilots"),
    )
    nothing: Row = {"outcomes": {}, "cpu_seconds": None}
    cells: list[list[Cell]] = [
        [name, states(rows.get(name, nothing)["outcomes"]), span(rows.get(name, nothing)["cpu_seconds"]),
         states(live.get(name, {}))]
        for name in names
    ]  # fmt: skip
    click.echo()
    show_table(columns, cells)


def _show_faulty(faulty: list[Row]) -> None:
    """Held, failed and killed jobs by their reason."""
    counts: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], int] = {}
    for row in faulty:
        kind = (row["state"], row["reason"] or "")
        counts[kind] += row["count"]
        example.setdefault(kind, row["id"])
    if not counts:
        return
    columns = (
        Column(title="jobs", right=True),
        Column(title="state"),
        Column(title="for instance", right=True),
        Column(title="reason"),
    )
    cells: list[list[Cell]] = [
        [f"{n:,}", state(kind[0]), str(example[kind]), kind[1]] for kind, n in counts.most_common(20)
    ]
    click.echo()
    show_table(columns, cells)


COMMANDS = (director, standing)
