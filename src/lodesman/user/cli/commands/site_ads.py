"""`lode site token` and `lode site gate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lodesman.user.access.tokens import new_token_file
from lodesman.user.cli.arguments import FILE, number_option
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_fields, show_table
from lodesman.user.cli.words import age, counted, number, span
from lodesman.wire import calls
from lodesman.wire.nodes import utc

if TYPE_CHECKING:
    from lodesman.wire.site_ads import AdEntry, GateInFull, SiteAdRow

_DAY_SECONDS = 86_400.0
_NEWEST = 12  # of an hour
_DAY = (
    "received",
    ">running",
    ">submitting",
    ">pending",
    ">most jobs",
    ">most submitting",
    ">most pending",
    ">our pilots",
)


@click.command("token")
@click.argument("name", metavar="SITE")
@number_option("--days", click.FloatRange(0, 36_500), 0.0, "How long it is good; 0: until it is revoked.")
@click.option("--note", "remark", default="", metavar="T", help="What it is for; shown by: lode token ls.")
@click.option(
    "--output", "file", metavar="FILE", type=FILE, help="Write it to a new file that only you can read."
)
@with_session
def site_token(session: Session, /, *, name: str, days: float, remark: str, file: Path | None) -> None:
    """Make a token with which a site advertises itself (administrators); it is shown this once.

    It opens nothing else: to advertise this site, and to read its gate. lode token ls shows it, lode token revoke ends it.
    """
    from lodesman.wire.site_ads import SiteTokenBody

    body = SiteTokenBody(name, days * _DAY_SECONDS, remark)
    if file is None:
        click.echo(session.answer(calls.SITE_TOKEN, body=body).token)
        return
    with new_token_file(file) as sink:
        sink.write(session.call(calls.SITE_TOKEN, body=body).token + "\n")
    session.exit_if_json({"file": str(file)})
    note(f"The token is in {file}.")


@click.command("gate")
@click.argument("name", metavar="SITE")
@click.option("--day", is_flag=True, help="All ads of the last day, not only the newest.")
@with_session
def gate(session: Session, /, *, name: str, day: bool) -> None:
    """Show what a site takes now and why not more: its limits, what was matched since its ad, each clause of its
    Requirements, and its newest ads.
    """
    from lodesman.wire.site_ads import SiteAt

    answer = session.answer(calls.SITE_GATE, SiteAt(name))
    show_fields(_facts(answer))
    if answer.ad is None:
        return
    if answer.clauses:
        from lodesman.user.cli.explanations import CLAUSE_TITLES, clause_cells

        say("")
        show_table(CLAUSE_TITLES, map(clause_cells, answer.clauses))
    say("")
    show_table(_DAY, map(_entry, answer.day if day else answer.day[:_NEWEST]))
    if len(answer.day) > _NEWEST and not day:
        note(f"{counted(len(answer.day) - _NEWEST, 'ad')} more of the last day: --day.")
    if answer.notice:
        note(f"{answer.notice}.")


def _facts(answer: GateInFull) -> list[tuple[str, Cell]]:
    room = "any number" if answer.ad is None else f"{counted(answer.room, 'pilot')}"
    facts: list[tuple[str, Cell]] = [
        ("site", answer.site),
        ("gate", f"shut: {answer.shut}" if answer.shut else f"open, for {room} more"),
    ]
    if answer.ad is None:
        return [
            *facts,
            ("ad", "none: the site never advertised, only its configured limits hold"),
            ("pilots", answer.pilots),
        ]
    return [
        *facts,
        ("mode", answer.mode.value),
        ("ad", _ad(answer.ad, answer.at)),
        *((value.name, value.value) for value in answer.values if value.value != "undefined"),
        ("pilots", f"{answer.pilots:,}, of which the ad does not show {answer.matched:,}"),
    ]


def _ad(ad: SiteAdRow, now: float) -> str:
    left = ad.received_at + ad.lifetime_seconds - now
    until = f"good for {span(left)} more" if left > 0 else "too old"
    origin = f" of {ad.incarnation}" if ad.incarnation else ""
    return f"number {ad.sequence}{origin}, {age(ad.received_at, now)} old, {until}"


def _entry(row: AdEntry) -> list[Cell]:
    of = row.numbers
    shown = (of.current_jobs, of.current_submitting_jobs, of.current_pending_jobs)
    limits = (of.max_jobs, of.max_submitting_jobs, of.max_pending_jobs)
    return [utc(row.received_at), *map(number, shown), *map(number, limits), row.stamps]
