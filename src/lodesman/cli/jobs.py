"""`lode status`, `show`, `events`; `lode kill`, `hold`, `release`, `reschedule`, `delete`: jobs, and actions on them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import msgspec

from lodesman.answers import calls
from lodesman.answers.jobs import Attempt, Controlled, Event, Job, JobInFull, RangeControlled
from lodesman.answers.requests import MOST_ID, Action, ControlBody, CountsQuery, JobAt, JobInForm, JobsQuery
from lodesman.answers.vocabulary import FORMS, Form, JobState
from lodesman.cli.arguments import JOB, JOB_RANGES, STATE, Range, limit_option, merged, several, total
from lodesman.cli.faults import CONFLICT, FAILED
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import Cell, is_terminal, note, rich_table, say, show_fields, show_table, state
from lodesman.cli.words import FINAL, STATES, age, counted, joined, plain_lines, shown, size, span, states

_ASK_ABOVE = 100
_WATCH_SECONDS = 2.0
_TITLES = (">job", "name", "state", ">age", "group", "site", ">tries", "remark")
_ATTEMPTS = (">attempt", "site", ">pilot", ">claimed", ">ran", ">cpu", ">memory", "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which jobs are asked for."""

    ranges: tuple[Range, ...]
    states: tuple[str, ...] = ()
    group: str = ""
    reason: str = ""
    everyone: bool = False
    limit: int = 100
    start: bool = False

    def query(self, within: Range | None, limit: int) -> JobsQuery:
        """The server's parameters for one range, or for all jobs; ranges may name jobs of others that one may see."""
        wanted = self.states or ([] if self.ranges else [one for one in STATES if one != JobState.DELETED])
        first, last = within or (1, MOST_ID)
        everyone = self.everyone or bool(self.ranges)
        return JobsQuery(
            first, last, limit, everyone, within is None, self.group, ",".join(wanted), self.reason,
            start=self.start,
        )  # fmt: skip

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves jobs out."""
        return bool(self.states or self.group or self.reason)


@click.command()
@click.argument("ranges", nargs=-1, type=JOB_RANGES, metavar="[JOB|RANGE]...")
@several("--state", "states", type=STATE, metavar="STATE", help="Only jobs in this state")
@click.option("--group", default="", metavar="NAME", help="Only jobs of this group.")
@click.option(
    "--reason", default="", metavar="WORD", help="Only jobs with this pending reason (see: lode tq reasons)."
)
@click.option(
    "--all", "everyone", is_flag=True, help="Jobs of all users that you may see, not only your own."
)
@limit_option(100, 1_000_000)
@click.option(
    "--start", is_flag=True, help="Estimate when waiting jobs start, by the starts of the last hour."
)
@click.option("--watch", is_flag=True, help="Show again every two seconds until all have ended.")
@with_session
def status(session: Session, /, *, ranges: tuple[Any, ...], watch: bool, **options: Any) -> None:
    """Show the states of jobs.

    Without an argument: your own jobs, the newest first, and how many are in which state. A RANGE is 12-40 or
    12,15,20-22.
    """
    question = Question(ranges=merged(ranges), **options)
    if watch:
        if session.as_json or not is_terminal(sys.stdout):
            raise click.UsageError("--watch needs a terminal.")
        _watch(session, question)
        return
    rows, more = fetch(session, question)
    if question.ranges:
        session.exit_if_json({"jobs": rows, "more": more})
        _show_jobs(rows, question)
        if more:
            rest = Range(rows[-1].id + 1, question.ranges[-1].last)
            note(f"There are more: lode status {rest}, or --limit {question.limit * 10}.")
        return
    # One's own jobs, or all that one may see.
    counts: Counter[str] = Counter()
    for row in session.call(calls.JOB_COUNTS, CountsQuery(own=not question.everyone)).counts:
        if question.group in ("", row.group):
            counts[row.state] += row.jobs
    session.exit_if_json({"jobs": rows, "more": more, "counts": counts})
    _show_jobs(rows, question)
    say(f"In all: {states(counts)}.")
    if more:
        note(f"There are older ones: --limit {question.limit * 10}.")


def fetch(session: Session, question: Question) -> tuple[list[Job], bool]:
    """At most `limit` jobs and whether there are more. Raises NotFound if a single job named is not there."""
    rows: list[Job] = []
    wanted = question.limit + 1
    for one in question.ranges or (None,):
        left = wanted - len(rows)
        found = list(islice(session.jobs(question.query(one, left)), left))
        if not found and one is not None and one.size == 1 and not question.is_narrow:
            session.refuse_missing(one)
        rows += found
        if len(rows) >= wanted:
            break
    return rows[: question.limit], len(rows) > question.limit


def _show_jobs(rows: Sequence[Job], question: Question) -> None:
    if not rows:
        note("There is no such job." if question.ranges or question.is_narrow else "You have no jobs.")
    owners = len({row.owner for row in rows}) > 1 or question.everyone
    show_table(
        _titles(question, owners=owners), (_cells(row, owners=owners, start=question.start) for row in rows)
    )


def _titles(question: Question, *, owners: bool = False) -> list[str]:
    start = ["starts in"] if question.start else []
    return [*_TITLES[:4], *start, *(["owner"] if owners else []), *_TITLES[4:]]


def _cells(row: Job, *, owners: bool = False, start: bool = False) -> list[Cell]:
    first: list[Cell] = [str(row.id), row.name, state(row.state), age(row.since)]
    first += [_starts(row)] if start else []
    owner = [row.owner] if owners else []
    return [*first, *owner, row.group, row.site or "", row.attempt, _remark(row)]


def _starts(row: Job) -> str:
    """In what time it starts, if it waits."""
    if row.state != JobState.WAITING:
        return ""
    return f"{span(row.start.low_seconds)} to {span(row.start.high_seconds)}" if row.start else "unknown"


def _remark(row: Job) -> str:
    """Why a job is where it is, as far as its row says."""
    if row.state == JobState.WAITING and row.main_reason:
        return f"{row.main_reason} (before: {row.reason})" if row.reason else row.main_reason
    ended = row.state in (JobState.FAILED, JobState.KILLED) and row.cause
    return row.reason or (_ending(row) if ended else "")


def _ending(row: Job | Attempt) -> str:
    parts = [
        row.cause or row.outcome,
        f"exit code {row.exit_code}" if row.exit_code else "",
        f"signal {row.signal}" if row.signal else "",
        row.message,
    ]
    return ", ".join(filter(None, parts))


def _watch(session: Session, question: Question) -> None:
    """Draw again and again; ends when every job shown has ended."""
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            rows, _ = fetch(session, question)
            cells = [_cells(row, start=question.start) for row in rows]
            table = rich_table(_titles(question), cells, live.console.width)
            live.update(table, refresh=True)
            if all(row.state in FINAL for row in rows):
                return
            time.sleep(_WATCH_SECONDS)


@click.command()
@click.argument("job", type=JOB)
@click.option("--description", is_flag=True, help="Its description only, as it was submitted.")
@click.option(
    "--form", type=click.Choice(FORMS), help="The language of the description. [default: as it was submitted]"
)
@click.option("--origin", is_flag=True, help="Its job class, and who wrote each attribute last.")
@with_session
def show(session: Session, /, *, job: int, description: bool, form: Form | None, origin: bool) -> None:
    """Show all that is known of a job, with its attempts.

    A description has the SubmitPool that its Requirements made; it can be submitted again as it is.
    """
    if description or form:
        found = session.answer(calls.JOB_DESCRIPTION, JobInForm(job, form))
        text = plain_lines(found.text)
        click.echo(text, nl=not text.endswith("\n"))
        if found.jobs > 1:
            note(f"It is the description of {found.jobs:,} jobs.")
        return
    if origin:
        _show_origins(session, job)
        return
    whole = session.answer(calls.JOB, JobAt(job))
    show_fields(_fields(whole))
    show_table(_ATTEMPTS, map(_attempt, whole.attempts), apart=True)


def _show_origins(session: Session, job: int) -> None:
    answer = session.answer(calls.JOB_DESCRIPTION, JobInForm(job))
    found, values = answer.resolution, answer.values | answer.defaults
    if found is None:
        note("It has no job class: all that it asks for was in its description.")
        return
    say(f"job class {found.job_class}, revision {found.revision}" if found.job_class else "no job class")
    origins = (
        dict.fromkeys(answer.values, "command line")
        | dict.fromkeys(answer.defaults, "default")
        | found.origins
    )
    rows = ([name, values.get(name, "-"), origin] for name, origin in sorted(origins.items()))
    show_table(("attribute", "value", "from"), rows)


def _fields(job: JobInFull) -> Iterator[tuple[str, Cell]]:
    yield "job", str(job.id)
    yield "name", job.name
    yield "state", state(job.state)
    yield "since", f"{age(job.since)} ago"
    yield "remark", _remark(job)
    yield "owner", f"{job.owner}, group {job.group}, VO {job.vo}"
    yield "submitted", f"{age(job.submitted_at)} ago, in submission {job.submission}"
    yield "task queue", shown(job.task_queue)
    if job.job_class:
        yield "job class", f"{job.job_class}: lode show {job.id} --origin"
    if job.sites:
        yield "sites", joined(job.sites)
    if job.attempt:
        yield "last attempt", f"{job.attempt} at {job.site or '-'}, pilot {shown(job.pilot)}"
    if job.output_sha256:
        yield "output", f"{size(job.output_size)}: lode output {job.id}"


def _attempt(one: Attempt) -> list[Cell]:
    ended = time.time() if one.ended_at is None else one.ended_at
    ran = None if one.started_at is None else ended - one.started_at
    memory = f"{one.max_rss_mb:,.0f} MB" if one.max_rss_mb else ""
    end = "" if one.ended_at is None else _ending(one)
    numbers = [str(one.number), one.site, str(one.pilot)]
    return [*numbers, age(one.claimed_at), span(ran), span(one.cpu_seconds), memory, end]


@click.command()
@click.argument("job", type=JOB)
@with_session
def events(session: Session, /, *, job: int) -> None:
    """Show what happened to a job, oldest first."""
    found = session.call(calls.JOB, JobAt(job)).events
    session.exit_if_json({"events": found})
    show_table((">age", "event", "details"), map(_event, found))


def _event(one: Event) -> list[Cell]:
    values = msgspec.to_builtins(one)
    details = {name: value for name, value in values.items() if name not in ("at", "event")}
    return [age(one.at), state(one.event), shown(details)]


# --- actions ------------------------------------------------------------------------------------------------------------


def _command(action: Action, done: str, description: str) -> click.Command:
    @click.command(action, help=description)
    @click.argument("ranges", nargs=-1, required=True, type=JOB_RANGES, metavar="JOB|RANGE...")
    @click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the job.")
    @click.option("-y", "--yes", is_flag=True, help=f"Do not ask, also for more than {_ASK_ABOVE} jobs.")
    @with_session
    def command(session: Session, /, *, ranges: tuple[Any, ...], reason: str, yes: bool) -> int:
        wanted = merged(ranges)
        if not yes:
            confirm(action, wanted)
        body = ControlBody(action, [(one.first, one.last) for one in wanted], reason)
        answer = session.call(calls.CONTROL, body=body)
        missing = any(not one.changed + one.refused for one in answer.ranges or [])
        code = (
            FAILED if missing and answer.changed else CONFLICT if answer.refused and not answer.changed else 0
        )
        session.exit_if_json(answer, code)
        show_outcome(answer, done)
        return code

    return command


def show_outcome(answer: Controlled, done: str) -> None:
    """What became of the jobs that an action named."""
    each = answer.ranges or []
    for one in each:
        _show_range(one, done)
    if answer.changed or not answer.refused:
        click.echo(f"{counted(answer.changed, 'job')} {done}.")
    done = done.removeprefix("would be ")
    examples = [] if each else answer.examples[:5]
    for example in examples:
        note(f"job {example.id} was not {done}: {example.reason}.")
    if answer.refused > len(examples):
        note(f"In all {counted(answer.refused, 'job')} could not be {done}.")


def _show_range(one: RangeControlled, done: str) -> None:
    """What became of one job or range of several."""
    name = Range(one.first, one.last)
    if one.changed:
        click.echo(f"{name}: {done}" if name.size == 1 else f"{name}: {counted(one.changed, 'job')} {done}")
    if one.refused:
        which = f"job {name} was" if name.size == 1 else f"of {name}, {counted(one.refused, 'job')} could"
        note(f"{which} not{'' if name.size == 1 else ' be'} {done}: {one.reason}.")
    elif one.reason:
        note(one.reason)


def confirm(action: str, wanted: tuple[Range, ...]) -> None:
    """Ask before many jobs are touched, if there is a person to ask. Raises Abort."""
    count = total(wanted)
    if count > _ASK_ABOVE and sys.stdin.isatty() and sys.stderr.isatty():
        name = ", ".join(map(str, wanted[:3])) + ("..." if len(wanted) > 3 else "")
        click.confirm(f"{action.capitalize()} up to {counted(count, 'job')} ({name})?", abort=True, err=True)


kill = _command(
    "kill",
    "killed",
    "Kill jobs, waiting or running.\n\nA running payload is ended with its whole process tree.",
)
hold = _command("hold", "held", "Hold waiting jobs until they are released.")
release = _command("release", "released", "Let held jobs wait for a pilot again.")
reschedule = _command(
    "reschedule",
    "rescheduled",
    "Send failed, killed or running jobs back to their task queue for another attempt.",
)
delete = _command("delete", "deleted", "Delete jobs that have ended, or that have not begun.")
