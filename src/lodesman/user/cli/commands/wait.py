"""`lode wait` and `lode logs`."""

from __future__ import annotations

import time
from typing import Any

import click
from msgspec.structs import replace

from lodesman.base.errors import InvalidRequest, NotFound, Unavailable
from lodesman.user.cli.arguments import DURATION, JOB, JOB_RANGES, Range, merge_ranges, total
from lodesman.user.cli.faults import INTERRUPTED
from lodesman.user.cli.selection import Question, choice_options, choose_jobs, fetch_submissions, take_choice
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, write_text
from lodesman.user.cli.waiting import Outage, WaitOptions, ending, exit_code_of, wait_for
from lodesman.user.cli.words import FINAL, counted
from lodesman.wire import job_calls
from lodesman.wire.job_queries import Selection
from lodesman.wire.jobs import Logs
from lodesman.wire.requests import JobAt
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import WaitQuery


@click.command()
@click.argument("ranges", nargs=-1, type=JOB_RANGES, metavar="[JOB|RANGE]...")
@choice_options
@click.option("--any", "first", is_flag=True, help="Until one of them has ended, not all.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Give up after 90s, 10m, 2h: exit code 124.")
@click.option(
    "--held", type=click.Choice(["wait", "stop"]), default="wait", show_default=True,
    help="Whether to go on when only Held jobs are left. Those whose parent failed are never waited for.",
)  # fmt: skip
@with_session
def wait(session: Session, /, *, ranges: tuple[Any, ...], **options: Any) -> int:
    """Wait until jobs have ended.

    Jobs are named, by number or --submission, or chosen with --job-group, --where and so on: of those named, else of your
    own. Chosen are those that are there now, not those that are submitted later.

    The exit code is 0 if all are Done, else that of the Failed job with the lowest id: its own, or 128 and the
    number of its signal; 1 if there is none (Killed, Deleted). 124: the time is over; 125: only Held jobs are left, which go
    on only when they are released. Ctrl-C leaves the jobs alone.
    """
    choice = take_choice(options)
    submissions = [] if choice is None else choice.submissions
    named = merge_ranges((*ranges, tuple(_jobs_of(session, number) for number in submissions)))
    if choice is not None and (choice := replace(choice, submissions=[])) == Selection():
        choice = None
    answer, code = wait_for(session, choose_jobs(session, named, choice), WaitOptions(**options))
    session.exit_if_json(answer, code)
    return code


def _jobs_of(session: Session, submission: int) -> Range:
    rows = [*fetch_submissions(session, Question(submission=submission, everyone=True, limit=1))]
    if not rows:
        raise NotFound(f"There is no submission {submission} that you may see.", hint="See: lode status")
    return Range(rows[0].first, rows[0].first + rows[0].jobs - 1)


# --- logs ---------------------------------------------------------------------------------------------------------------

_MOST_JOBS = 20
_FOLLOW_SECONDS = 1.0
_MOST_REST = 10.0


@click.command()
@click.argument("job", type=JOB, required=False)
@choice_options
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@with_session
def logs(session: Session, /, *, job: int | None, follow: bool, **options: Any) -> int:
    """Show the last 64 kB that a job wrote, live while it runs.

    With --state, --job-group, --where and so on: of your jobs that are chosen so, at most 20. With --follow the exit code is
    that of the job, as of lode wait.
    """
    if follow and session.as_json:
        raise click.UsageError("--follow and --json do not go together.")
    choice = take_choice(options)
    ranges = choose_jobs(session, () if job is None else (Range(job, job),), choice)
    numbers = _refuse_many(ranges, 1 if follow else _MOST_JOBS)
    if follow:
        try:
            return _follow(session, numbers[0])
        except KeyboardInterrupt:
            note(f"Interrupted. The job goes on; this ends it: lode kill {numbers[0]}")
            return INTERRUPTED
    if choice is not None and session.as_json:
        session.exit_if_json({"jobs": [_logs(session, number) for number in numbers]})
    for number in numbers:
        answer = _logs(session, number)
        session.exit_if_json(answer)
        if choice is not None and answer.tail:
            note(f"Job {number}, {answer.state}:")
        _show(answer)
    return 0


def _refuse_many(ranges: tuple[Range, ...], most: int) -> list[int]:
    if total(ranges) > most:
        fault = (
            "--follow shows one job" if most == 1 else f"The logs of at most {most} jobs are shown at once"
        )
        hint = "Choose fewer, or fetch what they wrote: lode output, with the same options."
        raise InvalidRequest(f"{fault}; {counted(total(ranges), 'job')} are chosen.", hint=hint)
    return [number for span in ranges for number in range(span.first, span.last + 1)]


def _show(answer: Logs) -> None:
    write_text(answer.tail)
    if not answer.tail:
        yet = "" if answer.state in FINAL else " yet"
        note(f"Job {answer.id} is {answer.state} and has written nothing{yet}.")


def _follow(session: Session, job: int) -> int:
    """A server that goes away is asked again."""
    attempt, state, tail, outage = 0, "", "", Outage()
    answer = _logs(session, job)
    while True:
        if answer.state not in (JobState.RUNNING, *FINAL):
            state = _say_state(session, job, state)
        elif answer.state not in FINAL:
            state = answer.state
        if answer.attempt != attempt:
            if tail:
                note(f"Job {job}: attempt {answer.attempt} begins.")
            tail = ""
        write_text(fresh(tail, answer.tail))
        attempt, tail = answer.attempt, answer.tail or tail
        if answer.state in FINAL:
            return _end(session, job)
        time.sleep(_FOLLOW_SECONDS)
        try:
            answer = _logs(session, job)
        except Unavailable as fault:
            outage.rest(fault, _MOST_REST)
        else:
            outage.over()


def _logs(session: Session, job: int) -> Logs:
    try:
        return session.call(job_calls.JOB_LOGS, JobAt(job))
    except NotFound:
        # Of a job that has written nothing yet; for one that is not there this raises again.
        row = session.call(job_calls.JOB, JobAt(job))
        return Logs(job, row.state, row.attempt, live=False, tail="")


def _say_state(session: Session, job: int, before: str) -> str:
    row = session.call(job_calls.JOB, JobAt(job))
    why = row.main_reason if row.state == JobState.WAITING else row.reason
    words = f"Job {job} is {row.state}{f': {why}' if why else ''}."
    if words != before:
        more = f" More: lode why {job}" if row.state in (JobState.WAITING, JobState.HELD) else ""
        note(words + more)
    return words


def _end(session: Session, job: int) -> int:
    answer = session.call(job_calls.WAIT, WaitQuery(str(job), seconds=0))
    if answer.jobs and answer.jobs[0].state != JobState.DONE:
        note(ending(answer.jobs[0]))
    return exit_code_of(answer)


def fresh(before: str, now: str) -> str:
    """What `now`, the end of a growing text, has beyond `before`, its end a moment ago."""
    if now.startswith(before):
        return now[len(before) :]
    for length in range(min(len(before), len(now)), 0, -1):
        if before.endswith(now[:length]):
            return now[length:]
    return now
