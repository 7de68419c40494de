"""`lode logs JOB`: the last output of a job, live while it runs."""

from __future__ import annotations

import time

import click

from lodesman.answers import calls
from lodesman.answers.jobs import Logs
from lodesman.answers.requests import JobAt
from lodesman.answers.vocabulary import JobState
from lodesman.cli.arguments import JOB
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import note, write_text
from lodesman.cli.words import FINAL
from lodesman.errors import NotFound

_FOLLOW_SECONDS = 1.0


@click.command()
@click.argument("job", type=JOB)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@with_session
def logs(session: Session, /, *, job: int, follow: bool) -> None:
    """Show the last 64 kB that a job wrote, live while it runs."""
    if follow and session.as_json:
        raise click.UsageError("--follow and --json do not go together.")
    if follow:
        _follow(session, job)
        return
    answer = session.answer(calls.JOB_LOGS, JobAt(job))
    write_text(answer.tail)
    if not answer.tail:
        yet = "" if answer.state in FINAL else " yet"
        note(f"Job {answer.id} is {answer.state} and has written nothing{yet}.")


def _follow(session: Session, job: int) -> None:
    attempt, state, tail = 0, "", ""
    while True:
        try:
            answer = session.call(calls.JOB_LOGS, JobAt(job))
        except NotFound:
            # Of a job that has written nothing yet; for one that is not there this raises again.
            row = session.call(calls.JOB, JobAt(job))
            answer = Logs(job, row.state, row.attempt, live=False, tail="")
        if answer.state not in (state, JobState.RUNNING, *FINAL):
            note(f"Job {job} is {answer.state}.")
        if answer.attempt != attempt:
            if tail:
                note(f"Job {job}: attempt {answer.attempt} begins.")
            tail = ""
        write_text(fresh(tail, answer.tail))
        attempt, state, tail = answer.attempt, answer.state, answer.tail or tail
        if answer.state in FINAL:
            return
        time.sleep(_FOLLOW_SECONDS)


def fresh(before: str, now: str) -> str:
    """What is new in `now`, the end of a growing text of which `before` was the end a moment ago."""
    if now.startswith(before):
        return now[len(before) :]
    for length in range(min(len(before), len(now)), 0, -1):
        if before.endswith(now[:length]):
            return now[length:]
    return now
