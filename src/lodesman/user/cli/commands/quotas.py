"""`lode quota`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import click

from lodesman.base.errors import LodesmanError, NotFound
from lodesman.user.cli.arguments import filter_option
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.native_files import FILE, read_native
from lodesman.user.cli.progress import patience
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table, write_text
from lodesman.user.cli.words import counted
from lodesman.wire import calls
from lodesman.wire.quotas import (
    BucketRow,
    DropQuotasBody,
    PlanQuotasBody,
    QuotaResourceRow,
    QuotasChanged,
    QuotaSetRow,
    QuotaSets,
    QuotaTextBody,
    RuleEffect,
    UsesQuery,
)

quota = click.Group(
    "quota", help="Limit what runs at once, for users, projects, job classes, queues and hosts."
)


def _send(
    session: Session, file: Path, how: Literal["add", "change"], *, trial: bool = False
) -> QuotasChanged:
    text = read_native(file)
    try:
        answer = session.answer(calls.SET_QUOTAS, body=QuotaTextBody(text.text, how, trial))
    except LodesmanError as fault:
        text.say_faults(session, fault)
        raise
    text.say(answer.notices)
    return answer


@quota.command("add")
@FILE
@with_session
def _add(session: Session, /, *, file: Path) -> None:
    """Add the quota sets of a file (administrators); - is standard input.

    A set has a name, `enabled true`, and lines of limits, of which the first that fits a job at a place counts:

    \b
      {
        name     fair
        enabled  true
        limit    users {*} hosts @gpu to slots=8
        limit    projects {*,!test} to slots=200
      }
    """  # noqa: D301  # click wants the character itself
    answer = _send(session, file, "add")
    say(f"Added {', '.join(answer.names)}. lode quota show prints what is used.")


@quota.command("change")
@FILE
@with_session
def _change(session: Session, /, *, file: Path) -> None:
    """Give quota sets the limits of a file (administrators). What runs goes on, also beyond a limit that is lower now."""
    answer = _send(session, file, "change")
    say(f"Changed {', '.join(answer.names)}.")


@quota.command("check")
@FILE
@with_session
def _check(session: Session, /, *, file: Path) -> None:
    """Check the quota sets of a file, and change nothing (administrators)."""
    answer = _send(session, file, "add", trial=True)
    say(f"{file}: {counted(len(answer.names), 'quota set')}, no fault.")


@quota.command("rm")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@with_session
def _remove(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Remove quota sets (administrators): nothing is limited by them any more."""
    answer = session.answer(calls.DROP_QUOTAS, body=DropQuotasBody(list(names)))
    session.exit_if_json(answer)
    say(f"Removed {', '.join(answer.names)}.")


_SETS: Final[Columns[QuotaSetRow]] = table_of(
    Column("rules", "id", lambda row: row.rules),
    Column("name", "text", lambda row: row.name),
    Column("state", "text", lambda row: "enabled" if row.enabled else "not enabled"),
    Column("changed_by", "text", lambda row: row.changed_by),
    Column("age", "age", lambda row: row.changed_at),
)


@quota.command("ls")
@shaped(_SETS)
@with_session
def _list(session: Session, /, *, shape: ListShape) -> None:
    """List the quota sets, in the order in which they are asked."""
    answer = session.answer(calls.QUOTAS)
    session.exit_if_json(answer)
    shape.show(_SETS, answer.sets)
    if not answer.sets:
        note("There is no quota set.")


@quota.command("text")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@with_session
def _show_text(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Print quota sets as `lode quota change` reads them, and qconf too."""
    answer = session.answer(calls.QUOTAS)
    for name in names:
        if name not in {row.name for row in answer.sets}:
            raise NotFound(f"There is no quota set {name}.", hint="lode quota ls lists them.")
    named = QuotaSets([row for row in answer.sets if not names or row.name in names])
    session.exit_if_json(named)
    write_text("".join(row.text for row in named.sets))


_RESOURCES: Final[Columns[QuotaResourceRow]] = table_of(
    Column("resource", "text", lambda row: row.name),
    Column("shortcut", "text", lambda row: row.shortcut),
    Column("type", "text", lambda row: row.type),
    Column("used_up", "text", lambda row: {"YES": "per core", "JOB": "per job"}.get(row.consumable, "")),
    Column("default", "text", lambda row: row.default, heading=">default"),
)


@quota.command("resources")
@shaped(_RESOURCES)
@with_session
def _resources(session: Session, /, *, shape: ListShape) -> None:
    """List the resources (complexes) that quota sets may limit and jobs may ask for with Consumables."""
    answer = session.answer(calls.QUOTA_RESOURCES)
    session.exit_if_json(answer)
    shape.show(_RESOURCES, answer.resources)


def _holders(row: BucketRow) -> str:
    used = (
        f"{holder.owner}{f'/{holder.project}' if holder.project else ''} {row.amount(holder.used)}"
        for holder in row.holders
    )
    return _cut_list(used, row.more_holders)


def _waiters(row: BucketRow | RuleEffect) -> str:
    return _cut_list((f"{owner.owner} {owner.jobs:,}" for owner in row.owners), row.more_owners)


def _cut_list(names: Iterable[str], more: int) -> str:
    return ", ".join([*names, *([f"{more:,} more"] if more else [])])


_BUCKETS: Final[Columns[BucketRow]] = table_of(
    Column("rule", "text", lambda row: row.rule),
    Column("bucket", "text", lambda row: ", ".join(row.of)),
    Column("resource", "text", lambda row: row.resource),
    Column("used", "text", lambda row: row.used, lambda row: row.amount(row.used), ">used"),
    Column("limit", "text", lambda row: row.limit, lambda row: row.amount(row.limit), ">limit"),
    Column("by", "text", _holders),
    Column("jobs_behind", "count", lambda row: row.jobs if row.full else None),
    Column("of", "text", _waiters),
    Column("full_for", "age", lambda row: row.since if row.full else None),
)
_USED: Final = ("rule", "bucket", "resource", "used", "limit", "by")


@quota.command("show")
@filter_option("--user", about="Only limits on jobs of this user.")
@filter_option("--class", "job_class", about="Only limits on this job class, app or app.large.")
@shaped(_BUCKETS)
@with_session
def _show(session: Session, /, *, user: str, job_class: str, shape: ListShape) -> None:
    """Show what is used of each limit and by whom, how many jobs wait behind it, and since when it is full at least."""
    answer = session.answer(calls.QUOTA_USES, query=UsesQuery(user=user, job_class=job_class))
    session.exit_if_json(answer)
    shape.show(_BUCKETS, answer.uses)
    if not answer.uses:
        note("Nothing that is limited runs or waits.")
    if answer.more:
        note("There are more.")


@quota.command("plan")
@FILE
@with_session
def _plan(session: Session, /, *, file: Path) -> None:
    """Show what the quota sets of a file would do now, and change nothing (administrators).

    They are taken as added, or in the place of those with the same name. Which limits would be exceeded by what runs; which
    waiting jobs limits let start now and would not then, and the other way round.
    """
    text = read_native(file)
    try:
        with patience("The server holds all that runs and waits against the limits."):
            answer = session.answer(calls.PLAN_QUOTAS, body=PlanQuotasBody(text.text))
    except LodesmanError as fault:
        text.say_faults(session, fault)
        raise
    text.say(answer.notices)
    jobs = f"{answer.limited_now:,} now, {answer.limited_then:,} then"
    say(f"{', '.join(answer.names)}: waiting jobs that limits stop: {jobs}. Nothing was changed.")
    for effect, some in (
        ("would not start any more", answer.stopped),
        ("would be free to start", answer.freed),
    ):
        if some:
            click.echo()
            say(f"Waiting jobs that {effect}:")
        rows: list[list[Cell]] = [[row.rule, row.task_queues, row.jobs, _waiters(row)] for row in some]
        show_table(("rule", ">task queues", ">jobs", "of"), rows)
    if answer.over:
        click.echo()
        say("More would be used than there is. What runs goes on, and nothing new starts:")
    ListShape().show(_BUCKETS, answer.over, _USED)
    if answer.more_over:
        note(f"{answer.more_over:,} more: --json.")
