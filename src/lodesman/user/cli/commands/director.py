"""`lode director`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import click
from msgspec import to_builtins

from lodesman.base.errors import NotFound, counted
from lodesman.user.cli.arguments import MOST_LISTED, limit_option, several
from lodesman.user.cli.progress import patience
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table
from lodesman.user.cli.words import NOTHING, age, number
from lodesman.wire import calls
from lodesman.wire.plans import DirectorPlans, PolicyPlan
from lodesman.wire.requests import PlanDirectorBody
from lodesman.wire.vocabulary import TargetPolicy

_ROWS = (">tq", ">waiting", ">mean", ">drawn", ">asked", ">placed", "in words")
# One iteration as it is stored (`director.record`), and a row of it with its names.
Record = Mapping[str, Any]


director = click.Group(
    "director", help="Show the director, which decides how many pilots go where, and plan it."
)


@director.command("show")
@click.argument("task_queues", nargs=-1, type=click.IntRange(1), metavar="[TQ]...")
@limit_option(30, MOST_LISTED, "task queues, and of CE queues")
@with_session
def _show_director(session: Session, /, *, task_queues: tuple[int, ...], limit: int) -> None:
    """Show the director's last iteration; for a task queue TQ (lode tq ls) with all its arithmetic."""
    from lodesman.decide.director.record import Stories, of_queues

    answer = session.raw(calls.DIRECTOR)
    plan = answer["plan"]
    if plan is None:
        session.exit_if_json(answer)
        note("The director has not decided anything yet.")
        return
    # The rows with their names; they are stored as bare lists.
    named = [dict(zip(plan["row_fields"], values, strict=True)) for values in plan["rows"]]
    rows = _choose_rows({row["tq_id"]: row for row in named}, task_queues)
    rooms = sorted(plan["rooms"].items())[:limit]
    narrowed = of_queues(plan, {row["tq_id"] for row in rows[:limit]})
    session.exit_if_json({**answer, "plan": {**narrowed, "rooms": dict(rooms)}})
    _show_head(answer, plan, sum(row["asked"] for row in named))
    stories = Stories(plan)
    if task_queues:
        for row in rows:
            first, *lines = stories.lines(row["tq_id"])
            say(f"Task queue {row['tq_id']}: {first}")
            for line in lines:
                say(f"  {line}")
        return
    placed = {ask["tq_id"]: ask["placed"] for ask in plan["asks"]}
    show_table(_ROWS, (_row(row, placed, stories.lines(row["tq_id"])[0]) for row in rows[:limit]))
    if len(rows) > limit:
        note(f"{counted(len(rows) - limit, 'more task queue')}: --limit {limit * 10}.")
    show_table(("queue", ">wanted", ">free capacity", "limited by"), starmap(_room, rooms), apart=True)


def _choose_rows(rows: Mapping[int, Record], task_queues: Sequence[int]) -> list[Record]:
    for tq_id in task_queues:
        if tq_id not in rows:
            raise NotFound(f"The last iteration had no task queue {tq_id}.", hint="See: lode tq ls")
    by_jobs = sorted(rows.values(), key=lambda row: (-row["waiting_jobs"], row["tq_id"]))
    return [rows[tq_id] for tq_id in task_queues] or by_jobs


def _show_head(answer: Record, plan: Record, asked: int) -> None:
    whole = plan["plan"]
    placed = sum(ask["placed"] for ask in plan["asks"])
    vo = f" for VO {plan['vo']}" if plan.get("vo") else ""
    say(f"Iteration {answer['iteration']}, decided {age(answer['at'])} ago{vo}.")
    target, aim = whole["target"], number(whole["target"])
    say(
        f"Target {'1 pilot' if target == 1 else f'{aim} pilots'} for {counted(whole['waiting_jobs'], 'waiting job')} "
        f"in {counted(len(plan['rows']), 'task queue')}: {asked:,} asked, {placed:,} placed, "
        f"{len(plan['cancel']):,} cancelled, {plan['spare']:,} to spare."
    )


def _row(row: Record, placed: Mapping[int, int], verdict: str) -> list[Cell]:
    tq_id = row["tq_id"]
    counts = (str(row["drawn"]), str(row["asked"]), str(placed.get(tq_id, 0)))
    return [str(tq_id), row["waiting_jobs"], f"{row['mean']:.2f}", *counts, verdict]


def _room(name: str, room: Record) -> list[Cell]:
    limits = "; ".join(str(limit[-1]) for limit in room["clamps"])
    return [name, str(room["wanted"]), str(room["room"]), limits]


# --- plans --------------------------------------------------------------------------------------------------------------


@director.command("plan")
@click.argument("task_queues", nargs=-1, type=click.IntRange(1), metavar="[TQ]...")
@several(
    "--policy",
    "policies",
    type=click.Choice([policy.value for policy in TargetPolicy]),
    help="A policy of the target, else that in use",
)
@click.option(
    "--iteration", type=click.IntRange(1), help="A stored iteration (lode director show), not one of now."
)
@limit_option(30, MOST_LISTED, "task queues, and of CE queues")
@with_session
def _plan_director(
    session: Session,
    /,
    *,
    task_queues: tuple[int, ...],
    policies: tuple[str, ...],
    iteration: int | None,
    limit: int,
) -> None:
    """Plan an iteration by several policies side by side (administrators).

    All see the same jobs, pilots and loads, and the same random numbers. Shown are the sums, the target, and for each task
    queue mean, draw, cap and placement; for a task queue TQ all its arithmetic. Nothing is stored or submitted. Of a
    stored iteration only the pilots of its own policy are placed.
    """
    body = PlanDirectorBody(
        [*map(TargetPolicy, policies)], iteration=iteration, task_queues=[*task_queues], limit=limit
    )
    with patience("The server decides for all task queues."):
        answer = session.answer(calls.PLAN_DIRECTOR, body=body)
    when = "One of now" if iteration is None else f"Iteration {iteration}, decided {age(answer.at)} ago"
    say(f"{when}: nothing is stored or submitted.")
    for plan in answer.plans:
        _show_target(plan)
    if task_queues:
        _show_arithmetic(answer)
    else:
        _show_side_by_side(answer)
    for words in answer.assumed:
        note(f"Note: {words}.")


def _show_target(plan: PolicyPlan) -> None:
    record, whole = plan.record, plan.record.plan
    placed = "not placed" if plan.placed is None else f"{plan.placed:,} placed"
    say(
        f"{plan.policy}: target {number(record.target.value)}, {counted(plan.asked, 'pilot')} asked, {placed}"
    )
    per_priority, per_job = f"{whole.pilots_per_priority:g}", f"{whole.pilots_per_job:g}"
    for line in (
        *record.target.arithmetic,
        f"pilotsPerPriority = {whole.target:g} / prioritySum {whole.priority_sum:g} = {per_priority}",
        f"pilotsPerJob = {whole.target:g} / waitingJobs {whole.waiting_jobs} = {per_job}",
    ):
        say(f"  {line}")


def _show_arithmetic(answer: DirectorPlans) -> None:
    from lodesman.decide.director.record import Stories

    stories = [(plan, Stories(to_builtins(plan.record))) for plan in answer.plans]
    for tq_id in stories[0][1].rows:
        for plan, story in stories:
            first, *lines = story.lines(tq_id)
            verdict = "pilots: not placed" if plan.placed is None else first
            say(f"Task queue {tq_id} by {plan.policy}: {verdict}")
            for line in lines:
                say(f"  {line}")


def _show_side_by_side(answer: DirectorPlans) -> None:
    titles = [">tq", ">waiting", ">weight", ">cap"]
    rows: dict[int, list[Cell]] = {}
    jobs: dict[int, int] = {}
    for plan in answer.plans:
        titles += [f">{plan.policy}: mean", ">drawn", ">asked", ">placed"]
        placed = {ask.tq_id: ask.placed for ask in plan.record.asks}
        for row in _named_rows(plan):
            tq_id = row["tq_id"]
            jobs[tq_id] = row["waiting_jobs"]
            cells: list[Cell] = [str(tq_id), row["waiting_jobs"], f"{row['weight']:g}", str(row["cap"])]
            went = NOTHING if plan.placed is None else str(placed.get(tq_id, 0))
            rows.setdefault(tq_id, cells).extend(
                [f"{row['mean']:.2f}", str(row["drawn"]), str(row["asked"]), went]
            )
    show_table(
        titles, (rows[tq_id] for tq_id in sorted(rows, key=lambda tq_id: (-jobs[tq_id], tq_id))), apart=True
    )
    _note_more(answer.task_queues - len(rows), "task queue")
    rooms = {name: room for plan in answer.plans for name, room in plan.record.rooms.items()}
    titles = ["queue", ">free capacity", *(f">{plan.policy}" for plan in answer.plans), "limited by"]
    show_table(titles, (_queue(answer, name) for name in rooms), apart=True)
    _note_more(answer.queues - len(rooms), "CE queue")


def _named_rows(plan: PolicyPlan) -> Iterator[Record]:
    for values in plan.record.rows:
        yield dict(zip(plan.record.row_fields, values, strict=True))


def _queue(answer: DirectorPlans, name: str) -> list[Cell]:
    cells: list[Cell] = []
    limits: dict[str, None] = {}
    for plan in answer.plans:
        placed: Counter[str] = Counter()
        for _, queue, count in plan.record.placements:
            placed[queue] += count
        cells.append(NOTHING if plan.placed is None else str(placed[name]))
        limits |= dict.fromkeys(clamp[-1] for clamp in plan.record.rooms[name].clamps)
    return [name, str(answer.plans[0].record.rooms[name].room), *cells, "; ".join(limits)]


def _note_more(count: int, noun: str) -> None:
    if count > 0:
        note(f"{counted(count, f'more {noun}')}: --limit.")
