"""`lode why JOB|PILOT|QUEUE`: the verdict, the chain that leads to it, suggestions, and the director's arithmetic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from lodesman.answers import calls
from lodesman.answers.requests import JobInQueue, NodeQuery, PilotAt
from lodesman.answers.vocabulary import JobState
from lodesman.answers.why_jobs import JobChange, JobExplained, JobWaits, Option, QueueForJob, Step
from lodesman.answers.why_pilots import PilotWhy, ResourceChange, ResourceOption
from lodesman.answers.why_queues import QueueExplained, SentPilot
from lodesman.cli.arguments import Parsed, read_job
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import Cell, coloured, say, show_table, state
from lodesman.cli.words import counted, path_of, plain, span

_STAMP = re.compile(r"[0-9a-f]{24}")
_KINDS = ("job", "pilot", "queue")
_STEPS = ("step", "", "what is known", ">age")
_LATELY = (">pilot", "state", ">sent", ">jobs", "remark")
_HOLDS = {True: "ok", False: "NO", None: "?"}
_EXAMPLES = """\b
Examples:
  lode why 42                           why job 42 waits
  lode why 42 --queue LCG.North/ce.north/short   what this queue has against job 42
  lode why 42 --json                    for programs: .verdict, .main_reason, .chain[], .queues.nearest[]
  lode why pilot:7                      why pilot 7 got nothing; or --pilot 7, or its stamp
  lode why LCG.North/ce.north/short     why no pilots go there; or --queue SITE/CE/QUEUE"""


class _Subject(NamedTuple):
    """`kind` is job, pilot or queue; `name` a number, a number or stamp, or SITE/CE/QUEUE."""

    kind: str
    name: str


def _subject(word: str) -> _Subject:
    """A job (12), a pilot (pilot:12, its stamp) or a CE queue (SITE/CE/QUEUE). Raises ValueError for anything else."""
    kind, colon, name = word.partition(":")
    if not colon or kind not in _KINDS:
        is_pilot, name = _STAMP.fullmatch(word), word
        kind = "queue" if word.count("/") >= 2 else "pilot" if is_pilot else "job"
    if kind == "job":
        return _Subject("job", str(read_job(name)))
    parts = name.split("/")
    # Names may hold slashes themselves: the server knows which do.
    if kind == "queue" and not (parts[0] and parts[-1] and any(parts[1:-1])):
        raise ValueError(f"{name[:60]!r} is not a queue; write SITE/CE/QUEUE.")
    if not name or (kind == "pilot" and "/" in name):
        raise ValueError(f"{name[:60]!r} is not a {kind}.")
    return _Subject(kind, name)


@click.command(epilog=_EXAMPLES)
@click.argument("what", required=False, type=Parsed("what", _subject), metavar="[WHAT]")
@click.option("--pilot", metavar="ID|STAMP", help="Explain why this pilot got nothing.")
@click.option(
    "--queue",
    metavar="SITE/CE/QUEUE",
    help="Explain why no pilots are sent to this queue; of a job, why it cannot run there.",
)
@click.option("--vo", metavar="NAME", help="The queue as this VO sees it (administrators); else yours.")
@with_session
def why(
    session: Session, /, *, what: _Subject | None, pilot: str | None, queue: str | None, vo: str | None
) -> None:
    """Explain why a job waits, why a pilot got nothing, or why no pilots are sent to a queue.

    WHAT is a job (42), a pilot (pilot:7, or its stamp) or a CE queue (SITE/CE/QUEUE).

    For a job the whole way to a pilot is shown, step by step, ending in never (as things are configured no queue can run
    it), not now (something must change first) or now (it is expected next). For a queue the same: may pilots be sent
    there never, not now, or now. A step that says NO is in the way; the age says how old the fact is.
    """
    # Beside a job the queue only says where.
    is_job = what is not None and what.kind == "job"
    asked = (what, pilot and _Subject("pilot", pilot), queue and not is_job and _Subject("queue", queue))
    subjects = [one for one in asked if one]
    if len(subjects) != 1:
        raise click.UsageError("Name one job, one pilot or one queue.", click.get_current_context())
    kind, name = subjects[0]
    if vo and kind != "queue":
        raise click.UsageError("--vo belongs to a queue.", click.get_current_context())
    if kind == "queue":
        of_queue = session.answer(calls.QUEUE_WHY, NodeQuery(path=name, vo=vo or ""))
        show_verdict(of_queue, f"Queue {path_of(of_queue)} for VO {of_queue.vo}", of_queue.chain)
        show_suggestions(of_queue.work.nearest if of_queue.work else ())
        _show_director(of_queue)
        show_table(_LATELY, map(_sent, of_queue.lately), apart=True)
    elif kind == "pilot":
        of_pilot = session.answer(calls.PILOT_WHY, PilotAt(name))
        show_verdict(of_pilot, f"Pilot {of_pilot.id}", of_pilot.chain)
        show_suggestions(of_pilot.task_queues.nearest if of_pilot.task_queues else ())
    else:
        of_job = session.answer(calls.JOB_WHY, JobInQueue(int(name), queue=queue or ""))
        if isinstance(of_job, JobWaits):
            show_explained(of_job, f"Job {of_job.id}", of_job.queue or None)
            if of_job.state == JobState.WAITING and of_job.reason:
                say(f"\nBefore: {of_job.reason}.")
        else:
            click.echo(f"Job {of_job.id}: {of_job.state}. {plain(of_job.summary)}")


def show_explained(answer: JobExplained, title: str, queue: QueueForJob | None = None) -> None:
    """Why a job waits, and all that one queue has against it."""
    show_verdict(answer, title, answer.chain)
    show_suggestions(answer.queues.nearest, answer.queues.total)
    if queue:
        click.echo()
        say(f"Queue {path_of(queue)}: {'could run it' if queue.eligible else 'cannot run it'}.")
        for reason in queue.reasons:
            say(f"  {reason}")
        if queue.room is not None:
            gate = f" ({queue.gate})" if queue.gate else ""
            say(f"  free capacity for {counted(queue.room, 'pilot')}{gate}")
    _show_director(answer)


def show_verdict(
    answer: JobExplained | PilotWhy | QueueExplained, title: str, chain: Sequence[Step] = ()
) -> None:
    """The verdict, the summary, who can change it, and the steps that lead to it."""
    verdict, style = state(answer.verdict)
    click.echo(f"{plain(title)}: {coloured(plain(verdict).upper(), style)}. {plain(answer.summary)}")
    if answer.verdict != "now" and not answer.who.startswith("no "):
        click.echo(f"Who can change that: {plain(answer.who)}.")
    show_table(_STEPS, map(_step, chain), apart=True)


def _step(one: Step) -> list[Cell]:
    known_for = span(one.age_seconds) if isinstance(one.age_seconds, float) else ""
    return [one.step, _HOLDS[one.holds], one.text, known_for]


def show_suggestions(changes: Sequence[JobChange | ResourceChange], queues: int = 0) -> None:
    """The smallest changes that would help: of a resource, or of a job to which `queues` CE queues are open."""
    if changes:
        click.echo("\nSuggestions:")
    for one in changes:
        if isinstance(one, JobChange):
            effect = f"{one.queues:,} of {counted(queues, 'queue')}, for instance {path_of(one.example)}"
        else:
            effect = f"{counted(one.task_queues, 'task queue')}, {counted(one.jobs, 'job')}, for instance "
            effect += f"task queue {one.example.task_queue} of {one.example.owner} ({one.example.group})"
        say(f"  {one.text}: {effect}")
        for step in one.steps:
            if len(step.options) > 1:
                say(f"    {step.criterion}: {', '.join(map(_option, step.options))}")


def _option(one: Option | ResourceOption) -> str:
    count = one.queues if isinstance(one, Option) else one.task_queues
    return f"{one.value} ({count:,})"


def _show_director(answer: JobExplained | QueueExplained) -> None:
    at, last = answer.director.decided_seconds_ago, answer.director.iterated_seconds_ago
    words = "never decided" if at is None else f"decided {span(at)} ago"
    words += "" if last is None or last == at else f", last iteration {span(last)} ago"
    click.echo(f"\nDirector ({words}):")
    for line in answer.director.lines:
        say(f"  {line}")


def _sent(one: SentPilot) -> list[Cell]:
    unused = not one.joined and one.ended_seconds_ago is not None
    remark = one.reason or ("never joined" if unused else "")
    return [str(one.id), state(one.state), f"{span(one.sent_seconds_ago)} ago", str(one.jobs_done), remark]
