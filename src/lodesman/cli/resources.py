"""`lode site ls`, `lode queue ls`, `lode tq ls`: where jobs can run, and where they wait."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, show_table
from lodesman.cli.words import age, joined, shown, span, states

# These have a column of their own; all others stand together in the last one.
MAIN_PARAMETERS = ("Platform", "CPUTime", "Memory", "MaxRAM", "NumberOfProcessors", "Tag")


@click.group()
def site() -> None:
    """Look at sites."""


@site.command("ls")
@json_option
@pass_session
def list_sites(session: Session, /) -> None:
    """List the sites with their queues, live pilots and running jobs."""
    answer = session.get("/v1/sites")
    if session.as_json:
        emit_json(answer)
        return
    columns = (
        Column(title="site"),
        Column(title="ces", right=True),
        Column(title="queues", right=True),
        Column(title="running jobs", right=True),
        Column(title="pilots"),
    )
    rows = [
        [row["site"], str(row["ces"]), str(row["queues"]), f"{row['running_jobs']:,}", states(row["pilots"])]
        for row in answer["sites"]
    ]
    _show(columns, rows, "No site is configured; see: lode init.")


@click.group()
def queue() -> None:
    """Look at the queues of CEs."""


@queue.command("ls")
@click.option("--origin", is_flag=True, help="One line per parameter, with the level that gave its value.")
@click.option("--site", "site_name", default="", metavar="NAME", help="Only the queues of this site.")
@click.option("--vo", default="", metavar="NAME", help="As this VO sees them; else yours.")
@json_option
@pass_session
def list_queues(session: Session, /, *, origin: bool, site_name: str, vo: str) -> None:
    """List the queues that your VO may use, with their effective parameters."""
    found = session.get("/v1/queues", vo=vo)["queues"]
    found = [row for row in found if site_name in ("", row["site"])]
    if session.as_json:
        emit_json({"queues": found})
    elif origin:
        columns = (
            Column(title="queue"),
            Column(title="parameter"),
            Column(title="value"),
            Column(title="level"),
        )
        _show(columns, [cells for row in found for cells in _origins(row)], "There is no such queue.")
    else:
        used = [name for name in MAIN_PARAMETERS if any(name in row["parameters"] for row in found)]
        titles = [Column(title="queue"), *(Column(title=name) for name in used)]
        last = [Column(title="others"), Column(title="pilots")]
        _show([*titles, *last], [_queue_cells(row, used) for row in found], "There is no such queue.")


def _path(row: Mapping[str, Any]) -> str:
    return f"{row['site']}/{row['ce']}/{row['queue']}"


def _origins(row: Row) -> list[list[Cell]]:
    return [
        [_path(row), name, shown(one["value"]), one["level"]]
        for name, one in sorted(row["parameters"].items())
    ]


def _queue_cells(row: Row, used: Sequence[str]) -> list[Cell]:
    values = {name: shown(one["value"]) for name, one in row["parameters"].items()}
    others = " ".join(f"{name}={text}" for name, text in sorted(values.items()) if name not in used)
    pilots = states(row["pilots"]) if row["pilots"] else ""
    return [_path(row), *(values.get(name, "") for name in used), others, pilots]


@click.group()
def tq() -> None:
    """Look at task queues: jobs that can be matched alike."""


@tq.command("ls")
@click.option(
    "--limit", type=click.IntRange(1, 9_999), default=50, show_default=True, help="At most so many."
)
@json_option
@pass_session
def list_task_queues(session: Session, /, *, limit: int) -> None:
    """List the task queues with waiting jobs, the fullest first."""
    rows = session.get("/v1/task-queues", limit=limit + 1)["task_queues"]
    more, rows = len(rows) > limit, rows[:limit]
    if session.as_json:
        emit_json({"task_queues": rows, "more": more})
        return
    columns = (
        Column(title="tq", right=True),
        Column(title="waiting", right=True),
        Column(title="age", right=True),
        Column(title="owner"),
        Column(title="group"),
        Column(title="cpu", right=True),
        Column(title="asks for"),
    )
    now = time.time()
    _show(columns, [_tq_cells(row, now) for row in rows], "No job waits.")
    if more:
        note(f"There are more: --limit {min(limit * 10, 9_999)}.")


def _tq_cells(row: Row, now: float) -> list[Cell]:
    return [
        str(row["id"]),
        f"{row['waiting']:,}",
        age(row["created_at"], now),
        row["owner"],
        row["group"],
        span(float(row["norm_cpu_seconds"])),
        conditions(row),
    ]


def conditions(key: Mapping[str, Any]) -> str:
    """What a task queue's jobs ask for beyond an ordinary core."""
    parts = [
        f"{label} {joined(key[name])}"
        for label, name in (
            ("at", "sites"), ("not at", "banned_sites"), ("CE", "grid_ces"), ("platform", "platforms"),
            ("tags", "tags"), ("through", "submission_pools"),
        )
        if key.get(name)
    ]  # fmt: skip
    if key.get("cores", 1) != 1:
        parts.append(f"{key['cores']} cores")
    if key.get("memory_mb"):
        parts.append(f"{key['memory_mb']:,} MB")
    if key.get("submit_pool"):
        parts.append(f"SubmitPool {key['submit_pool'][:16]}")
    if key.get("pilot_type"):
        parts.append(f"{key['pilot_type']} pilots")
    if key.get("user_priority", 1) != 1:
        parts.append(f"UserPriority {key['user_priority']}")
    return "; ".join(parts)


def _show(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], nothing: str) -> None:
    if rows:
        show_table(columns, rows)
    else:
        note(nothing)


COMMANDS = (site, queue, tq)
