"""`lode tq` and `lode pool` (RFC #7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Final

import click

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.arguments import MOST_LISTED, filter_option, limit_option
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, show_fields, show_table
from lodesman.user.cli.words import age, counted, joined, path_of, shown, span
from lodesman.wire import calls
from lodesman.wire.requests import PoolAt, PoolsQuery, TaskQueuesQuery
from lodesman.wire.task_queues import (
    Pool,
    PoolInFull,
    PoolPass,
    Required,
    TaskQueueFacts,
    TaskQueueRow,
    WaitingFor,
)

_SHORT = 17
_PASSES = (">refresh", ">age", "cause", ">took", ">pools", ">changed", ">jobs held", ">released")


def _task_queues(pool_words: Callable[[], Mapping[str, str]] = dict) -> Columns[TaskQueueRow]:
    return table_of(
        Column("tq", "id", lambda row: row.id),
        Column("waiting", "count", lambda row: row.waiting),
        Column("held", "count", lambda row: row.held, lambda row: row.held or ""),
        Column("age", "age", lambda row: row.created_at),
        Column("owner", "text", lambda row: row.owner),
        Column("group", "text", lambda row: row.group),
        Column("vo", "text", lambda row: row.vo),
        Column("cpu", "span", lambda row: float(row.norm_cpu_seconds)),
        Column("cores", "count", lambda row: row.cores),
        Column("memory", "mb", lambda row: row.memory_mb or None),
        Column("reason", "text", lambda row: row.main_reason and row.main_reason.value),
        Column("waits_because", "text", lambda row: _because(row.main_reason, row.detail)),
        Column("asks_for", "text", lambda row: conditions(row, pool_words)),
    )


_USUAL: Final = ("tq", "waiting", "held", "age", "owner", "group", "cpu", "waits_because", "asks_for")
tq = click.Group("tq", help="List task queues: jobs that can be matched alike.")


@tq.command("ls")
@limit_option(50)
@filter_option(
    "--reason", metavar="TEXT", about="Only those with this pending reason (see: lode tq reasons)."
)
@shaped(_task_queues())
@with_session
def _list_task_queues(session: Session, /, *, limit: int, reason: str, shape: ListShape) -> None:
    """List the task queues with waiting jobs, the fullest first, each with the pending reason.

    Jobs that no configured queue can run are Held, not waiting.
    """
    rows = session.call(calls.TASK_QUEUES, TaskQueuesQuery(limit + 1, reason)).task_queues
    if not rows:
        note("No job waits.")
    columns = _task_queues(cache(partial(_wanted_by_pools, session)))  # asked for if a row has a pool
    session.show_some("task_queues", rows, limit, lambda some: shape.show(columns, some, _USUAL))


def _wanted_by_pools(session: Session) -> Mapping[str, str]:
    try:
        pools = session.call(calls.POOLS, PoolsQuery(limit=MOST_LISTED)).pools
    except LodesmanError:  # their ids are shown
        return {}
    return {pool.id: requirement_words(pool.requirements) for pool in pools}


def _because(reason: str | None, detail: str | None) -> str:
    return f"{reason} ({detail})" if detail else reason or "not judged yet"


def conditions(key: TaskQueueFacts, pool_words: Callable[[], Mapping[str, str]] = dict) -> str:
    """What jobs ask for beyond an ordinary core; `pool_words`: what SubmitPools ask for, by id."""
    lists = {
        "at": key.sites, "not at": key.banned_sites, "CE": key.grid_ces, "platform": key.platforms,
        "tags": key.tags, "through": key.submission_pools,
    }  # fmt: skip
    parts = [f"{label} {joined(names)}" for label, names in lists.items() if names]
    pool, short = key.submit_pool, key.submit_pool[:16]
    rest = (
        (key.cores != 1, f"{key.cores} cores"),
        (key.memory_mb, f"{key.memory_mb:,} MB"),
        (
            pool,
            f"{pool_words()[pool]} (SubmitPool {short})"
            if pool and pool in pool_words()
            else f"SubmitPool {short}",
        ),
        (key.pilot_type, f"{key.pilot_type} pilots"),
        (key.force_generic, "generic pilots"),
        (key.user_priority != 1, f"UserPriority {key.user_priority}"),
    )
    return "; ".join(parts + [text for asked_for, text in rest if asked_for])


_REASONS: Final[Columns[WaitingFor]] = table_of(
    Column("verdict", "text", lambda row: row.verdict),
    Column("reason", "text", lambda row: row.reason.value),
    Column("pending_reason", "text", lambda row: _because(row.reason, row.detail)),
    Column("jobs", "count", lambda row: row.jobs),
    Column("tqs", "count", lambda row: row.task_queues),
    Column("since", "age", lambda row: row.since),
)


@tq.command("reasons")
@shaped(_REASONS)
@with_session
def _list_reasons(session: Session, /, *, shape: ListShape) -> None:
    """Show why jobs wait, counted over all task queues: one pending reason each, judged every few seconds."""
    answer = session.answer(calls.WAITING_REASONS)
    shape.show(_REASONS, answer.reasons, ("verdict", "pending_reason", "jobs", "tqs", "since"))
    if not answer.reasons:
        note("No job waits.")
    if answer.at is not None:
        facts = answer.facts_at
        basis = "some facts are not known yet" if facts is None else f"by facts of {age(facts)} ago"
        note(f"Judged {age(answer.at)} ago, {basis}.")


_POOLS: Final[Columns[Pool]] = table_of(
    Column("pool", "text", lambda row: row.id, lambda row: row.id[:_SHORT]),
    Column("vo", "text", lambda row: row.vo),
    Column("queues", "count", lambda row: row.queues),
    Column("waiting", "count", lambda row: row.jobs.waiting),
    Column("held", "count", lambda row: row.jobs.held),
    Column("running", "count", lambda row: row.jobs.running),
    Column("age", "age", lambda row: row.created_at),
    Column("refreshed", "age", lambda row: row.refreshed_at),
    Column("asks_for", "text", lambda row: requirement_words(row.requirements)),
)
pool = click.Group("pool", help="List SubmitPools: sets of Requirements and the queues that meet them.")


@pool.command("ls")
@filter_option("--vo", about="Those of this VO; else yours (administrators: all).")
@limit_option(50)
@shaped(_POOLS)
@with_session
def _list_pools(session: Session, /, *, vo: str, limit: int, shape: ListShape) -> None:
    """List SubmitPools, those that most jobs need first."""
    answer = session.call(calls.POOLS, PoolsQuery(vo=vo, limit=limit))
    rows, more = answer.pools, answer.total > len(answer.pools)
    session.exit_if_json({"pools": rows, "more": more, "last_pass": answer.last_pass})
    shape.show(_POOLS, rows)
    if not rows:
        note("There is no SubmitPool: no known job has Requirements.")
    if more:
        note(f"There are {answer.total:,}: --limit {min(limit * 10, MOST_LISTED)}.")


def requirement_words(requirements: Mapping[str, Required]) -> str:
    """What a pool asks for, in one line."""
    return "; ".join(f"{name} {_required_words(required)}" for name, required in requirements.items())


def _required_words(required: Required) -> str:
    return joined(map(shown, required.wanted)) + (f" {required.unit}" if required.unit else "")


@pool.command("show")
@click.argument("pool_id", metavar="ID")
@with_session
def _show_pool(session: Session, /, *, pool_id: str) -> None:
    """Show one SubmitPool, named by the beginning of its id: what it asks for, who serves it, who needs it."""
    if not pool_id.strip():
        raise click.UsageError("ID is the beginning of a pool's id, as lode pool ls shows it.")
    answer = session.answer(calls.POOL, PoolAt(pool_id))
    show_fields(_fields(answer))
    show_table(_PASSES, map(_pass, answer.passes), apart=True)


def _fields(row: PoolInFull) -> Iterator[tuple[str, Cell]]:
    yield "pool", row.id
    yield "VO", row.vo
    for name, required in row.requirements.items():
        yield "asks for", f"{name} ({required.kind}): {_required_words(required)}"
    yield "created", f"{age(row.created_at)} ago"
    yield "last refresh", "not yet" if row.refreshed_at is None else f"{age(row.refreshed_at)} ago"
    jobs = {"waiting": row.jobs.waiting, "held": row.jobs.held, "running": row.jobs.running}
    needed = ", ".join(f"{count:,} {state}" for state, count in jobs.items() if count)
    since = row.unused_since
    yield "jobs", needed or ("none" if since is None else f"none, for {age(since)}")
    yield "queues", "not known yet" if row.queues is None else counted(row.queues, "queue")
    for queue in row.served_by:
        yield "served by", path_of(queue)


def _pass(row: PoolPass) -> list[Cell]:
    counts = (row.pools, row.changed, row.held, row.released)
    return [str(row.id), age(row.at), row.cause, span(row.seconds), *counts]
