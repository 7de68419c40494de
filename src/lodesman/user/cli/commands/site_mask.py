"""`lode site close` and `open`, and how lists show what is closed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import click
from msgspec import UNSET, UnsetType

from lodesman.user.cli.arguments import COMING, DURATION, node_names
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say
from lodesman.user.cli.words import counted, path_of
from lodesman.wire import calls
from lodesman.wire.nodes import Closing, SiteClosed, utc
from lodesman.wire.requests import CloseSiteBody, OpenSiteBody


@click.command("close")
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE[/QUEUE]]")
@click.option("--reason", required=True, metavar="TEXT", help="Why; everybody sees it.")
@click.option("--for", "seconds", type=DURATION, metavar="TIME", help="Duration: 30min, 2h, 3d.")
@click.option("--until", type=COMING, metavar="MOMENT", help="End; local time if it names no zone.")
@click.option(
    "--from", "begins", type=COMING, metavar="MOMENT", help="Begin then: +2h, or a moment; drained before."
)
@click.option("--keep-pilots", is_flag=True, help="Pilots that are there go on taking jobs.")
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be done.")
@with_session
def close_site(session: Session, /, *, names: tuple[str, ...], reason: str, **options: Any) -> None:
    """Send no pilots to a site, CE or queue until it is opened again (administrators).

    Pilots that are there finish what they run and leave, unless --keep-pilots is given; waiting ones are taken back.
    With --from it is announced: pilots that could still run then are not sent, nor do jobs start whose CPUTime would not
    end before, and pilots leave a minute before it begins.
    SITE CE QUEUE as several words, if a name has a slash. Closing again changes reason and time, also of one that is
    announced, which begins at once without --from. What is closed now must be opened before it is announced.
    """
    until, seconds, begins = options["until"], options["seconds"], options["begins"]
    if until is not None and seconds is not None:
        raise click.UsageError("Give --for or --until, not both.", click.get_current_context())
    body = CloseSiteBody(
        reason=reason,
        **node_names(names),
        until=(begins or time.time()) + seconds if seconds is not None else until,
        begins=begins,
        keep_pilots=options["keep_pilots"],
        dry_run=options["dry_run"],
    )
    answer = session.answer(calls.CLOSE_SITE, body=body)
    say(_closed_text(answer))
    if answer.endless is not UNSET and answer.endless:
        queues = counted(answer.endless, "queue")
        note(
            f"From now on no pilots are sent to {queues}: it is not known how long they would live. "
            "WallTime of a queue, or life_seconds of [pilots], says so."
        )
    if answer.replaced is not UNSET and not answer.dry_run:
        note(
            "Nothing is announced there any more. Once it is open, announce it again with --from, if need be."
        )


def _closed_text(answer: SiteClosed) -> str:
    would = answer.dry_run
    ends = "" if answer.until is None else f" until {utc(answer.until)}"
    queues = counted(answer.queues, "queue")
    if answer.is_ahead(time.time()):
        changed = f" It was announced before, and {'would be' if would else 'is'} changed."
        words = "would be announced as closed" if would else "is to be closed"
        text = f"{path_of(answer)} {words} from {utc(answer.start)}{ends}: {queues}."
        return f"{text}{changed if answer.renewed else ''}"
    pilots = f"{counted(answer.drained, 'pilot')} {'would' if would else 'will'} finish and leave"
    pilots = f"pilots that are there {'would stay' if would else 'stay'}" if answer.keep_pilots else pilots
    before = f" It was closed before, since {utc(answer.since)}." if answer.renewed else ""
    return f"{path_of(answer)} {'would be' if would else 'is'} closed{ends}: {queues}, {pilots}.{before}{_replaced(answer)}"


def _replaced(answer: SiteClosed) -> str:
    closing = answer.replaced
    if closing is UNSET:
        return ""
    ends = "" if closing.until is None else f" until {utc(closing.until)}"
    instead = "would replace" if answer.dry_run else "replaces"
    return f" This {instead} what was announced: closed from {utc(closing.start)}{ends}: {closing.reason}"


@click.command("open")
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE[/QUEUE]]")
@with_session
def open_site(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Send pilots again to what was closed, named as it was closed (administrators).

    Pilots that were to leave, and still run jobs, stay.
    """
    answer = session.answer(calls.OPEN_SITE, body=OpenSiteBody(**node_names(names)))
    stay = f"; {counted(answer.staying, 'pilot')} can stay" if answer.staying else ""
    cancelled = " after all" if answer.is_ahead(time.time()) else ""
    say(f"{path_of(answer)} is open{cancelled}: {counted(answer.queues, 'queue')}{stay}.")
    for closing in answer.still_closed:
        note(f"{path_of(closing)} stays {_closing_text(closing)}")


def note_closed(closings: Iterable[Closing] | UnsetType) -> None:
    """Say what is closed and going to be, each once."""
    closings = () if closings is UNSET else closings
    for text in dict.fromkeys(f"{path_of(closing)} is {_closing_text(closing)}" for closing in closings):
        note(text)


def _closing_text(closing: Closing) -> str:
    if closing.is_ahead(time.time()):
        return closing.text_at(time.time())
    until = "" if closing.until is None else f" until {utc(closing.until)}"
    kept = " (pilots stay)" if closing.keep_pilots else ""
    return f"closed by {closing.closed_by} since {utc(closing.start)}{until}{kept}: {closing.reason}"
