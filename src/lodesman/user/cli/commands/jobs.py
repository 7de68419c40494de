"""`lode show`, `lode events`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import click
import msgspec

from lodesman.user.cli.arguments import JOB, utc_option
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.job_columns import ending_of, job_remark
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_fields, show_table, state
from lodesman.user.cli.words import age, joined, megabytes, moment, plain_lines, shown, size, span
from lodesman.wire import job_calls
from lodesman.wire.jobs import Attempt, Event, Job, JobInFull
from lodesman.wire.requests import JobAt, JobInForm
from lodesman.wire.vocabulary import FORMS, Form

_ATTEMPTS = (">attempt", "place", "host", ">pilot", ">claimed", ">ran", ">cpu", ">memory", "end")


@click.command()
@click.argument("job", type=JOB)
@click.option("--description", is_flag=True, help="Its description only, as it was submitted.")
@click.option(
    "--form", type=click.Choice(FORMS), help="The language of the description. [default: as it was submitted]"
)
@click.option("--origin", is_flag=True, help="Its job class, and who wrote each attribute last.")
@utc_option
@with_session
def show(
    session: Session, /, *, job: int, description: bool, form: Form | None, origin: bool, utc: bool
) -> None:
    """Show all that is known of a job, with its attempts.

    A description has the SubmitPool that its Requirements made; it can be submitted again as it is.
    """
    if description or form:
        described = session.answer(job_calls.JOB_DESCRIPTION, JobInForm(job, form))
        text = plain_lines(described.text)
        click.echo(text, nl=not text.endswith("\n"))
        if described.jobs > 1:
            note(f"It is the description of {described.jobs:,} jobs.")
        return
    if origin:
        _show_origins(session, job)
        return
    whole = session.answer(job_calls.JOB, JobAt(job))
    show_fields(_fields(whole, utc=utc))
    show_table(_ATTEMPTS, map(partial(_attempt, utc=utc), whole.attempts), apart=True)


def _show_origins(session: Session, job: int) -> None:
    answer = session.answer(job_calls.JOB_DESCRIPTION, JobInForm(job))
    resolution, values = answer.resolution, answer.values | answer.defaults
    if resolution is None:
        note("It has no job class: all that it asks for was in its description.")
        return
    say(
        f"job class {resolution.job_class}, revision {resolution.revision}"
        if resolution.job_class
        else "no job class"
    )
    origins = (
        dict.fromkeys(answer.values, "command line")
        | dict.fromkeys(answer.defaults, "default")
        | resolution.origins
    )
    rows = ([name, values.get(name, "-"), origin] for name, origin in sorted(origins.items()))
    show_table(("attribute", "value", "from"), rows)


def _fields(job: JobInFull, *, utc: bool) -> Iterator[tuple[str, Cell]]:
    yield "job", str(job.id)
    yield "name", job.name
    yield "state", state(job.state)
    yield "since", f"{moment(job.since, utc=utc)}, {age(job.since)} ago"
    yield "remark", job_remark(job)
    yield "owner", f"{job.owner}, group {job.group}, VO {job.vo}"
    submitted = f"{moment(job.submitted_at, utc=utc)}, {age(job.submitted_at)} ago"
    yield "submitted", f"{submitted}, in submission {job.submission}"
    if job.job_group:
        yield "job group", f"{job.job_group}: lode status --job-group {shlex.quote(job.job_group)}"
    yield "task queue", shown(job.task_queue)
    if job.job_class:
        yield "job class", f"{job.job_class}: lode show {job.id} --origin"
    if job.sites:
        yield "sites", joined(job.sites)
    if job.attempt:
        host = f" on {job.host}" if job.host else ""
        yield "last attempt", f"{job.attempt} at {_place(job) or '-'}{host}, pilot {shown(job.pilot)}"
    if job.output_sha256:
        yield "output", f"{size(job.output_size)}: lode output {job.id}"


def _place(row: Job | Attempt) -> str:
    return "/".join(filter(None, (row.site, row.ce, row.queue)))


def _attempt(row: Attempt, *, utc: bool) -> list[Cell]:
    ended = time.time() if row.ended_at is None else row.ended_at
    ran = None if row.started_at is None else ended - row.started_at
    memory = megabytes(row.max_rss_mb) if row.max_rss_mb else ""
    end = "" if row.ended_at is None else ending_of(row)
    where = [str(row.number), _place(row), row.host or "", str(row.pilot)]
    return [*where, moment(row.claimed_at, utc=utc), span(ran), span(row.cpu_seconds), memory, end]


def _details(event: Event) -> str:
    values = msgspec.to_builtins(event)
    details = {name: value for name, value in values.items() if name not in ("at", "event")}
    return shown(details) if details else ""


_EVENTS: Final[Columns[Event]] = table_of(
    Column("at", "moment", lambda row: row.at),
    Column("age", "age", lambda row: row.at),
    Column("event", "state", lambda row: row.event),
    Column("details", "text", _details),
)


@click.command()
@click.argument("job", type=JOB)
@shaped(_EVENTS)
@with_session
def events(session: Session, /, *, job: int, shape: ListShape) -> None:
    """Show what happened to a job, oldest first."""
    rows = session.call(job_calls.JOB, JobAt(job)).events
    session.exit_if_json({"events": rows})
    shape.show(_EVENTS, rows)
