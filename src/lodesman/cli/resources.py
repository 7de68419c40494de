"""`lode site ls`, `lode queue ls`, `lode tq ls`: where jobs can run, and where they wait."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from lodesman.cli.nodes import Wanted, show_node
from lodesman.cli.places import directory_of, written_at
from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.site_mask import close_site, open_site, path_of, tell_closed
from lodesman.cli.tables import Cell, Column, emit_json, note, show_table
from lodesman.cli.words import age, joined, shown, span, states

# These have a column of their own; all others stand together in the last one.
MAIN_PARAMETERS = ("Platform", "CPUTime", "Memory", "MaxRAM", "NumberOfProcessors", "Tag")


ORIGIN = click.option(
    "--origin",
    is_flag=True,
    help="Of each value, the level that gave it, and the file and line where it is written.",
)
VO = click.option(
    "--vo", default="", metavar="NAME", help="As this VO sees them (administrators); else yours."
)


@click.group()
def site() -> None:
    """Look at sites, close and open them."""


site.add_command(close_site)
site.add_command(open_site)


@site.command("ls")
@json_option
@pass_session
def list_sites(session: Session, /) -> None:
    """List the sites with their queues, live pilots and running jobs, and what is closed."""
    answer = session.get("/v1/sites")
    if session.as_json:
        emit_json(answer)
        return
    closings = answer.get("closed", ())
    columns = (
        Column(title="site"),
        Column(title="ces", right=True),
        Column(title="queues", right=True),
        Column(title="running jobs", right=True),
        Column(title="pilots"),
        *([Column(title="closed")] if closings else []),
    )
    rows = [
        [row["site"], str(row["ces"]), str(row["queues"]), f"{row['running_jobs']:,}", states(row["pilots"]),
         *([_closed_of_site(row)] if closings else [])]
        for row in answer["sites"]
    ]  # fmt: skip
    _show(columns, rows, "No site is configured; see: lode init.")
    tell_closed(closings)


def _closed_of_site(row: Row) -> str:
    """`all`, or which parts of it are closed."""
    closed = row.get("closed", ())
    whole = any(not one["ce"] for one in closed)
    return "all" if whole else ", ".join(path_of({**one, "site": ""}) for one in closed)


@site.command("show")
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE]")
@ORIGIN
@VO
@json_option
@pass_session
def show_site(session: Session, /, *, names: tuple[str, ...], origin: bool, vo: str) -> None:
    """Show a site, or a CE of it, with every value and what its CEs and queues say otherwise.

    SITE CE as two words, if a name has a slash. --origin tells for each value the level that gave it, the file and
    the line.
    """
    show_node(session, names, Wanted(most_names=2, origin=origin, vo=vo))


@click.group()
def queue() -> None:
    """Look at the queues of CEs."""


@queue.command("ls")
@ORIGIN
@click.option("--site", "site_name", default="", metavar="NAME", help="Only the queues of this site.")
@VO
@json_option
@pass_session
def list_queues(session: Session, /, *, origin: bool, site_name: str, vo: str) -> None:
    """List the queues that your VO may use, with their effective parameters."""
    found = session.get("/v1/queues", vo=vo, origin="true" if origin else None)["queues"]
    found = [row for row in found if site_name in ("", row["site"])]
    if session.as_json:
        emit_json({"queues": found})
    elif origin:
        columns = (
            Column(title="queue"),
            Column(title="parameter"),
            Column(title="value"),
            Column(title="level"),
            Column(title="written at"),
        )
        directory = directory_of(one.get("file", "") for row in found for one in row["parameters"].values())
        cells = [cells for row in found for cells in _origins(row, directory)]
        _show(columns, cells, "There is no such queue.")
        if directory:
            note(f"The files are in {directory}")
    else:
        used = [name for name in MAIN_PARAMETERS if any(name in row["parameters"] for row in found)]
        titles = [Column(title="queue"), *(Column(title=name) for name in used)]
        closings = [one for row in found for one in row.get("closed", ())]
        last = [
            Column(title="others"),
            Column(title="pilots"),
            *([Column(title="closed")] if closings else []),
        ]
        cells = [[*_queue_cells(row, used), *([_level(row)] if closings else [])] for row in found]
        _show([*titles, *last], cells, "There is no such queue.")
        tell_closed(closings)


def _path(row: Mapping[str, Any]) -> str:
    return f"{row['site']}/{row['ce']}/{row['queue']}"


def _origins(row: Row, directory: str) -> list[list[Cell]]:
    return [
        [_path(row), name, shown(one["value"]), one["level"], written_at(one, directory)]
        for name, one in sorted(row["parameters"].items())
    ]


def _queue_cells(row: Row, used: Sequence[str]) -> list[Cell]:
    values = {name: shown(one["value"]) for name, one in row["parameters"].items()}
    others = " ".join(f"{name}={text}" for name, text in sorted(values.items()) if name not in used)
    pilots = states(row["pilots"]) if row["pilots"] else ""
    return [_path(row), *(values.get(name, "") for name in used), others, pilots]


def _level(row: Row) -> str:
    """What of a queue is closed: the widest."""
    found = row.get("closed", ())
    if not found:
        return ""
    return "the queue" if found[0]["queue"] else "the CE" if found[0]["ce"] else "the site"


@queue.command("show")
@click.argument("names", nargs=-1, required=True, metavar="SITE/CE/QUEUE")
@ORIGIN
@VO
@json_option
@pass_session
def show_queue(session: Session, /, *, names: tuple[str, ...], origin: bool, vo: str) -> None:
    """Show a queue with every value that holds there.

    SITE CE QUEUE as three words, if a name has a slash. --origin tells for each value the level that gave it, the
    file and the line, and what other levels say.
    """
    show_node(session, names, Wanted(most_names=3, kind="Queue", origin=origin, vo=vo))


@click.group()
def tq() -> None:
    """Look at task queues: jobs that can be matched alike."""


@tq.command("ls")
@click.option(
    "--limit", type=click.IntRange(1, 9_999), default=50, show_default=True, help="At most so many."
)
@click.option("--reason", default="", help="Only those with this main reason (see: lode tq reasons).")
@json_option
@pass_session
def list_task_queues(session: Session, /, *, limit: int, reason: str) -> None:
    """List the task queues with waiting jobs, the fullest first, each with the main reason why they wait.

    Jobs that no configured queue can run are Held, not waiting.
    """
    rows = session.get("/v1/task-queues", limit=limit + 1, reason=reason)["task_queues"]
    more, rows = len(rows) > limit, rows[:limit]
    if session.as_json:
        emit_json({"task_queues": rows, "more": more})
        return
    columns = (
        Column(title="tq", right=True),
        Column(title="waiting", right=True),
        Column(title="held", right=True),
        Column(title="age", right=True),
        Column(title="owner"),
        Column(title="group"),
        Column(title="cpu", right=True),
        Column(title="waits because"),
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
        f"{row['held']:,}" if row["held"] else "",
        age(row["created_at"], now),
        row["owner"],
        row["group"],
        span(float(row["norm_cpu_seconds"])),
        because(row["main_reason"], row["detail"]),
        conditions(row),
    ]


def because(reason: str | None, detail: str | None) -> str:
    """A main reason with what stops most."""
    return f"{reason} ({detail})" if detail else reason or "not judged yet"


@tq.command("reasons")
@json_option
@pass_session
def list_reasons(session: Session, /) -> None:
    """Tell why jobs wait, counted over all task queues: one main reason each, judged every few seconds."""
    found = session.get("/v1/task-queues/reasons")
    if session.as_json:
        emit_json(found)
        return
    columns = (
        Column(title="verdict"),
        Column(title="main reason"),
        Column(title="jobs", right=True),
        Column(title="tqs", right=True),
        Column(title="since", right=True),
    )
    now = time.time()
    rows = [
        [row["verdict"], because(row["reason"], row["detail"]), f"{row['jobs']:,}", f"{row['task_queues']:,}",
         age(row["since"], now)]
        for row in found["reasons"]
    ]  # fmt: skip
    _show(columns, rows, "No job waits.")
    if found["at"] is not None:
        facts = found["facts_at"]
        known = "some facts are not known yet" if facts is None else f"by facts of {age(facts, now)} ago"
        note(f"Judged {age(found['at'], now)} ago, {known}.")


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
