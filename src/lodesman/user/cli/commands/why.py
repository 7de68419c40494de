"""`lode why`."""

from __future__ import annotations

import re
from typing import NamedTuple

import click

from lodesman.user.cli.arguments import ParsedArgument, read_job
from lodesman.user.cli.explanations import show_explained, show_why
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import say
from lodesman.user.cli.words import path_of, plain
from lodesman.wire import calls
from lodesman.wire.requests import JobInQueue, NodeQuery, PilotAt
from lodesman.wire.vocabulary import JobState
from lodesman.wire.why_jobs import JobWaits

_STAMP = re.compile(r"[0-9a-f]{24}")
_KINDS = ("job", "pilot", "queue")


class _Subject(NamedTuple):
    kind: str  # job, pilot or queue
    name: str  # a number, a number or stamp, or SITE/CE/QUEUE


def _subject(word: str) -> _Subject:
    kind, colon, name = word.partition(":")
    if not colon or kind not in _KINDS:
        is_pilot, name = _STAMP.fullmatch(word), word
        kind = "queue" if word.count("/") >= 2 else "pilot" if is_pilot else "job"
    if kind == "job" and not colon and not re.search(r"\A[\d\s,-]+\Z", word):
        forms = "the number of a job, pilot:NUMBER or SITE/CE/QUEUE"
        raise ValueError(
            f"{word[:60]!r} is none of what is explained; write {forms}. Of a site see lode site show."
        )
    if kind == "job":
        return _Subject("job", str(read_job(name)))
    parts = name.split("/")
    # Names may hold slashes themselves: the server knows which do.
    if kind == "queue" and not (parts[0] and parts[-1] and any(parts[1:-1])):
        raise ValueError(f"{name[:60]!r} is not a queue; write SITE/CE/QUEUE.")
    if not name or (kind == "pilot" and "/" in name):
        raise ValueError(f"{name[:60]!r} is not a {kind}.")
    return _Subject(kind, name)


@click.command()
@click.argument("what", required=False, type=ParsedArgument("what", _subject), metavar="[WHAT]")
@click.option("--pilot", metavar="ID|STAMP", help="Explain why this pilot got nothing.")
@click.option(
    "--queue",
    metavar="SITE/CE/QUEUE",
    help="Explain why no pilots are sent to this queue; of a job, why it cannot run there.",
)
@click.option("--vo", metavar="NAME", help="The queue as this VO sees it (administrators); else yours.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show every step, suggestion and decision of the director."
)
@with_session
def why(
    session: Session,
    /,
    *,
    what: _Subject | None,
    pilot: str | None,
    queue: str | None,
    vo: str | None,
    verbose: bool,
) -> None:
    """Explain why a job waits, why a pilot got nothing, or why no pilots are sent to a queue.

    WHAT is a job (42), a pilot (pilot:7, or its stamp) or a CE queue (SITE/CE/QUEUE).

    The last line is the verdict. Of a job: never (as things are configured no queue can run it), not now (something must
    change first) or now (it is expected next); of a queue: whether pilots may be sent there. Above it are the steps on
    the way from a job to a pilot that are in the way (NO), or not known (?), with the age of the fact.
    """
    # Beside a job the queue only says where.
    is_job = what is not None and what.kind == "job"
    named = (what, pilot and _Subject("pilot", pilot), queue and not is_job and _Subject("queue", queue))
    subjects = [subject for subject in named if subject]
    if len(subjects) != 1:
        raise click.UsageError("Name one job, one pilot or one queue.", click.get_current_context())
    kind, name = subjects[0]
    if vo and kind != "queue":
        raise click.UsageError("--vo belongs to a queue.", click.get_current_context())
    if kind == "queue":
        of_queue = session.answer(calls.QUEUE_WHY, NodeQuery(path=name, vo=vo or ""))
        nearest = of_queue.work.nearest if of_queue.work else ()
        show_why(of_queue, f"Queue {path_of(of_queue)} for VO {of_queue.vo}", nearest, verbose=verbose)
    elif kind == "pilot":
        of_pilot = session.answer(calls.PILOT_WHY, PilotAt(name))
        nearest = of_pilot.task_queues.nearest if of_pilot.task_queues else ()
        show_why(of_pilot, f"Pilot {of_pilot.id}", nearest, verbose=verbose)
    else:
        of_job = session.answer(calls.JOB_WHY, JobInQueue(int(name), queue=queue or ""))
        if isinstance(of_job, JobWaits):
            show_explained(of_job, f"Job {of_job.id}", of_job.queue or None, verbose=verbose)
            if of_job.state == JobState.WAITING and of_job.reason:
                click.echo()
                say(f"Before: {of_job.reason}.")
        else:
            click.echo(f"Job {of_job.id}: {of_job.state}. {plain(of_job.summary)}")
