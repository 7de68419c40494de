"""`lode tq` and `lode pool`: where jobs wait, and the SubmitPools of their Requirements (RFC #7)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from lodesman.answers import calls
from lodesman.answers.requests import PoolAt, PoolsQuery, TaskQueuesQuery
from lodesman.answers.task_queues import Pool as PoolRow
from lodesman.answers.task_queues import (
    PoolInFull,
    PoolPass,
    Required,
    TaskQueueFacts,
    TaskQueueRow,
    WaitingReasons,
)
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import Cell, emit_json, note, show_fields, show_table
from lodesman.cli.words import age, counted, joined, number, shown, span

_SHORT = 17
_LIMIT = click.option(
    "--limit", type=click.IntRange(1, 9_999), default=50, show_default=True, help="Maximum number of rows."
)


@click.group()
def tq() -> None:
    """List task queues: jobs that can be matched alike."""


@tq.command("ls")
@_LIMIT
@click.option("--reason", default="", help="Only those with this main reason (see: lode tq reasons).")
@json_option
@pass_session
def list_task_queues(session: Session, /, *, limit: int, reason: str) -> None:
    """List the task queues with waiting jobs, the fullest first, each with the main reason why they wait.

    Jobs that no configured queue can run are Held, not waiting.
    """
    rows = session.call(calls.TASK_QUEUES, TaskQueuesQuery(limit + 1, reason)).task_queues
    more, rows = len(rows) > limit, rows[:limit]
    if session.as_json:
        emit_json({"task_queues": rows, "more": more})
        return
    now = time.time()
    if rows:
        columns = (
            ">tq", ">waiting", ">held", ">age", "owner", "group", ">cpu", "waits because", "asks for",
        )  # fmt: skip
        show_table(columns, [_tq_cells(row, now) for row in rows])
    else:
        note("No job waits.")
    if more:
        note(f"There are more: --limit {min(limit * 10, 9_999)}.")


def _tq_cells(row: TaskQueueRow, now: float) -> list[Cell]:
    return [
        str(row.id),
        f"{row.waiting:,}",
        f"{row.held:,}" if row.held else "",
        age(row.created_at, now),
        row.owner,
        row.group,
        span(float(row.norm_cpu_seconds)),
        _because(row.main_reason, row.detail),
        conditions(row),
    ]


def _because(reason: str | None, detail: str | None) -> str:
    """A main reason with what stops most."""
    return f"{reason} ({detail})" if detail else reason or "not judged yet"


def conditions(key: TaskQueueFacts) -> str:
    """What a task queue's jobs ask for beyond an ordinary core."""
    lists = {
        "at": key.sites, "not at": key.banned_sites, "CE": key.grid_ces, "platform": key.platforms,
        "tags": key.tags, "through": key.submission_pools,
    }  # fmt: skip
    parts = [f"{label} {joined(names)}" for label, names in lists.items() if names]
    if key.cores != 1:
        parts.append(f"{key.cores} cores")
    if key.memory_mb:
        parts.append(f"{key.memory_mb:,} MB")
    if key.submit_pool:
        parts.append(f"SubmitPool {key.submit_pool[:16]}")
    if key.pilot_type:
        parts.append(f"{key.pilot_type} pilots")
    if key.user_priority != 1:
        parts.append(f"UserPriority {key.user_priority}")
    return "; ".join(parts)


@tq.command("reasons")
@json_option
@pass_session
def list_reasons(session: Session, /) -> None:
    """Show why jobs wait, counted over all task queues: one main reason each, judged every few seconds."""
    session.show(calls.WAITING_REASONS, text=_show_reasons)


def _show_reasons(found: WaitingReasons) -> None:
    now = time.time()
    rows = [
        [
            row.verdict,
            _because(row.reason, row.detail),
            f"{row.jobs:,}",
            f"{row.task_queues:,}",
            age(row.since, now),
        ]
        for row in found.reasons
    ]
    if rows:
        show_table(("verdict", "main reason", ">jobs", ">tqs", ">since"), rows)
    else:
        note("No job waits.")
    if found.at is not None:
        facts = found.facts_at
        known = "some facts are not known yet" if facts is None else f"by facts of {age(facts, now)} ago"
        note(f"Judged {age(found.at, now)} ago, {known}.")


@click.group()
def pool() -> None:
    """List SubmitPools: sets of Requirements and the queues that meet them."""


@pool.command("ls")
@click.option("--vo", default="", metavar="NAME", help="Those of this VO; else yours (administrators: all).")
@_LIMIT
@json_option
@pass_session
def list_pools(session: Session, /, *, vo: str, limit: int) -> None:
    """List SubmitPools, those that most jobs need first."""
    found = session.call(calls.POOLS, PoolsQuery(vo, limit))
    rows, total = found.pools, found.total
    if session.as_json:
        emit_json({"pools": rows, "more": total > len(rows), "last_pass": found.last_pass})
        return
    now = time.time()
    if rows:
        columns = ("pool", "vo", ">queues", ">waiting", ">held", ">running", ">age", ">pass", "asks for")
        show_table(columns, [_pool_cells(row, now) for row in rows])
    else:
        note("There is no SubmitPool: no known job has Requirements.")
    if total > len(rows):
        note(f"There are {total:,}: --limit {min(limit * 10, 9_999)}.")


def _pool_cells(row: PoolRow, now: float) -> list[Cell]:
    jobs = row.jobs
    return [
        row.id[:_SHORT],
        row.vo,
        number(row.queues),
        *(f"{count:,}" for count in (jobs.waiting, jobs.held, jobs.running)),
        age(row.created_at, now),
        age(row.refreshed_at, now),
        asked(row.requirements),
    ]


def asked(requirements: Mapping[str, Required]) -> str:
    """What a pool asks for in one line."""
    return "; ".join(f"{name} {_wanted(one)}" for name, one in requirements.items())


def _wanted(one: Required) -> str:
    return joined(map(shown, one.wanted)) + (f" {one.unit}" if one.unit else "")


@pool.command("show")
@click.argument("pool_id", metavar="ID")
@json_option
@pass_session
def show_pool(session: Session, /, *, pool_id: str) -> None:
    """Show one SubmitPool, named by the beginning of its id: what it asks for, who serves it, who needs it."""
    if not pool_id.strip():
        raise click.UsageError("ID is the beginning of a pool's id, as lode pool ls shows it.")
    session.show(calls.POOL, PoolAt(pool_id), text=_show_pool)


def _show_pool(found: PoolInFull) -> None:
    now = time.time()
    show_fields(list(_fields(found, now)))
    if found.passes:
        click.echo()
        columns = (">pass", ">age", "cause", ">took", ">pools", ">changed", ">jobs held", ">released")
        show_table(columns, [_pass(one, now) for one in found.passes])


def _fields(found: PoolInFull, now: float) -> Iterator[tuple[str, Cell]]:
    yield "pool", found.id
    yield "VO", found.vo
    for name, one in found.requirements.items():
        yield "asks for", f"{name} ({one.kind}): {_wanted(one)}"
    yield "created", f"{age(found.created_at, now)} ago"
    yield "last pass", "not yet" if found.refreshed_at is None else f"{age(found.refreshed_at, now)} ago"
    jobs = {"waiting": found.jobs.waiting, "held": found.jobs.held, "running": found.jobs.running}
    needed = ", ".join(f"{count:,} {what}" for what, count in jobs.items() if count)
    since = found.unused_since
    yield "jobs", needed or ("none" if since is None else f"none, for {age(since, now)}")
    yield "queues", "not known yet" if found.queues is None else counted(found.queues, "queue")
    for queue in found.served_by:
        yield "served by", f"{queue.site}/{queue.ce}/{queue.queue}"


def _pass(one: PoolPass, now: float) -> list[Cell]:
    counts: tuple[Any, ...] = (one.pools, one.changed, one.held, one.released)
    return [str(one.id), age(one.at, now), one.cause, span(one.seconds), *(f"{count:,}" for count in counts)]


COMMANDS = (tq, pool)
