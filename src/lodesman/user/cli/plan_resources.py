"""`lode plan resources`: what other resource files would change, for which jobs, and what the director would do then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from lodesman.base.errors import InvalidRequest, TooLarge, counted
from lodesman.user.cli.arguments import FILE, limit_option
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, note_all, patience, say, show_table
from lodesman.user.cli.words import number, path_of, percent, shown
from lodesman.wire import calls, plans
from lodesman.wire.requests import PlanFileBody, PlanResourcesBody

_MOST_BYTES = 15 << 20
_MOST_LISTED = 10_000
_FEW = 10
_CHANGES = ("change", "what", "value", "before", "after")
_EFFECT = (">before", ">after", ">gained", ">lost")
_TASK_QUEUES = (">tq", "owner", "group", ">jobs", *_EFFECT, "becomes")
_PARTS = ("group", "vo", ">jobs", ">share", ">then", ">starts", ">then")
_PILOTS = ("group", "vo", ">expected", ">then", ">asked", ">then", ">placed", ">then")
_LIMITS = ("limit", "of", ">number", ">then", ">pilots", ">then", "for instance")
_QUEUES = ("queue", ">pilots", ">then", ">free capacity", ">then")


@click.command("resources")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@click.option("--add", is_flag=True, help="Beside the server's own resource files, not instead of them.")
@limit_option(100, _MOST_LISTED, "rows of each list", least=0)
@with_session
def plan_resources(session: Session, /, *, files: tuple[Path, ...], add: bool, limit: int) -> None:
    """Plan other resource files: what changes, and for which jobs (administrators).

    The server reads FILE... (TOML if the name ends so, else DIRAC CFG) as its whole resource configuration and reports
    every fault with file, line and section. If there is none: the queues that come, go and change, the eligible queues
    of each task queue before and after, the jobs that would be Held or released, the SubmitPools that change, and what
    the director would do next, before and after: pilots by group and queue, and the limits that bind.
    """
    body = PlanResourcesBody([_file(path) for path in files], add=add, limit=limit)
    with patience("The server holds all task queues against both configurations."):
        answer = session.answer(calls.PLAN_RESOURCES, body=body)
    _show_resources(answer, limit)


def _file(path: Path) -> PlanFileBody:
    """A file as it is sent. Raises OSError, TooLarge, InvalidRequest."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise TooLarge(f"{path} has more than {_MOST_BYTES} bytes.", limit=_MOST_BYTES)
    try:
        return PlanFileBody(str(path), data.decode("utf-8"))
    except UnicodeDecodeError as fault:
        raise InvalidRequest(f"{path} is not UTF-8: {fault.reason}.") from None


def _show_resources(answer: plans.ResourcesPlan, limit: int) -> None:
    note_all(answer.notices)
    queues = answer.queues
    click.echo(
        f"Queues: {queues.before:,} before, {queues.after:,} after; {queues.added.count:,} added, "
        f"{queues.removed.count:,} removed, {queues.changed.count:,} changed."
    )
    show_table(_CHANGES, _changes(answer))
    if any(_differ(row.share) or _differ(row.part) for row in answer.parts):
        parts = ([row.group, row.vo, row.jobs, *both(row.share), *percents(row.part)] for row in answer.parts)
        show_table(_PARTS, parts)
    _show_task_queues(answer)
    pools = answer.submit_pools
    click.echo(f"SubmitPools: {pools.checked:,}; the queues of {pools.changed.count:,} change.")
    show_table(
        ("SubmitPool", "vo", *_EFFECT), ([row.id, row.vo, *_effect(row)] for row in pools.changed.rows)
    )
    lists: list[plans.Cut[Any]] = [
        queues.added,
        queues.removed,
        queues.changed,
        answer.task_queues.changed,
        pools.changed,
    ]
    if director := answer.director:
        show_director(director)
        lists += [director.groups, director.queues, director.only_after, director.only_before]
    longest = max(one.count for one in lists)
    if longest > limit:
        note(f"There is more: --limit {min(_MOST_LISTED, longest)}.")


def _changes(answer: plans.ResourcesPlan) -> Iterator[list[Cell]]:
    for change, places in (("added", answer.queues.added), ("removed", answer.queues.removed)):
        for place in places.rows:
            yield [change, path_of(place), "", "", ""]
    for queue in answer.queues.changed.rows:
        seen_by = f" (VO {queue.vo})" if queue.vo else ""
        for name, value in queue.parameters.items():
            yield ["changed", path_of(queue) + seen_by, name, shown(value.before), shown(value.after)]
    for group in answer.groups:
        if not group.values:
            yield [group.change, f"group {group.group}", "", shown(None), shown(None)]
        for name, value in group.values.items():
            yield [group.change, f"group {group.group}", name, shown(value.before), shown(value.after)]
    for one in answer.types:
        yield [one.change, f"parameter {one.parameter}", "type", shown(one.before), shown(one.after)]


def _show_task_queues(answer: plans.ResourcesPlan) -> None:
    found = answer.task_queues
    changed = found.changed
    click.echo(f"Task queues: {found.checked:,} with jobs; the eligible queues of {changed.count:,} change.")
    rows = (
        [str(row.id), row.owner, row.group, row.jobs, *_effect(row), row.becomes or ""]
        for row in changed.rows
    )
    show_table(_TASK_QUEUES, rows)
    for kind, count, what in (
        ("impossible", found.impossible, "would be Held"), ("possible", found.possible, "would be released"),
    ):  # fmt: skip
        if count.task_queues:
            click.echo(f"{counted(count.jobs, 'job')} of {counted(count.task_queues, 'task queue')} {what}:")
            for row in changed.rows:
                if row.becomes == kind:
                    say(f"  tq {row.id}, {counted(row.jobs, 'job')}: {row.why}")


def _effect(row: plans.QueueEffect) -> list[Cell]:
    return [row.before, row.after, row.gained, row.lost]


def both(pair: plans.BeforeAfter[Any]) -> list[Cell]:
    """Before and after; means to a tenth."""
    return [number(round(one, 1) if isinstance(one, float) else one) for one in (pair.before, pair.after)]


def percents(pair: plans.BeforeAfter[float]) -> list[Cell]:
    """Two parts of the whole."""
    return [percent(pair.before), percent(pair.after)]


def show_director(found: plans.PlannedIteration) -> None:
    """Two iterations, in few words if they do the same."""
    pilots = found.pilots
    if _changes_anything(found):
        pairs = (("expected", pilots.expected), ("asked", pilots.asked), ("placed", pilots.placed))
        words = ", ".join(f"{' -> '.join(map(str, both(pair)))} {name}" for name, pair in pairs)
        click.echo(f"Next iteration of the director, pilots before and after: {words}.")
        groups = [
            [row.group, row.vo, *both(row.expected), *both(row.asked), *both(row.placed)]
            for row in found.groups.rows
        ]
        _show_first(_PILOTS, groups, found.groups.count)
    else:
        click.echo(
            f"Next iteration of the director: nothing changes, {counted(pilots.asked.after, 'pilot')} asked and "
            f"{pilots.placed.after:,} placed."
        )
    limits = [_limit(row) for row in found.limits if row.pilots.after]
    _show_first(_LIMITS, limits, len(limits))
    queues = [[path_of(row), *both(row.pilots), *both(row.room)] for row in found.queues.rows]
    _show_first(_QUEUES, queues, found.queues.count)
    _show_only(found.only_after, "only after the change")
    _show_only(found.only_before, "only before it")
    for line in found.assumed:
        note(f"Assumed: {line}.")


def _changes_anything(found: plans.PlannedIteration) -> bool:
    pilots = found.pilots
    pairs: list[plans.BeforeAfter[Any]] = [
        pilots.expected,
        pilots.asked,
        pilots.without_submission_pool,
        pilots.placed,
    ]
    for row in found.groups.rows:
        pairs += [row.expected, row.asked, row.placed]
    for limit in found.limits:
        pairs += [limit.count, limit.pilots]
    return bool(found.queues.count) or any(map(_differ, pairs))


def _show_first(titles: Sequence[str], rows: Sequence[Sequence[Cell]], count: int) -> None:
    """The first few rows of `count`."""
    show_table(titles, rows[:_FEW])
    if rows and count > min(len(rows), _FEW):
        note(f"{count - min(len(rows), _FEW):,} more: --json.")


def _limit(row: plans.BindingLimit) -> list[Cell]:
    name = f"tq {row.example.name}" if row.of == "task queues" else row.example.name
    return [row.limit, row.of, *both(row.count), *both(row.pilots), f"{name}: {row.example.text}"]


def _show_only(some: plans.TaskQueuesPilots, when: str) -> None:
    if not some.count:
        return
    who = f"{counted(some.count, 'task queue')} {'gets' if some.count == 1 else 'get'} pilots"
    say(f"{who} {when}, {some.pilots:,} together:")
    for row in some.rows[:_FEW]:
        jobs, pilots = counted(row.jobs, "job"), counted(row.pilots, "pilot")
        say(f"  tq {row.id} of {row.owner}, {jobs}: {pilots} to {', '.join(row.queues)}")


def _differ(pair: plans.BeforeAfter[Any]) -> bool:
    return bool(pair.before != pair.after)
