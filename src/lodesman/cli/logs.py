"""`lode logs JOB`: the last output of a job, live while it runs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import click

from lodesman.cli.session import JobId, Row, Session, json_option, pass_session
from lodesman.cli.tables import emit_json, is_terminal, note
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
    if session.as_json:
        if follow:
            raise click.UsageError("--follow and --json do not go together.")
        emit_json(session.get(f"/v1/jobs/{job}/logs"))
    elif follow:
        _follow(session, job)
    else:
        answer = session.get(f"/v1/jobs/{job}/logs")
        _write(answer["tail"])
        if not answer["tail"]:
            yet = "" if answer["state"] in FINAL else " yet"
            note(f"Job {job} is {answer['state']} and has written nothing{yet}.")


@dataclass(slots=True)
class _Seen:
    """What was shown already."""

    attempt: int = 0
    tail: str = ""
    state: str = ""


def _follow(session: Session, job: int) -> None:
    seen = _Seen()
    while True:
        answer = _ask(session, job)
        _show_news(answer, seen, job)
        if answer["state"] in FINAL:
            return
        time.sleep(FOLLOW_SECONDS)


def _ask(session: Session, job: int) -> Row:
    """The log, empty as long as the job has none. Raises NotFound for a job that is not there."""
    try:
        found: Row = session.get(f"/v1/jobs/{job}/logs")
    except NotFound:
        row = session.get(f"/v1/jobs/{job}")
        return {"state": row["state"], "attempt": row["attempt"], "tail": ""}
    return found


def _show_news(answer: Row, seen: _Seen, job: int) -> None:
    if answer["state"] != seen.state:
        seen.state = answer["state"]
        if seen.state not in ("Running", *FINAL):
            note(f"Job {job} is {seen.state}.")
    if answer["attempt"] != seen.attempt:
        if seen.tail:
            note(f"Job {job}: attempt {answer['attempt']} begins.")
        seen.attempt, seen.tail = answer["attempt"], ""
    _write(fresh(seen.tail, answer["tail"]))
    seen.tail = answer["tail"] or seen.tail


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
