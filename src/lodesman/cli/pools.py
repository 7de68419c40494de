"""`lode pool ls`, `lode pool show`: the SubmitPools of Requirements, and the queues that serve them (RFC #7)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import Cell, Column, emit_json, note, show_fields, show_table
from lodesman.cli.words import age, counted, joined, number, shown, span

SHORT = 17
COLUMNS = (
    Column(title="pool"),
    Column(title="vo"),
    Column(title="queues", right=True),
    Column(title="waiting", right=True),
    Column(title="held", right=True),
    Column(title="running", right=True),
    Column(title="age", right=True),
    Column(title="pass", right=True),
    Column(title="asks for"),
)
PASSES = (
    Column(title="pass", right=True),
    Column(title="age", right=True),
    Column(title="cause"),
    Column(title="took", right=True),
    Column(title="pools", right=True),
    Column(title="changed", right=True),
    Column(title="jobs held", right=True),
    Column(title="released", right=True),
)


@click.group()
def pool() -> None:
    """Look at SubmitPools: sets of Requirements and the queues that meet them."""


@pool.command("ls")
@click.option("--vo", default="", metavar="NAME", help="Those of this VO; else yours (administrators: all).")
@click.option(
    "--limit", type=click.IntRange(1, 9_999), default=50, show_default=True, help="At most so many."
)
@json_option
@pass_session
def list_pools(session: Session, /, *, vo: str, limit: int) -> None:
    """List SubmitPools, those that most jobs need first."""
    found = session.get("/v1/submit-pools", limit=limit, vo=vo or None)
    rows, total = found["pools"], found["total"]
    if session.as_json:
        emit_json({"pools": rows, "more": total > len(rows), "last_pass": found["last_pass"]})
        return
    now = time.time()
    if rows:
        show_table(COLUMNS, [_cells(row, now) for row in rows])
    else:
        note("There is no SubmitPool: no job that is known has Requirements.")
    if total > len(rows):
        note(f"There are {total:,}: --limit {min(limit * 10, 9_999)}.")


def _cells(row: Row, now: float) -> list[Cell]:
    jobs = row["jobs"]
    return [
        row["id"][:SHORT],
        row["vo"],
        number(row["queues"]),
        *(f"{jobs[what]:,}" for what in ("waiting", "held", "running")),
        age(row["created_at"], now),
        age(row["refreshed_at"], now),
        asked(row["requirements"]),
    ]


def asked(requirements: Mapping[str, Mapping[str, Any]]) -> str:
    """What a pool asks for in one line."""
    return "; ".join(f"{name} {_wanted(one)}" for name, one in requirements.items())


def _wanted(one: Mapping[str, Any]) -> str:
    unit = one.get("unit")
    return joined(map(shown, one["wanted"])) + (f" {unit}" if unit else "")


@pool.command("show")
@click.argument("pool_id", metavar="ID")
@json_option
@pass_session
def show_pool(session: Session, /, *, pool_id: str) -> None:
    """Show one SubmitPool, named by the beginning of its id: what it asks for, who serves it, who needs it."""
    from urllib.parse import quote

    if not pool_id.strip():
        raise click.UsageError("ID is the beginning of a pool's id, as lode pool ls shows it.")
    found = session.get(f"/v1/submit-pools/{quote(pool_id, safe='')}")
    if session.as_json:
        emit_json(found)
        return
    now = time.time()
    show_fields(list(_fields(found, now)))
    if found["passes"]:
        click.echo()
        show_table(PASSES, [_pass(one, now) for one in found["passes"]])


def _fields(found: Row, now: float) -> Iterator[tuple[str, Cell]]:
    yield "pool", found["id"]
    yield "VO", found["vo"]
    for name, one in found["requirements"].items():
        yield "asks for", f"{name} ({one['kind']}): {_wanted(one)}"
    yield "created", f"{age(found['created_at'], now)} ago"
    refreshed_at = found["refreshed_at"]
    yield "last pass", "not yet" if refreshed_at is None else f"{age(refreshed_at, now)} ago"
    jobs = found["jobs"]
    needed = ", ".join(f"{jobs[what]:,} {what}" for what in ("waiting", "held", "running") if jobs[what])
    yield "jobs", needed or _unused(found, now)
    yield "queues", "not known yet" if found["queues"] is None else counted(found["queues"], "queue")
    for queue in found["served_by"]:
        yield "served by", f"{queue['site']}/{queue['ce']}/{queue['queue']}"


def _unused(found: Row, now: float) -> str:
    since = found["unused_since"]
    return "none" if since is None else f"none, for {age(since, now)}"


def _pass(one: Row, now: float) -> list[Cell]:
    return [
        str(one["id"]),
        age(one["at"], now),
        one["cause"],
        span(one["seconds"]),
        *(f"{one[what]:,}" for what in ("pools", "changed", "held", "released")),
    ]


COMMANDS = (pool,)
