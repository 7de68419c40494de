"""`lode user`, `lode token`, `lode whoami`: who may use the server. A token is shown once, stored nowhere."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, get_args

import click

from lodesman.base.errors import Conflict
from lodesman.user.cli.arguments import FILE, filter_option, limit_option, number_option, several
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_fields, show_table
from lodesman.user.cli.user_lists import import_users, remove_user
from lodesman.user.cli.words import age, counted, joined, size, span
from lodesman.wire import calls
from lodesman.wire.accounts import (
    SCOPES,
    USER_SCOPES,
    AccountBody,
    AuditAction,
    AuditEntry,
    AuditQuery,
    DisableBody,
    TokenAt,
    TokenBody,
    TokenRow,
    UserRow,
)
from lodesman.wire.nodes import utc
from lodesman.wire.requests import AllQuery

_DAY_SECONDS = 86_400.0
_SHOWN_HASH = 12
_USERS = ("user", "VO", "groups", ">tokens", ">age", "remark")
_AUDIT = ("when", "action", "what", "by", "from", ">times", "detail")
_TOKENS = ("hash", "of", "scopes", ">age", ">ends in", "made by", "note")


user = click.Group(
    "user",
    help="Make, import, list, disable and remove users (administrators).",
    commands=[import_users, remove_user],
)


@user.command("add")
@click.argument("name")
@click.option("--vo", required=True, metavar="VO", help="The user's virtual organisation.")
@several("--group", "groups", required=True, metavar="G", help="A group")
@click.option("--admin", is_flag=True, help="The user administers this server.")
@click.option(
    "--vo-admin",
    is_flag=True,
    help="The user administers the VO: its users, tokens, groups; kill and hold of its jobs.",
)
@click.option(
    "--same-person", is_flag=True, help="Give back the jobs of a user of that name who was removed."
)
@with_session
def _add_user(session: Session, /, *, name: str, vo: str, groups: tuple[str, ...], **rights: bool) -> None:
    """Make a user, or change the VO, groups and rights of one."""
    body = AccountBody(name, vo, list(groups), **rights)
    del rights["same_person"]
    made = session.answer(calls.ADD_USER, body=body)
    scope = " --admin" if any(rights.values()) else ""
    say(f"User {made.name} is stored. For a token: lode token issue {made.name}{scope}")


@user.command("ls")
@with_session
def _list_users(session: Session, /) -> None:
    """List all users."""
    found = session.whole(calls.USERS, AllQuery(), "users")
    session.exit_if_json(found)
    show_table(_USERS, map(_user, found.users))


def _user(row: UserRow) -> list[Cell]:
    remarks = (
        "administrator" if row.admin else "administrator of the VO" if row.vo_admin else "",
        "" if row.disabled_at is None else f"disabled {age(row.disabled_at)} ago",
    )
    return [
        row.name,
        row.vo,
        joined(row.groups),
        row.tokens,
        age(row.created_at),
        joined(filter(None, remarks)),
    ]


@user.command("disable")
@click.argument("name")
@with_session
def _disable(session: Session, /, *, name: str) -> None:
    """Let no token of user NAME open anything any more; jobs and pilots stay as they are."""
    session.answer(calls.DISABLE_USER, body=DisableBody(name))
    say(f"User {name} is disabled. To end the jobs: lode kill. To undo it: lode user enable {name}")


@user.command("enable")
@click.argument("name")
@with_session
def _enable(session: Session, /, *, name: str) -> None:
    """Let the tokens of user NAME, who was disabled, be good again."""
    session.answer(calls.DISABLE_USER, body=DisableBody(name, False))
    say(f"User {name} is enabled.")


token = click.Group("token", help="Issue, list and revoke tokens.")


@token.command("issue")
@click.argument("name")
@several("--scope", "scopes", type=click.Choice(SCOPES), help="What it allows (default: all but admin)")
@click.option("--admin", is_flag=True, help="Also the scope admin: what administrators do needs it.")
@number_option("--days", click.FloatRange(0, 36_500), 30.0, "How long it is good; 0: until it is revoked.")
@click.option("--note", "remark", default="", metavar="T", help="What it is for; shown by: lode token ls.")
@click.option(
    "--output", "file", metavar="FILE", type=FILE, help="Write it to a new file that only you can read."
)
@with_session
def _issue(
    session: Session, /, *, name: str, scopes: tuple[str, ...], file: Path | None, **options: Any
) -> None:
    """Issue a token to user NAME; it is shown this once."""
    if math.isnan(options["days"]):
        raise click.BadParameter("nan is not a number of days.", param_hint="'--days'")
    allowed = dict.fromkeys([*(scopes or USER_SCOPES), *(["admin"] if options["admin"] else [])])
    body = TokenBody(name, list(allowed), options["days"] * _DAY_SECONDS, options["remark"])
    if file is None:
        click.echo(session.answer(calls.ISSUE_TOKEN, body=body).token)
        return
    with new_token_file(file) as sink:
        sink.write(session.call(calls.ISSUE_TOKEN, body=body).token + "\n")
    session.exit_if_json({"file": str(file)})
    note(f"The token is in {file}.")


@contextmanager
def new_token_file(path: Path) -> Iterator[TextIO]:
    """Opened before the token is made, so that no token is lost. Raises Conflict.

    What was not written to its end is removed.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists.", hint="Remove it, or name another file.") from None
    with ExitStack() as undo:
        undo.callback(path.unlink, missing_ok=True)
        with os.fdopen(descriptor, "w") as sink:
            yield sink
        undo.pop_all()


@token.command("ls")
@with_session
def _list_tokens(session: Session, /) -> None:
    """List your tokens, for administrators those of all users and sites, by the first characters of their hash."""
    found = session.whole(calls.TOKENS, AllQuery(), "tokens")
    session.exit_if_json(found)
    show_table(_TOKENS, map(_token, found.tokens))


def _token(row: TokenRow) -> list[Cell]:
    left = None if row.expires_at is None else row.expires_at - time.time()
    ends_in = "never" if left is None else "ended" if left < 0 else span(left)
    made_by = f"{row.made_by or 'gone'} {row.made_with[:_SHOWN_HASH]}" if row.made_with else ""
    whose = [
        row.hash[:_SHOWN_HASH],
        f"site {row.account}" if row.kind == "site" else row.account,
        joined(row.scopes),
    ]
    return [*whose, age(row.created_at), ends_in, made_by, row.note]


@token.command("revoke")
@click.argument("prefix", metavar="HASH")
@click.option("--all", "with_others", is_flag=True, help="Also those that it made for other users.")
@with_session
def _revoke(session: Session, /, *, prefix: str, with_others: bool) -> None:
    """Revoke the token whose hash begins with HASH: one of yours, for administrators any.

    Tokens that were made with it for the same user are revoked, too.
    """
    if not prefix.isascii() or not prefix.isalnum():
        raise click.UsageError("HASH is the beginning of a hash, as lode token ls shows it.")
    done = session.call(calls.REVOKE_TOKEN, TokenAt(prefix.lower(), with_others))
    session.exit_if_json({"revoked": prefix.lower(), "tokens": done.revoked, "kept": done.kept})
    whom = "it made" if with_others else "it made for the same user"
    more = f", and {done.revoked - 1:,} that {whom}" if done.revoked > 1 else ""
    note(f"The token {prefix} is revoked{more}.")
    if done.kept:
        are = "was made with it for others is" if done.kept == 1 else "were made with it for others are"
        note(
            f"{counted(done.kept, 'token')} that {are} still valid. See: lode token ls (revoke --all ends them, too)"
        )


@click.command()
@click.option(
    "--action",
    type=click.Choice(get_args(AuditAction)),
    metavar="A",
    help="Only this action, such as token-issued.",
)
@filter_option("--by", metavar="USER", about="Only what this user did.")
@number_option("--days", click.FloatRange(0, 36_500), 0.0, "Only of the last days; 0: all.")
@limit_option(100)
@with_session
def audit(session: Session, /, *, action: AuditAction | None, by: str, days: float, limit: int) -> None:
    """Show who did what to users, tokens, pilots and sites, when and from where (administrators)."""
    since = int(time.time() - days * _DAY_SECONDS) if days else 0
    query = AuditQuery(since=since, action=action, by=by, limit=limit + 1)
    session.show_some("entries", session.call(calls.AUDIT, query).entries, limit, _AUDIT, _entry)


def _entry(row: AuditEntry) -> list[Cell]:
    return [utc(row.at), row.action, row.subject, row.by, row.origin, row.count, row.detail]


@click.command()
@with_session
def whoami(session: Session, /) -> None:
    """Show whose token is used, what it allows, and until when."""
    me = session.answer(calls.ME)
    inputs = me.inputs
    limit = f" of {size(inputs.limit)}" if inputs.limit else ""
    rank = "yes" if me.admin else f"of VO {me.vo}" if me.vo_admin else "no"
    if rank != "no" and "admin" not in me.scopes:
        rank += ", but this token lacks the scope admin"
    show_fields(
        (
            ("user", me.name),
            ("server", session.address),
            ("VO", me.vo),
            ("groups", joined(me.groups)),
            ("scopes", joined(me.scopes)),
            ("administrator", rank),
            ("token", _end_of(me.expires_at)),
            ("input files", f"{inputs.files:,}, {size(inputs.bytes)}{limit}"),
        )
    )


def _end_of(expires_at: float | None) -> str:
    if expires_at is None:
        return "no end"
    return f"until {utc(expires_at)}, in {span(max(0.0, expires_at - time.time()))}"
