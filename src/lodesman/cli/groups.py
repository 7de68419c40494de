"""`lode group`: shares and members of groups, by file or by command, and who set them."""

from __future__ import annotations

import math

import click

from lodesman.answers import calls
from lodesman.answers.groups import GroupAt, GroupChange, GroupRow, GroupShareBody, GroupUsersBody
from lodesman.answers.nodes import utc
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import Cell, say, show_fields, show_table
from lodesman.cli.words import joined, number

_GROUPS = ("group", "VO", ">share", ">in the files", "set by", "when", "reason")
_CHANGES = ("when", "change", "by", "reason")
_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; everybody of the VO sees it.")
_why = click.option("--reason", default="", metavar="TEXT", help="Why; everybody of the VO sees it.")

group = click.Group(
    "group", help="Shares and members of groups; list them, and change them (administrators)."
)


@group.command("ls")
@with_session
def _list(session: Session, /) -> None:
    """List the groups of your VO (administrators: all) with their shares, and who set them when and why."""
    show_table(_GROUPS, map(_row, session.answer(calls.GROUPS).groups))


def _row(one: GroupRow) -> list[Cell]:
    when = "" if one.set_at is None else utc(one.set_at)
    shares = (number(one.share), number(one.file_share))
    return [one.group, one.vo, *shares, one.set_by or "files", when, one.reason]


@group.command("show")
@click.argument("name", metavar="GROUP")
@with_session
def _show(session: Session, /, *, name: str) -> None:
    """Show a group: its share, its members, and what was done to it by command, the newest first."""
    one = session.answer(calls.GROUP, GroupAt(name))
    origin = "the files" if one.set_at is None else f"{one.set_by}, {utc(one.set_at)}: {one.reason}"
    show_fields((
        ("group", one.group), ("VO", one.vo or "any"), ("share", number(one.share)), ("set by", origin),
        ("in the files", number(one.file_share)), ("shares jobs", "yes" if one.job_sharing else "no"),
        ("users", joined(one.users)),
    ))  # fmt: skip
    if one.changes:
        show_table(_CHANGES, map(_change, one.changes), apart=True)


def _change(one: GroupChange) -> list[Cell]:
    what = {
        "share-set": f"share {number(one.share)}",
        "share-reset": "share of the files",
        "user-added": f"{one.user or 'a user'} joined",
        "user-removed": f"{one.user or 'a user'} left",
    }[one.change]
    return [utc(one.at), what, one.by, one.reason]


@group.command("set")
@click.argument("name", metavar="GROUP")
@click.option(
    "--share",
    type=click.FloatRange(0, 1e12),
    required=True,
    metavar="N",
    help="Against the shares of other groups.",
)
@_reason
@with_session
def _set(session: Session, /, *, name: str, share: float, reason: str) -> None:
    """Give GROUP a share that holds instead of that of the files, at once, until: lode group reset GROUP."""
    if not math.isfinite(share):
        raise click.BadParameter("a share is a number.", param_hint="'--share'")
    done = session.answer(calls.SET_GROUP_SHARE, body=GroupShareBody(name, share, reason))
    say(f"Group {done.group} has share {number(done.share)}. The files say: {number(done.file_share)}.")


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
