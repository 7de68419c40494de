"""`lode pilot` and `lode host`."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.user.cli.arguments import (
    PILOT_RANGES,
    filter_option,
    limit_option,
    merge_ranges,
    node_names,
    total,
    utc_option,
)
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, emit_json, note, say, show_fields, state
from lodesman.user.cli.words import age, counted, moment, path_of, plain_lines, shown
from lodesman.wire import calls
from lodesman.wire.hosts import CloseHostBody, HostRow, OpenHostBody
from lodesman.wire.nodes import utc
from lodesman.wire.pilots import MOST_FILES, ListedPilot, PilotFilesBody, PilotInFull
from lodesman.wire.requests import AllQuery, DrainBody, PilotAt, PilotsQuery
from lodesman.wire.vocabulary import PilotState

_MOST_DRAINED = 10_000
# Jobs of one pilot that a list names.
_MOST_JOBS = 4


pilot = click.Group(
    "pilot",
    help="List pilots, show what they do and wrote, make files of them, let them leave.",
)


def _doing(row: ListedPilot) -> str | None:
    if row.jobs:
        return ", ".join(map(str, row.jobs[:_MOST_JOBS])) + (", ..." if len(row.jobs) > _MOST_JOBS else "")
    return "idle" if row.state is PilotState.RUNNING else None


def _serves(row: ListedPilot) -> str:
    if row.bound_job is not None:
        return f"job {row.bound_job}"
    return " ".join(filter(None, (row.owner, row.group and f"({row.group})"))) or "any"


def _remark(row: ListedPilot) -> str:
    serves = _serves(row)
    only = f"for {serves}" if serves != "any" and row.bound_job not in row.jobs else ""
    away = "runs, and has not reached the server" if row.is_unreached(time.time()) else ""
    return ", ".join(filter(None, (row.reason or ("draining" if row.drain else ""), away, only)))


_PILOTS: Final[Columns[ListedPilot]] = table_of(
    Column("pilot", "id", lambda row: row.id),
    Column("state", "state", lambda row: row.state.value),
    Column("queue", "text", path_of),
    Column("host", "text", lambda row: row.node_host or row.host or None),
    Column("jobs", "text", _doing),
    Column("running", "count", lambda row: len(row.jobs)),
    Column("done", "count", lambda row: row.jobs_done),
    Column("sent", "moment", lambda row: row.created_at),
    Column("age", "age", lambda row: row.created_at),
    Column("joined", "moment", lambda row: row.joined_at),
    Column("seen", "age", lambda row: row.last_seen),
    Column("ended", "moment", lambda row: row.ended_at),
    Column("serves", "text", _serves),
    Column("vo", "text", lambda row: row.vo),
    Column("stamp", "text", lambda row: row.stamp),
    Column("backend", "text", lambda row: row.backend),
    Column("native", "text", lambda row: row.native_id),
    Column("remark", "text", _remark),
)
_USUAL: Final = ("pilot", "state", "queue", "host", "jobs", "sent", "age", "seen", "remark")


@pilot.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also pilots that have ended.")
@limit_option(100)
@shaped(_PILOTS)
@with_session
def _list_pilots(session: Session, /, *, everything: bool, limit: int, shape: ListShape) -> None:
    """List live pilots, the newest first, with the jobs that each runs now."""
    rows = session.call(calls.PILOTS, PilotsQuery(all=everything, limit=limit + 1)).pilots
    if not rows and not session.as_json:
        note("There is no pilot." if everything else "There is no live pilot; --all shows those that ended.")
    session.show_some("pilots", rows, limit, lambda some: shape.show(_PILOTS, some, _USUAL))


@pilot.command("show")
@click.argument("pilot_id", metavar="ID|STAMP")
@utc_option
@with_session
def _show_pilot(session: Session, /, *, pilot_id: str, utc: bool) -> None:
    """Show all that is known of a pilot: where it is, what it runs, and what its machine offers."""
    show_fields(_fields(session.answer(calls.PILOT, PilotAt(pilot_id)), utc=utc))


def _fields(row: PilotInFull, *, utc: bool) -> Iterator[tuple[str, Cell]]:
    def at(then: float | None) -> str:
        return "-" if then is None else f"{moment(then, utc=utc)}, {age(then)} ago"

    yield "pilot", str(row.id)
    yield "stamp", row.stamp
    yield "state", state(row.state)
    yield "runs", _doing(row) or ""
    yield "jobs done", row.jobs_done
    yield "queue", path_of(row)
    yield "host", row.node_host or row.host
    yield "batch system", f"{row.backend}, as {row.native_id or 'not accepted yet'}"
    yield "serves", f"{_serves(row)}, VO {row.vo}"
    yield "sent", at(row.created_at)
    yield "accepted", at(row.submitted_at)
    yield "joined", at(row.joined_at)
    yield "last seen", at(row.last_seen)
    yield "ended", at(row.ended_at)
    leaves = row.drain_reason or "a user said so"
    yield "remark", row.reason or (f"it leaves: {leaves}" if row.drain else "")
    for name, value in sorted(row.node.items()):
        yield f"node.{name}", shown(value)
    yield "more", f"lode pilot logs {row.id}, lode why pilot:{row.id}"


@pilot.command("logs")
@click.argument("pilot_id", metavar="ID|STAMP")
@with_session
def _show_logs(session: Session, /, *, pilot_id: str) -> None:
    """Show the end of what a pilot wrote (64 kB), as its batch system keeps it."""
    answer = session.answer(calls.PILOT_LOGS, PilotAt(pilot_id))
    where = f" on {answer.host}" if answer.host else ""
    note(f"Pilot {answer.pilot}, {answer.native_id} of {answer.backend}{where}:")
    click.echo(plain_lines(answer.text), nl=not answer.text.endswith("\n"))


@pilot.command("drain")
@click.argument("ids", nargs=-1, required=True, type=PILOT_RANGES, metavar="ID|RANGE...")
@with_session
def _drain(session: Session, /, *, ids: tuple[Any, ...]) -> None:
    """Let pilots finish what they run and leave (administrators)."""
    ranges = merge_ranges(ids)
    if total(ranges) > _MOST_DRAINED:
        raise InvalidRequest(f"The maximum number of pilots is {_MOST_DRAINED:,} at once.")
    numbers = [pilot_id for span in ranges for pilot_id in range(span.first, span.last + 1)]
    answer = session.call(calls.DRAIN, body=DrainBody(numbers))
    if session.as_json:
        emit_json(answer)
    elif answer.changed:
        click.echo(f"{counted(answer.changed, 'pilot')} will finish and leave.")
    if not answer.changed and len(numbers) == 1:
        raise NotFound(
            f"Pilot {numbers[0]} has ended, is draining already, or was never there.",
            hint="See: lode pilot ls --all",
        )


# As `lodesman.pilot` finds it in its own archive.
_MEMBER = "pilot.json"


@pilot.command("file")
@click.option("--queue", required=True, metavar="SITE/CE/QUEUE", help="The queue, whose Backend is manual.")
@click.option(
    "--count", type=click.IntRange(1, MOST_FILES), default=1, help="How many pilots, each with its file (1)."
)
@click.option(
    "--hours", type=click.FloatRange(0.01, 720), default=12.0, help="Until when they may start (12)."
)
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="DIR",
    help="Where to write the files (here).",
)  # fmt: skip
@click.option("--vo", default="", metavar="NAME", help="The VO whose jobs they run; else yours.")
@with_session
def _make_files(
    session: Session, /, *, queue: str, count: int, hours: float, directory: Path, vo: str
) -> None:
    """Write files of pilots that you start yourself on other machines (administrators).

    Each file is one pilot with all that it needs, Python 3.9 excepted. It joins once, within --hours, and gets jobs of the
    VO; so does whoever else has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _refuse_unwritable(directory)
    body = PilotFilesBody(**node_names((queue,)), count=count, hours=hours, vo=vo)
    made = session.call(calls.PILOT_FILES, body=body)
    files = {pilot.id: directory / f"lodesman-pilot-{pilot.id}.pyz" for pilot in made.pilots}
    for pilot in made.pilots:
        _write(files[pilot.id], made.program, pilot.content)
    session.exit_if_json(
        {
            "queue": path_of(made), "vo": made.vo, "expires_at": made.expires_at, "servers": made.servers,
            "files": {str(number): str(file) for number, file in files.items()}, "notices": made.notices,
        }
    )  # fmt: skip
    until = utc(made.expires_at)
    say(f"{counted(len(files), 'pilot')} of VO {made.vo} for {path_of(made)}, to be started until {until}:")
    for file in files.values():
        click.echo(f"  {file}")
    say(
        "Copy each file to a machine (scp -p FILE NODE:), and start it there, once, under an account without rights:"
    )
    click.echo(f"  python3 -I {next(iter(files.values())).name}")
    for text in made.notices:
        note(text)


def _refuse_unwritable(directory: Path) -> None:
    """Raises OSError before pilots are stored whose files cannot be written."""
    probe = directory / f".lodesman-{os.getpid()}"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()


def _write(file: Path, program: bytes, content: str) -> None:
    whole = io.BytesIO(program)
    with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(_MEMBER, content)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        target.write(whole.getvalue())


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
