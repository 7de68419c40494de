"""`lode site close`, `lode site open`: no pilots to a site, CE or queue for a while, without editing files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from lodesman.cli.session import Row, Session, json_option, pass_session
from lodesman.cli.tables import emit_json, note, say
from lodesman.cli.words import counted
from lodesman.errors import InvalidRequest
from lodesman.resources.model import BadValue
from lodesman.resources.units import number_in

NAMES = ("site", "ce", "queue")
CLOSE_EXAMPLES = """\b
Examples:
  lode site close LCG.North --reason "power cut"            all of a site
  lode site close LCG.North/ce7/long --reason full --for 2h a queue, for two hours
  lode site close LCG.North --reason test --until "2026-12-01 08:00" --keep-pilots
  lode site close LCG.North --reason test --dry-run         how many queues and pilots are there?"""
OPEN_EXAMPLES = """\b
Examples:
  lode site open LCG.North
  lode site open LCG.North/ce7/long"""


class Span(click.ParamType[float, Any]):
    """A length of time: 90s, 30min, 2h, 3d, 1w. A bare number counts seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. A usage error for what is none."""
        try:
            seconds = float(number_in(value, "s"))
        except (BadValue, OverflowError):
            seconds = 0.0
        if not 0.0 < seconds < 1e10:
            self.fail(f"{str(value)[:60]!r} is no time; write 90s, 30min, 2h or 3d.", param, ctx)
        return seconds


class Moment(click.ParamType[float, Any]):
    """A moment: 2026-12-01, "2026-12-01 08:00", with a zone (Z, +01:00) or in local time."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """UNIX seconds. A usage error for what is none."""
        if isinstance(value, float):
            return value
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            self.fail(f'{value[:60]!r} is no moment; write "2026-12-01 08:00".', param, ctx)


@click.command("close", epilog=CLOSE_EXAMPLES)
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE[/QUEUE]]")
@click.option("--reason", required=True, metavar="TEXT", help="Why; everybody sees it.")
@click.option("--for", "seconds", type=Span(), metavar="TIME", help="For so long: 30min, 2h, 3d.")
@click.option("--until", type=Moment(), metavar="MOMENT", help="Until then; local time if it names no zone.")
@click.option("--keep-pilots", is_flag=True, help="Pilots that are there go on taking jobs.")
@click.option("--dry-run", is_flag=True, help="Only tell what it would do.")
@json_option
@pass_session
def close_site(session: Session, /, *, names: tuple[str, ...], reason: str, **options: Any) -> None:
    """Send no pilots to a site, CE or queue until it is opened again (administrators).

    Pilots that are there finish what they run and leave, unless --keep-pilots is given; waiting ones are taken back.
    SITE CE QUEUE as several words, if a name has a slash. Closing again changes reason and time.
    """
    until, seconds = options["until"], options["seconds"]
    if until is not None and seconds is not None:
        raise click.UsageError("Give --for or --until, not both.", click.get_current_context())
    body = {
        **_named(names),
        "reason": reason,
        "until": time.time() + seconds if seconds is not None else until,
        "keep_pilots": options["keep_pilots"],
        "dry_run": options["dry_run"],
    }
    answer = session.post("/v1/sites/close", body, idempotent=True)
    if session.as_json:
        emit_json(answer)
        return
    say(_closing(answer))


def _closing(answer: Row) -> str:
    """What closing did, or would do."""
    until = "" if answer["until"] is None else f" until {_utc(answer['until'])}"
    is_so = "would be closed" if answer["dry_run"] else "is closed"
    will = "would" if answer["dry_run"] else "will"
    pilots = f"{counted(answer['drained'], 'pilot')} {will} finish and leave"
    pilots = "pilots that are there stay" if answer["keep_pilots"] else pilots
    before = f" It was closed before, since {_utc(answer['since'])}." if answer["renewed"] else ""
    return f"{path_of(answer)} {is_so}{until}: {counted(answer['queues'], 'queue')}, {pilots}.{before}"


@click.command("open", epilog=OPEN_EXAMPLES)
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE[/QUEUE]]")
@json_option
@pass_session
def open_site(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Send pilots again to what was closed, named as it was closed (administrators).

    Pilots that were told to leave leave all the same; the director sends new ones.
    """
    answer = session.post("/v1/sites/open", _named(names))
    if session.as_json:
        emit_json(answer)
        return
    say(f"{path_of(answer)} is open: {counted(answer['queues'], 'queue')}.")
    for one in answer["still_closed"]:
        note(f"{path_of(one)} stays {closing_text(one)}")


def tell_closed(closings: Iterable[Row]) -> None:
    """One remark for each closing: what, who, since when and why."""
    for text in dict.fromkeys(f"{path_of(one)} is {closing_text(one)}" for one in closings):
        note(text)


def closing_text(one: Mapping[str, Any]) -> str:
    """Who closed something, since when and why."""
    until = "" if one["until"] is None else f" until {_utc(one['until'])}"
    kept = " (pilots stay)" if one["keep_pilots"] else ""
    return f"closed by {one['closed_by']} since {_utc(one['since'])}{until}{kept}: {one['reason']}"


def path_of(node: Mapping[str, Any]) -> str:
    """SITE, SITE/CE or SITE/CE/QUEUE."""
    return "/".join(node[name] for name in NAMES if node[name])


def _named(names: tuple[str, ...]) -> dict[str, str]:
    """As the server wants it: one word is a path. Raises InvalidRequest."""
    if len(names) > len(NAMES):
        raise click.UsageError(
            f"{len(names)} names are given; there are at most 3", click.get_current_context()
        )
    if not all(names):
        raise InvalidRequest("A name is empty.")
    return {"path": names[0]} if len(names) == 1 else dict(zip(NAMES, names, strict=False))


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
