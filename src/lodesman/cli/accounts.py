"""`lode user`, `lode token`, `lode whoami`: who may use the server. A token is shown once, stored nowhere."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from lodesman.answers import calls
from lodesman.answers.accounts import SCOPES, USER_SCOPES, Inputs, Me, TokenRow, Tokens, UserMade
from lodesman.answers.requests import AccountBody, TokenAt, TokenBody
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import Cell, emit_json, note, show_fields, show_table
from lodesman.cli.words import age, counted, joined, plain, size, span
from lodesman.errors import Conflict

_DAY_SECONDS = 86_400.0
_MOST_DAYS = 36_500
_SHOWN_HASH = 12


class Days(click.FloatRange):
    """How long a token is good: any number up to a hundred years."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. A usage error for `nan` and what is out of range."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail("nan is not a number of days.", param, ctx)
        return found


@click.group()
def user() -> None:
    """Make users (administrators)."""


@user.command("add")
@click.argument("name")
@click.option("--vo", required=True, metavar="VO", help="The user's virtual organisation.")
@click.option(
    "--group",
    "groups",
    required=True,
    multiple=True,
    metavar="G",
    help="A group; may be given several times.",
)
@click.option("--admin", is_flag=True, help="The user administers this server.")
@json_option
@pass_session
def add_user(session: Session, /, *, name: str, vo: str, groups: tuple[str, ...], admin: bool) -> None:
    """Make a user, or change the VO, groups and rights of one."""
    session.show(calls.ADD_USER, body=AccountBody(name, vo, list(groups), admin), text=_show_user)


def _show_user(answer: UserMade) -> None:
    click.echo(f"User {plain(answer.name)} is known. Now: lode token issue {plain(answer.name)}")


@click.group()
def token() -> None:
    """Issue, list and revoke tokens."""


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it allows; may be given several times. [default: all but admin]",
)
@click.option(
    "--days",
    type=Days(min=0, max=_MOST_DAYS),
    default=30.0,
    show_default=True,
    help="How long it is good; 0: until it is revoked.",
)
@click.option("--note", "remark", default="", metavar="T", help="What it is for; shown by: lode token ls.")
@click.option(
    "--output",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it to a new file that only you can read, instead of printing it.",
)
@json_option
@pass_session
def issue(
    session: Session, /, *, name: str, scopes: tuple[str, ...], file: Path | None, **options: Any
) -> None:
    """Issue a token to user NAME; it is shown this once."""
    body = TokenBody(name, list(scopes or USER_SCOPES), options["days"] * _DAY_SECONDS, options["remark"])
    if file is None:
        session.show(calls.ISSUE_TOKEN, body=body, text=lambda made: click.echo(made.token))
        return
    with _new_file(file) as sink:
        sink.write(session.call(calls.ISSUE_TOKEN, body=body).token + "\n")
    if session.as_json:
        emit_json({"file": str(file)})
    else:
        note(f"The token is in {file}.")


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """Opened before the token is made, so that none is lost for want of a place. Raises Conflict.

    What was not written to its end is removed.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists.", hint="Remove it, or name another file.") from None
    done = False
    try:
        with os.fdopen(descriptor, "w") as sink:
            yield sink
        done = True
    finally:
        if not done:
            path.unlink(missing_ok=True)


@token.command("ls")
@json_option
@pass_session
def list_tokens(session: Session, /) -> None:
    """List all tokens by the first characters of their hash (administrators)."""
    session.show(calls.TOKENS, text=_show_tokens)


def _show_tokens(answer: Tokens) -> None:
    now = time.time()
    columns = ("hash", "user", "scopes", ">age", ">ends in", "made by", "note")
    show_table(columns, [_cells(row, now) for row in answer.tokens])


def _cells(row: TokenRow, now: float) -> list[Cell]:
    expires, made_with = row.expires_at, row.made_with
    return [
        row.hash[:_SHOWN_HASH],
        row.account,
        joined(row.scopes),
        age(row.created_at, now),
        "never" if expires is None else "ended" if expires < now else span(expires - now),
        f"{row.made_by or 'gone'} {made_with[:_SHOWN_HASH]}" if made_with else "",
        row.note,
    ]


@token.command()
@click.argument("prefix", metavar="HASH")
@json_option
@pass_session
def revoke(session: Session, /, *, prefix: str) -> None:
    """Revoke the token whose hash begins with HASH (administrators).

    Tokens that were made with it for the same user are revoked, too.
    """
    if not prefix.isascii() or not prefix.isalnum():
        raise click.UsageError("HASH is the beginning of a hash, as lode token ls shows it.")
    done = session.call(calls.REVOKE_TOKEN, TokenAt(prefix.lower()))
    if session.as_json:
        emit_json({"revoked": prefix.lower(), "tokens": done.revoked, "kept": done.kept})
        return
    more = f", and {done.revoked - 1:,} that it made for the same user" if done.revoked > 1 else ""
    note(f"The token {prefix} is revoked{more}.")
    if done.kept:
        are = "was made with it for others is" if done.kept == 1 else "were made with it for others are"
        note(f"{counted(done.kept, 'token')} that {are} good still. See: lode token ls")


@click.command()
@json_option
@pass_session
def whoami(session: Session, /) -> None:
    """Show whose token is used, and what it allows."""
    session.show(calls.ME, text=lambda me: _show_me(me, session.address))


def _show_me(me: Me, address: str) -> None:
    show_fields(
        [
            ("user", me.name),
            ("server", address),
            ("VO", me.vo),
            ("groups", joined(me.groups)),
            ("scopes", joined(me.scopes)),
            ("administrator", "yes" if me.admin else "no"),
            ("input files", _inputs(me.inputs)),
        ]
    )


def _inputs(used: Inputs) -> str:
    """The size of a user's input files on the server, and their limit."""
    limit = f" of {size(used.limit)}" if used.limit else ""
    return f"{used.files:,}, {size(used.bytes)}{limit}"


COMMANDS = (user, token, whoami)
