"""`lode plan resources`: what other resource files would change, and for which jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lodesman.cli.faults import remark
from lodesman.cli.plan_job import PLAN_SECONDS
from lodesman.cli.plan_limits import cut_lists, tell_limits
from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, patience, say, show_table
from lodesman.cli.words import counted, number, plain, shown
from lodesman.errors import InvalidRequest, TooLarge

MOST_BYTES = 15 << 20
MOST_LISTED = 10_000
CHANGES = (
    Column(title="change"),
    Column(title="what"),
    Column(title="value"),
    Column(title="before"),
    Column(title="after"),
)
COUNTS = tuple(Column(title=title, right=True) for title in ("before", "after", "gained", "lost"))
TASK_QUEUES = (
    Column(title="tq", right=True),
    Column(title="owner"),
    Column(title="group"),
    Column(title="jobs", right=True),
    *COUNTS,
    Column(title="becomes"),
)
PARTS = (
    Column(title="group"),
    Column(title="vo"),
    Column(title="jobs", right=True),
    *(Column(title=title, right=True) for title in ("share", "then", "starts", "then")),
)
POOLS = (Column(title="SubmitPool"), Column(title="vo"), *COUNTS)


@click.command("resources")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--add", is_flag=True, help="Beside the server's own resource files, not instead of them.")
@click.option(
    "--limit",
    type=click.IntRange(0, MOST_LISTED),
    default=100,
    show_default=True,
    help="At most so many of each list.",
)
@json_option
@pass_session
def plan_resources(session: Session, /, *, files: tuple[Path, ...], add: bool, limit: int) -> None:
    """Plan other resource files: what changes, and for which jobs (administrators).

    The server reads FILE... (TOML if the name ends so, else DIRAC CFG) as its whole resource configuration and tells
    every fault with file, line and section. If there is none: the queues that come, go and change, the eligible queues
    of each task queue before and after, the jobs that would be Held or released, the SubmitPools that change, and what
    the director would do next, before and after: pilots by group and queue, and the limits that bind.
    """
    body = {"files": [_file(path) for path in files], "add": add, "limit": limit}
    with patience("The server holds all task queues against both configurations."):
        answer = session.post("/v1/plan/resources", body, idempotent=True, timeout=PLAN_SECONDS)
    if session.as_json:
        emit_json(answer)
        return
    for notice in answer["notices"]:
        note(remark(**notice))
    _tell_changes(answer)
    _tell_parts(answer["parts"])
    _tell_task_queues(answer["task_queues"])
    _tell_pools(answer["submit_pools"])
    tell_limits(answer.get("director"))
    longest = max(cut["count"] for cut in _lists(answer))
    if longest > limit:
        note(f"There is more: --limit {min(MOST_LISTED, longest)}.")


def _file(path: Path) -> dict[str, str]:
    """A file as it is sent. Raises OSError, TooLarge, InvalidRequest."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TooLarge(f"{path} has more than {MOST_BYTES} bytes.", limit=MOST_BYTES)
    try:
        return {"name": str(path), "text": data.decode("utf-8")}
    except UnicodeDecodeError as fault:
        raise InvalidRequest(f"{path} is no UTF-8: {fault.reason}.") from None


def _lists(answer: Row) -> list[Row]:
    """The lists that the server may have cut."""
    queues = answer["queues"]
    return [
        *(queues[name] for name in ("added", "removed", "changed")),
        answer["task_queues"]["changed"],
        answer["submit_pools"]["changed"],
        *(cut_lists(answer["director"]) if answer.get("director") else ()),
    ]


# --- the configuration ----------------------------------------------------------------------------------


def _tell_changes(answer: Row) -> None:
    queues = answer["queues"]
    rows = [*_queue_rows(queues), *_group_rows(answer["groups"]), *_type_rows(answer["types"])]
    click.echo(
        f"Queues: {queues['before']:,} before, {queues['after']:,} after; {queues['added']['count']:,} added, "
        f"{queues['removed']['count']:,} removed, {queues['changed']['count']:,} changed."
    )
    if rows:
        show_table(CHANGES, rows)


def _queue_rows(queues: Row) -> Iterator[list[Cell]]:
    for change in ("added", "removed"):
        for one in queues[change]["rows"]:
            yield [change, _queue(one), "", "", ""]
    for one in queues["changed"]["rows"]:
        seen_by = f" (VO {one['vo']})" if one["vo"] else ""
        for name, value in one["parameters"].items():
            yield ["changed", _queue(one) + seen_by, name, shown(value["before"]), shown(value["after"])]


def _queue(one: Row) -> str:
    return f"{one['site']}/{one['ce']}/{one['queue']}"


def _group_rows(groups: Sequence[Row]) -> Iterator[list[Cell]]:
    for one in groups:
        for name, value in one["values"].items() or [("", {"before": None, "after": None})]:
            yield [
                one["change"],
                f"group {one['group']}",
                name,
                shown(value["before"]),
                shown(value["after"]),
            ]


def _type_rows(types: Sequence[Row]) -> Iterator[list[Cell]]:
    for one in types:
        yield [
            one["change"],
            f"parameter {one['parameter']}",
            "type",
            shown(one["before"]),
            shown(one["after"]),
        ]


def _tell_parts(parts: Sequence[Row]) -> None:
    """Each group's part of the starts, if any of them changes."""
    if any(row[what]["before"] != row[what]["after"] for row in parts for what in ("share", "part")):
        show_table(PARTS, [_part(row) for row in parts])


def _part(row: Row) -> list[Cell]:
    share, part = row["share"], row["part"]
    return [
        row["group"],
        row["vo"],
        f"{row['jobs']:,}",
        *(number(share[when]) for when in ("before", "after")),
        *(f"{100 * part[when]:.1f} %" for when in ("before", "after")),
    ]


# --- jobs -----------------------------------------------------------------------------------------------


def _tell_task_queues(found: Row) -> None:
    changed = found["changed"]
    click.echo(
        f"Task queues: {found['checked']:,} with jobs; the eligible queues of {changed['count']:,} change."
    )
    if changed["rows"]:
        show_table(TASK_QUEUES, [_task_queue(row) for row in changed["rows"]])
    for kind, what in (("impossible", "would be Held"), ("possible", "would be released")):
        count = found[kind]
        if count["task_queues"]:
            click.echo(
                f"{counted(count['jobs'], 'job')} of {counted(count['task_queues'], 'task queue')} {what}:"
            )
            for row in changed["rows"]:
                if row["becomes"] == kind:
                    say(f"  tq {row['id']}, {counted(row['jobs'], 'job')}: {row['why']}")


def _task_queue(row: Row) -> list[Cell]:
    return [
        str(row["id"]),
        row["owner"],
        row["group"],
        f"{row['jobs']:,}",
        *_counts(row),
        row["becomes"] or "",
    ]


def _counts(row: Mapping[str, Any]) -> list[Cell]:
    return [f"{row[name]:,}" for name in ("before", "after", "gained", "lost")]


def _tell_pools(found: Row) -> None:
    changed = found["changed"]
    click.echo(f"SubmitPools: {found['checked']:,}; the queues of {changed['count']:,} change.")
    if changed["rows"]:
        show_table(POOLS, [[plain(row["id"]), row["vo"], *_counts(row)] for row in changed["rows"]])
