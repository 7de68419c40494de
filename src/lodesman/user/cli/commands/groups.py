"""`lode group`."""

from __future__ import annotations

import math
from typing import Final

import click
from msgspec import UNSET

from lodesman.user.cli.arguments import COMING
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, say, show_fields, show_table
from lodesman.user.cli.words import joined, number
from lodesman.wire import calls
from lodesman.wire.groups import GroupAt, GroupChange, GroupRow, GroupShareBody, GroupUsersBody
from lodesman.wire.nodes import utc

_CHANGES = ("when", "change", "by", "reason")
_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; everybody of the VO sees it.")
_why = click.option("--reason", default="", metavar="TEXT", help="Why; everybody of the VO sees it.")

group = click.Group(
    "group", help="Shares and members of groups; list them, and change them (administrators)."
)


_GROUPS: Final[Columns[GroupRow]] = table_of(
    Column("group", "text", lambda row: row.group),
    Column("vo", "text", lambda row: row.vo),
    Column("share", "number", lambda row: row.share),
    Column("in_the_files", "number", lambda row: row.file_share),
    Column("set_by", "text", lambda row: row.set_by or "files"),
    Column("when", "utc", lambda row: row.set_at),
    Column("until", "utc", lambda row: None if row.until is UNSET else row.until),
    Column("reason", "text", lambda row: row.reason),
    Column("users", "text", lambda row: row.users),
)


@group.command("ls")
@shaped(_GROUPS)
@with_session
def _list(session: Session, /, *, shape: ListShape) -> None:
    """List the groups of your VO (administrators: all) with their shares, and who set them when and why."""
    groups = session.answer(calls.GROUPS).groups
    left_out = {"users"} if any(row.until is not UNSET for row in groups) else {"users", "until"}
    shape.show(_GROUPS, groups, [name for name in _GROUPS if name not in left_out])


def _ends(row: GroupRow | GroupChange) -> str:
    return "" if row.until is UNSET else utc(row.until)


@group.command("show")
@click.argument("name", metavar="GROUP")
@with_session
def _show(session: Session, /, *, name: str) -> None:
    """Show a group: its share, its members, and what was done to it by command, the newest first."""
    row = session.answer(calls.GROUP, GroupAt(name))
    origin = "the files" if row.set_at is None else f"{row.set_by}, {utc(row.set_at)}: {row.reason}"
    origin += f" (until {_ends(row)})" if _ends(row) else ""
    show_fields((
        ("group", row.group), ("VO", row.vo or "any"), ("share", number(row.share)), ("set by", origin),
        ("in the files", number(row.file_share)), ("shares jobs", "yes" if row.job_sharing else "no"),
        ("users", joined(row.users)),
    ))  # fmt: skip
    if row.changes:
        show_table(_CHANGES, map(_change, row.changes), apart=True)


def _change(row: GroupChange) -> list[Cell]:
    change = {
        "share-set": f"share {number(row.share)}{f' until {_ends(row)}' if _ends(row) else ''}",
        "share-reset": "share of the files",
        "user-added": f"{row.user or 'a user'} joined",
        "user-removed": f"{row.user or 'a user'} left",
    }[row.change]
    return [utc(row.at), change, row.by, row.reason]


@group.command("set")
@click.argument("name", metavar="GROUP")
@click.option(
    "--share",
    type=click.FloatRange(0, 1e12),
    required=True,
    metavar="N",
    help="Against the shares of other groups.",
)
@click.option("--until", type=COMING, metavar="MOMENT", help="It ends then: +2h, or a moment.")
@_reason
@with_session
def _set(session: Session, /, *, name: str, share: float, reason: str, until: float | None) -> None:
    """Give GROUP a share that holds instead of that of the files, at once, until: lode group reset GROUP.

    With --until it ends by itself, and the share of the files holds again.
    """
    if not math.isfinite(share):
        raise click.BadParameter("a share is a number.", param_hint="'--share'")
    done = session.answer(calls.SET_GROUP_SHARE, body=GroupShareBody(name, share, reason, until))
    ends = f" until {_ends(done)}" if _ends(done) else ""
    say(f"Group {done.group} has share {number(done.share)}{ends}. The files say: {number(done.file_share)}.")


@group.command("reset")
@click.argument("name", metavar="GROUP")
@_reason
@with_session
def _reset(session: Session, /, *, name: str, reason: str) -> None:
    """Let the share of GROUP be that of the files again."""
    done = session.answer(calls.SET_GROUP_SHARE, body=GroupShareBody(name, None, reason))
    say(f"Group {done.group} has share {number(done.share)}, as in the files.")


@group.command("add-user")
@click.argument("name", metavar="GROUP")
@click.argument("users", nargs=-1, required=True, metavar="USER...")
@_why
@with_session
def _add(session: Session, /, *, name: str, users: tuple[str, ...], reason: str) -> None:
    """Let users be in GROUP, too. Their usual group stays the one that they had first."""
    done = session.answer(calls.SET_GROUP_USERS, body=GroupUsersBody(name, list(users), "add", reason))
    say(f"In group {done.group} are now: {joined(done.users)}.")


@group.command("rm-user")
@click.argument("name", metavar="GROUP")
@click.argument("users", nargs=-1, required=True, metavar="USER...")
@_why
@with_session
def _remove(session: Session, /, *, name: str, users: tuple[str, ...], reason: str) -> None:
    """Take users out of GROUP. Their jobs stay as they are."""
    done = session.answer(calls.SET_GROUP_USERS, body=GroupUsersBody(name, list(users), "remove", reason))
    say(f"In group {done.group} are now: {joined(done.users)}.")
