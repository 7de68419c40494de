"""`lode user`, `lode token`, `lode audit`, `lode whoami`."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Final, get_args

import click

from lodesman.user.access.tokens import new_token_file
from lodesman.user.cli.arguments import FILE, filter_option, limit_option, number_option, several
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.commands.user_lists import import_users, remove_user
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say, show_fields
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


def _remark(row: UserRow) -> str:
    remarks = (
        "administrator" if row.admin else "administrator of the VO" if row.vo_admin else "",
        "" if row.disabled_at is None else f"disabled {age(row.disabled_at)} ago",
    )
    return ", ".join(filter(None, remarks))


_USERS: Final[Columns[UserRow]] = table_of(
    Column("user", "text", lambda row: row.name),
    Column("vo", "text", lambda row: row.vo),
    Column("groups", "text", lambda row: row.groups),
    Column("tokens", "count", lambda row: row.tokens),
    Column("age", "age", lambda row: row.created_at),
    Column("disabled", "utc", lambda row: row.disabled_at),
    Column("remark", "text", _remark),
)


@user.command("ls")
@shaped(_USERS)
@with_session
def _list_users(session: Session, /, *, shape: ListShape) -> None:
    """List all users."""
    answer = session.whole(calls.USERS, AllQuery(), "users")
    session.exit_if_json(answer)
    shape.show(_USERS, answer.users, ("user", "vo", "groups", "tokens", "age", "remark"))


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


def _seconds_left(row: TokenRow) -> float | None:
    return None if row.expires_at is None else row.expires_at - time.time()


def _ends_in(row: TokenRow) -> str:
    left = _seconds_left(row)
    return "never" if left is None else "ended" if left < 0 else span(left)


_TOKENS: Final[Columns[TokenRow]] = table_of(
    Column("hash", "text", lambda row: row.hash, lambda row: row.hash[:_SHOWN_HASH]),
    Column("of", "text", lambda row: f"site {row.account}" if row.kind == "site" else row.account),
    Column("scopes", "text", lambda row: row.scopes),
    Column("age", "age", lambda row: row.created_at),
    Column("ends_in", "span", _seconds_left, _ends_in),
    Column("ends", "utc", lambda row: row.expires_at),
    Column(
        "made_by",
        "text",
        lambda row: f"{row.made_by or 'gone'} {row.made_with[:_SHOWN_HASH]}" if row.made_with else "",
    ),
    Column("note", "text", lambda row: row.note),
)


@token.command("ls")
@shaped(_TOKENS)
@with_session
def _list_tokens(session: Session, /, *, shape: ListShape) -> None:
    """List your tokens, for administrators those of all users and sites, by the first characters of their hash."""
    answer = session.whole(calls.TOKENS, AllQuery(), "tokens")
    session.exit_if_json(answer)
    shape.show(_TOKENS, answer.tokens, ("hash", "of", "scopes", "age", "ends_in", "made_by", "note"))


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


_AUDIT: Final[Columns[AuditEntry]] = table_of(
    Column("when", "utc", lambda row: row.at),
    Column("action", "text", lambda row: row.action),
    Column("what", "text", lambda row: row.subject),
    Column("by", "text", lambda row: row.by),
    Column("from", "text", lambda row: row.origin),
    Column("times", "count", lambda row: row.count),
    Column("detail", "text", lambda row: row.detail),
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
@shaped(_AUDIT)
@with_session
def audit(
    session: Session, /, *, action: AuditAction | None, by: str, days: float, limit: int, shape: ListShape
) -> None:
    """Show who did what to users, tokens, pilots and sites, when and from where (administrators)."""
    since = int(time.time() - days * _DAY_SECONDS) if days else 0
    query = AuditQuery(since=since, action=action, by=by, limit=limit + 1)
    entries = session.call(calls.AUDIT, query).entries
    session.show_some("entries", entries, limit, lambda some: shape.show(_AUDIT, some))


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
