"""`lode status`, `lode show`, `lode events`: how jobs stand and what happened to them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from lodesman.cli.ranges import Range
from lodesman.cli.session import JobId, JobRanges, Row, Session, json_option, merged, pass_session
from lodesman.cli.tables import (
    Cell,
    Column,
    emit_json,
    is_terminal,
    note,
    say,
    show_fields,
    show_table,
    state,
)
from lodesman.cli.words import ELSEWHERE, FINAL, STATES, age, joined, plain_lines, shown, size, span, states

WATCH_SECONDS = 2.0
COLUMNS = (
    Column(title="job", right=True),
    Column(title="name"),
    Column(title="state"),
    Column(title="age", right=True),
    Column(title="group"),
    Column(title="site"),
    Column(title="tries", right=True),
    Column(title="remark"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which jobs are asked for."""

    ranges: tuple[Range, ...]
    states: tuple[str, ...] = ()
    group: str = ""
    reason: str = ""
    everyone: bool = False
    limit: int = 100

    @property
    def filters(self) -> dict[str, str | None]:
        """As the server's parameters; ranges may name jobs of others that one may see."""
        everyone = "true" if self.everyone or self.ranges else None
        wanted = self.states or (() if self.ranges else tuple(name for name in STATES if name != "Deleted"))
        return {"state": ",".join(wanted), "group": self.group, "reason": self.reason, "all": everyone}

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves jobs out."""
        return bool(self.states or self.group or self.reason)


class StateWord(click.Choice[str]):
    """A state of a job; of DIRAC's other words it is told what they are here."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises BadParameter for what is no state."""
        name = value.capitalize()
        if name in ELSEWHERE:
            self.fail(
                f"{name} is a state of DIRAC and not one of this program: {ELSEWHERE[name]}.", param, ctx
            )
        return super().convert(value, param, ctx)


@click.command()
@click.argument("ranges", nargs=-1, type=JobRanges(), metavar="[JOB|RANGE]...")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=StateWord(STATES, case_sensitive=False),
    metavar="STATE",
    help="Only jobs in this state; may be given several times.",
)
@click.option("--group", default="", metavar="NAME", help="Only jobs of this group.")
@click.option(
    "--reason",
    default="",
    metavar="WORD",
    help="Only jobs that wait for this main reason (see: lode tq reasons).",
)
@click.option(
    "--all", "everyone", is_flag=True, help="Jobs of all users that you may see, not only your own."
)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="At most so many."
)
@click.option("--watch", is_flag=True, help="Show again every two seconds until all have ended.")
@json_option
@pass_session
def status(session: Session, /, *, ranges: tuple[Any, ...], watch: bool, **options: Any) -> int:
    """Show how jobs stand.

    Without an argument: your own jobs, the newest first, and how many are in which state. A RANGE is 12-40 or
    12,15,20-22.
    """
    question = Question(ranges=merged(ranges), **options)
    if watch:
        if session.as_json or not is_terminal(sys.stdout):
            raise click.UsageError("--watch needs a terminal.")
        return _watch(session, question)
    rows, more = fetch(session, question)
    counts = None if question.ranges else fetch_counts(session, question)
    if session.as_json:
        emit_json({"jobs": rows, "more": more, **({} if counts is None else {"counts": counts})})
        return 0
    show_jobs(rows, question, now=time.time())
    if counts is not None:
        say(f"In all: {states(counts)}.")
    if more:
        _tell_more(rows, question)
    return 0


def fetch(session: Session, question: Question) -> tuple[list[Row], bool]:
    """At most `limit` jobs and whether there are more. Raises NotFound if a single job named is not there."""
    rows: list[Row] = []
    wanted = question.limit + 1
    for one in question.ranges or (None,):
        left = wanted - len(rows)
        found = list(islice(session.jobs(one, newest=one is None, page=left, **question.filters), left))
        if not found and one is not None and one.size == 1 and not question.is_narrow:
            session.refuse_missing(one)
        rows += found
        if len(rows) >= wanted:
            break
    return rows[: question.limit], len(rows) > question.limit


def fetch_counts(session: Session, question: Question) -> dict[str, int]:
    """Jobs by state: one's own, or of all that one may see."""
    counts: Counter[str] = Counter()
    for row in session.get("/v1/jobs/counts", own=None if question.everyone else "true")["counts"]:
        if question.group in ("", row["group"]):
            counts[row["state"]] += row["jobs"]
    return dict(counts)


def show_jobs(rows: Sequence[Row], question: Question, *, now: float) -> None:
    """The table of jobs; with owners if they may differ."""
    if not rows:
        note("There is no such job." if question.ranges or question.is_narrow else "You have no jobs.")
        return
    owners = len({row["owner"] for row in rows}) > 1 or question.everyone
    columns = [*COLUMNS[:4], Column(title="owner"), *COLUMNS[4:]] if owners else COLUMNS
    show_table(columns, [job_cells(row, now=now, owners=owners) for row in rows])


def job_cells(row: Row, *, now: float, owners: bool = False) -> list[Cell]:
    """One line of the table."""
    cells: list[Cell] = [
        str(row["id"]),
        row["name"] or "",
        state(row["state"]),
        age(row["since"], now),
        row["group"] or "",
        row["site"] or "",
        str(row["attempt"] or 0),
        remark(row),
    ]
    return [*cells[:4], row["owner"], *cells[4:]] if owners else cells


def remark(row: Row) -> str:
    """Why a job is where it is, as far as its row tells."""
    if row["state"] == "Waiting" and row["main_reason"]:
        return f"{row['main_reason']} (before: {row['reason']})" if row["reason"] else str(row["main_reason"])
    if row["reason"]:
        return str(row["reason"])
    if row["state"] in ("Failed", "Killed") and row["cause"]:
        return ending(row)
    return ""


def ending(row: Row) -> str:
    """How an attempt ended: its cause, and the exit code or signal if it had one."""
    parts = [str(row["cause"] or row["outcome"] or "")]
    if row["exit_code"]:
        parts.append(f"exit code {row['exit_code']}")
    if row["signal"]:
        parts.append(f"signal {row['signal']}")
    if row["message"]:
        parts.append(str(row["message"]))
    return ", ".join(part for part in parts if part)


def _tell_more(rows: Sequence[Row], question: Question) -> None:
    if question.ranges:
        rest = Range(rows[-1]["id"] + 1, question.ranges[-1].last)
        note(f"There are more: lode status {rest}, or --limit {question.limit * 10}.")
    else:
        note(f"There are older ones: --limit {question.limit * 10}.")


def _watch(session: Session, question: Question) -> int:
    """Draw again and again; ends when every job shown has ended."""
    from rich.live import Live

    from lodesman.cli.tables import rich_table

    with Live(auto_refresh=False) as live:
        while True:
            rows, _ = fetch(session, question)
            cells = [job_cells(row, now=time.time()) for row in rows]
            live.update(rich_table(COLUMNS, cells), refresh=True)
            if all(row["state"] in FINAL for row in rows):
                return 0
            time.sleep(WATCH_SECONDS)


@click.command()
@click.argument("job", type=JobId())
@click.option("--description", is_flag=True, help="Its description only, as it was submitted.")
@click.option(
    "--form",
    type=click.Choice(["jdl", "cfg", "json"]),
    help="The language of the description; else that of then.",
)
@json_option
@pass_session
def show(session: Session, /, *, job: int, description: bool, form: str | None) -> None:
    """Show all that is known of a job, with its attempts.

    A description is told with the SubmitPool that its Requirements made; it can be submitted again as it is.
    """
    if description or form:
        _show_description(session, job, form)
        return
    found = session.get(f"/v1/jobs/{job}")
    if session.as_json:
        emit_json(found)
        return
    now = time.time()
    show_fields(list(_fields(found, now)))
    if found["attempts"]:
        click.echo()
        show_table(ATTEMPT_COLUMNS, [_attempt(one, now) for one in found["attempts"]])


def _show_description(session: Session, job: int, form: str | None) -> None:
    found = session.get(f"/v1/jobs/{job}/description", form=form)
    if session.as_json:
        emit_json(found)
        return
    text = plain_lines(found["text"])
    click.echo(text, nl=not text.endswith("\n"))
    if found["jobs"] > 1:
        note(f"It is the description of {found['jobs']:,} jobs.")


ATTEMPT_COLUMNS = (
    Column(title="attempt", right=True),
    Column(title="site"),
    Column(title="pilot", right=True),
    Column(title="claimed", right=True),
    Column(title="ran", right=True),
    Column(title="cpu", right=True),
    Column(title="memory", right=True),
    Column(title="end"),
)


def _fields(job: Row, now: float) -> Iterator[tuple[str, Cell]]:
    yield "job", str(job["id"])
    yield "name", job["name"] or ""
    yield "state", state(job["state"])
    yield "since", f"{age(job['since'], now)} ago"
    yield "remark", remark(job)
    yield "owner", f"{job['owner']}, group {job['group']}, VO {job['vo']}"
    yield "submitted", f"{age(job['submitted_at'], now)} ago, in submission {job['submission']}"
    yield "task queue", shown(job["task_queue"])
    if job.get("sites"):
        yield "sites", joined(job["sites"])
    if job["attempt"]:
        yield "last attempt", f"{job['attempt']} at {job['site'] or '-'}, pilot {shown(job['pilot'])}"
    if job["output_sha256"]:
        yield "output", f"{size(job['output_size'])}: lode output {job['id']}"


def _attempt(one: Row, now: float) -> list[Cell]:
    ended = one["ended_at"] if one["ended_at"] is not None else now
    ran = ended - one["started_at"] if one["started_at"] is not None else None
    return [
        str(one["number"]),
        one["site"] or "",
        shown(one["pilot"]),
        age(one["claimed_at"], now),
        span(ran),
        span(one["cpu_seconds"]),
        f"{one['max_rss_mb']:,.0f} MB" if one["max_rss_mb"] else "",
        ending(one) if one["ended_at"] is not None else "",
    ]


@click.command()
@click.argument("job", type=JobId())
@json_option
@pass_session
def events(session: Session, /, *, job: int) -> None:
    """Show what happened to a job, oldest first."""
    found = session.get(f"/v1/jobs/{job}")["events"]
    if session.as_json:
        emit_json({"events": found})
        return
    now = time.time()
    columns = (Column(title="age", right=True), Column(title="event"), Column(title="details"))
    rows: list[list[Cell]] = [[age(one["at"], now), state(one["event"]), _details(one)] for one in found]
    show_table(columns, rows)


def _details(event: Row) -> str:
    return shown({name: value for name, value in event.items() if name not in ("at", "event")})


COMMANDS = (status, show, events)
