"""`lode logs JOB`: the last output of a job, live while it runs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import click

from lodesman.answers import calls
from lodesman.answers.jobs import Logs
from lodesman.answers.requests import JobAt
from lodesman.answers.vocabulary import JobState
from lodesman.cli.arguments import JobId
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import is_terminal, note
from lodesman.cli.words import FINAL, plain_lines
from lodesman.errors import NotFound

FOLLOW_SECONDS = 1.0


@click.command()
@click.argument("job", type=JobId())
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@json_option
@pass_session
def logs(session: Session, /, *, job: int, follow: bool) -> None:
    """Show the last 64 kB that a job wrote, live while it runs."""
    if follow and session.as_json:
        raise click.UsageError("--follow and --json do not go together.")
    if follow:
        _follow(session, job)
    else:
        session.show(calls.JOB_LOGS, JobAt(job), text=_show)


def _show(answer: Logs) -> None:
    _write(answer.tail)
    if not answer.tail:
        yet = "" if answer.state in FINAL else " yet"
        note(f"Job {answer.id} is {answer.state} and has written nothing{yet}.")


@dataclass(slots=True)
class _Shown:
    """What was shown already."""

    attempt: int = 0
    tail: str = ""
    state: str = ""


def _follow(session: Session, job: int) -> None:
    before = _Shown()
    while True:
        answer = _ask(session, job)
        _show_news(answer, before)
        if answer.state in FINAL:
            return
        time.sleep(FOLLOW_SECONDS)


def _ask(session: Session, job: int) -> Logs:
    """The log, empty as long as the job has none. Raises NotFound for a job that is not there."""
    try:
        return session.call(calls.JOB_LOGS, JobAt(job))
    except NotFound:
        row = session.call(calls.JOB, JobAt(job))
        return Logs(job, row.state, row.attempt, live=False, tail="")


def _show_news(answer: Logs, before: _Shown) -> None:
    if answer.state != before.state:
        before.state = answer.state
        if answer.state not in (JobState.RUNNING, *FINAL):
            note(f"Job {answer.id} is {answer.state}.")
    if answer.attempt != before.attempt:
        if before.tail:
            note(f"Job {answer.id}: attempt {answer.attempt} begins.")
        before.attempt, before.tail = answer.attempt, ""
    _write(fresh(before.tail, answer.tail))
    before.tail = answer.tail or before.tail


def fresh(before: str, now: str) -> str:
    """What is new in `now`, the end of a growing text of which `before` was the end a moment ago."""
    if now.startswith(before):
        return now[len(before) :]
    for length in range(min(len(before), len(now)), 0, -1):
        if before.endswith(now[:length]):
            return now[length:]
    return now


def _write(text: str) -> None:
    """As it is for a file or a program; harmless for a terminal."""
    if not text:
        return
    sys.stdout.write(plain_lines(text) if is_terminal(sys.stdout) else text)
    sys.stdout.flush()


COMMANDS = (logs,)
