"""`lode quota`: limits on what runs at once, as resource quota sets of Grid Engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from lodesman.base.errors import LodesmanError, NotFound
from lodesman.user.cli.arguments import filter_option
from lodesman.user.cli.native_files import FILE, read_native
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, patience, say, show_table, write_text
from lodesman.user.cli.words import age, counted
from lodesman.wire import calls
from lodesman.wire.quotas import (
    BucketRow,
    DropQuotasBody,
    PlanQuotasBody,
    QuotasChanged,
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


@quota.command("ls")
@with_session
def _list(session: Session, /) -> None:
    """List the quota sets, in the order in which they are asked."""
    answer = session.answer(calls.QUOTAS)
    session.exit_if_json(answer)
    rows: list[list[Cell]] = [
        [
            str(one.rules),
            one.name,
            "enabled" if one.enabled else "not enabled",
            one.changed_by,
            age(one.changed_at),
        ]
        for one in answer.sets
    ]
    show_table((">rules", "name", "state", "changed by", ">age"), rows)
    if not rows:
        note("There is no quota set.")


@quota.command("text")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@with_session
def _show_text(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Print quota sets as `lode quota change` reads them, and qconf too."""
    answer = session.answer(calls.QUOTAS)
    for name in names:
        if name not in {one.name for one in answer.sets}:
            raise NotFound(f"There is no quota set {name}.", hint="lode quota ls lists them.")
    wanted = QuotaSets([one for one in answer.sets if not names or one.name in names])
    session.exit_if_json(wanted)
    write_text("".join(one.text for one in wanted.sets))


@quota.command("resources")
@with_session
def _resources(session: Session, /) -> None:
    """List the resources (complexes) that quota sets may limit and jobs may ask for with Consumables."""
    answer = session.answer(calls.QUOTA_RESOURCES)
    session.exit_if_json(answer)
    rows: list[list[Cell]] = [
        [one.name, one.shortcut, one.type, _USED_UP.get(one.consumable, ""), one.default]
        for one in answer.resources
    ]
    show_table(("resource", "shortcut", "type", "used up", ">default"), rows)


_USED_UP = {"YES": "per core", "JOB": "per job"}


@quota.command("show")
@filter_option("--user", about="Only limits on jobs of this user.")
@filter_option("--class", "job_class", about="Only limits on this job class, app or app.large.")
@with_session
def _show(session: Session, /, *, user: str, job_class: str) -> None:
    """Show what is used of each limit and by whom, how many jobs wait behind it, and since when it is full at least."""
    answer = session.answer(calls.QUOTA_USES, query=UsesQuery(user=user, job_class=job_class))
    session.exit_if_json(answer)
    show_table((*_USED, ">jobs behind", "of", ">full for"), map(_bucket, answer.uses))
    if not answer.uses:
        note("Nothing that is limited runs or waits.")
    if answer.more:
        note("There are more.")


_USED = ("rule", "bucket", "resource", ">used", ">limit", "by")


def _bucket(row: BucketRow) -> list[Cell]:
    behind = f"{row.jobs:,}" if row.full else ""
    return [*_use(row), behind, _owners(row), age(row.since) if row.full else ""]


def _use(row: BucketRow) -> list[Cell]:
    held = [
        f"{one.owner}{f'/{one.project}' if one.project else ''} {row.amount(one.used)}" for one in row.holders
    ]
    amounts = [row.amount(row.used), row.amount(row.limit)]
    return [row.rule, ", ".join(row.of), row.resource, *amounts, _first(held, row.more_holders)]


def _owners(row: BucketRow | RuleEffect) -> str:
    return _first([f"{one.owner} {one.jobs:,}" for one in row.owners], row.more_owners)


def _first(names: Sequence[str], more: int) -> str:
    return ", ".join([*names, *([f"{more:,} more"] if more else [])])


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
    for what, some in (
        ("would not start any more", answer.stopped),
        ("would be free to start", answer.freed),
    ):
        if some:
            click.echo()
            say(f"Waiting jobs that {what}:")
        rows: list[list[Cell]] = [[row.rule, row.task_queues, row.jobs, _owners(row)] for row in some]
        show_table(("rule", ">task queues", ">jobs", "of"), rows)
    if answer.over:
        click.echo()
        say("More would be used than there is. What runs goes on, and nothing new starts:")
    show_table(_USED, map(_use, answer.over))
    if answer.more_over:
        note(f"{answer.more_over:,} more: --json.")
