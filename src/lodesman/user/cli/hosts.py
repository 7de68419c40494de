"""`lode host`: the hosts of pilots, and which of them get no jobs."""

from __future__ import annotations

from typing import Final

import click

from lodesman.user.cli.arguments import filter_option
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say
from lodesman.user.cli.words import counted
from lodesman.wire import calls
from lodesman.wire.hosts import CloseHostBody, HostRow, OpenHostBody
from lodesman.wire.requests import AllQuery

_SITE = filter_option("--site", about="The site of the host, if several have one of that name.")

_HOSTS: Final[Columns[HostRow]] = table_of(
    Column("pilots", "id", lambda row: row.pilots),
    Column("failed_at_once", "id", lambda row: row.failures),
    Column("host", "text", lambda row: row.host),
    Column("site", "text", lambda row: row.site),
    Column("state", "text", lambda row: row.text or "gets jobs"),
)

host = click.Group("host", help="List the hosts of pilots, give them no jobs, or jobs again.")


@host.command("ls")
@shaped(_HOSTS)
@with_session
def _list_hosts(session: Session, /, *, shape: ListShape) -> None:
    """List the hosts of live pilots, and those that get no jobs, with the evidence and when they are tried again."""
    answer = session.whole(calls.HOSTS, AllQuery(), "hosts")
    session.exit_if_json(answer)
    shape.show(_HOSTS, answer.hosts)
    if not answer.hosts:
        note("No pilot has reported its host.")


@host.command("close")
@click.argument("name", metavar="HOST")
@click.option("--reason", required=True, help="Why; everybody will see it.")
@_SITE
@with_session
def _close_host(session: Session, /, *, name: str, reason: str, site: str) -> None:
    """Give no jobs to the pilots of a host until it is opened (administrators). What runs there goes on."""
    answer = session.answer(calls.CLOSE_HOST, body=CloseHostBody(host=name, reason=reason, site=site))
    where = f" at {answer.site}" if answer.site else ""
    say(f"{answer.host}{where} is closed: {counted(answer.pilots, 'pilot')} there will get no jobs.")


@host.command("open")
@click.argument("name", metavar="HOST")
@click.option("--reason", default="", help="Why, for the audit trail.")
@_SITE
@with_session
def _open_host(session: Session, /, *, name: str, reason: str, site: str) -> None:
    """Give jobs to the pilots of a host again (administrators). What failed there before counts no more."""
    answer = session.answer(calls.OPEN_HOST, body=OpenHostBody(host=name, reason=reason, site=site))
    where = f" at {answer.site}" if answer.site else ""
    say(f"{answer.host}{where} is open: {counted(answer.pilots, 'pilot')} there will get jobs.")
