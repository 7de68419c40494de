"""`lode why JOB|PILOT|QUEUE`: the verdict, the chain that leads to it, suggestions, and the director's arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import click

from lodesman.answers import calls
from lodesman.answers.requests import JobInQueue, NodeQuery, PilotAt
from lodesman.answers.why_jobs import (
    JobChange,
    JobDirector,
    JobExplained,
    JobWaits,
    JobWaitsNot,
    Option,
    QueueForJob,
    Step,
)
from lodesman.answers.why_pilots import PilotWhy, ResourceChange, ResourceOption
from lodesman.answers.why_queues import QueueDirector, QueueExplained, SentPilot
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

C = TypeVar("C", JobChange, ResourceChange)


# --- what is asked about ---------------------------------------------------------------------------------


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
    if kind == "queue" and not _may_be_queue(name):
        raise ValueError(f"{name[:60]!r} is not a queue; write SITE/CE/QUEUE.")
    if not name or (kind == "pilot" and "/" in name):
        raise ValueError(f"{name[:60]!r} is not a {kind}.")
    return _Subject(kind, name)


def _may_be_queue(name: str) -> bool:
    """Whether there are three names. They may hold slashes themselves: the server knows which do."""
    parts = name.split("/")
    return bool(parts[0] and parts[-1] and any(parts[1:-1]))


def _the_one(what: _Subject | None, pilot: str | None, queue: str | None) -> _Subject:
    """The one subject; beside a job the queue only says where. Raises UsageError for none or several."""
    is_job = what is not None and what.kind == "job"
    asked = [what, pilot and _Subject("pilot", pilot), queue and not is_job and _Subject("queue", queue)]
    found = [one for one in asked if one]
    if len(found) != 1:
        raise click.UsageError("Name one job, one pilot or one queue.", click.get_current_context())
    return found[0]


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
    subject = _the_one(what, pilot, queue)
    if vo and subject.kind != "queue":
        raise click.UsageError("--vo belongs to a queue.", click.get_current_context())
    if subject.kind == "queue":
        session.show(calls.QUEUE_WHY, NodeQuery(path=subject.name, vo=vo or ""), text=_show_queue)
    elif subject.kind == "pilot":
        session.show(calls.PILOT_WHY, PilotAt(subject.name), text=_show_pilot)
    else:
        session.show(calls.JOB_WHY, JobInQueue(int(subject.name), queue=queue or ""), text=_show_job)


# --- what is shown ---------------------------------------------------------------------------------------


def _show_job(answer: JobWaits | JobWaitsNot) -> None:
    title = f"Job {answer.id}"
    if isinstance(answer, JobWaits):
        show_explained(answer, title, answer.queue or None)
    else:
        click.echo(f"{title}: {answer.state}. {plain(answer.summary)}")


def show_explained(answer: JobExplained, title: str, queue: QueueForJob | None = None) -> None:
    """Why a job waits, and all that one queue has against it."""
    show_verdict(answer, title)
    show_table(_STEPS, map(_step, answer.chain), apart=True)
    show_suggestions(answer)
    if queue:
        _show(_in_queue(queue))
    _show(_director(answer.director))


def show_verdict(answer: JobExplained | PilotWhy | QueueExplained, title: str) -> None:
    """The verdict, the summary, and who can change it."""
    verdict, style = state(answer.verdict)
    click.echo(f"{plain(title)}: {coloured(plain(verdict).upper(), style)}. {plain(answer.summary)}")
    if answer.verdict != "now" and not answer.who.startswith("no "):
        click.echo(f"Who can change that: {plain(answer.who)}.")


def show_suggestions(answer: JobExplained) -> None:
    """The changes of the job that would let it run."""
    total = answer.queues.total
    _show(_suggestions(answer.queues.nearest, lambda one: _job_change(one, total)))


def _show_pilot(answer: PilotWhy) -> None:
    show_verdict(answer, f"Pilot {answer.id}")
    show_table(_STEPS, map(_step, answer.chain), apart=True)
    _show(_suggestions(answer.task_queues.nearest if answer.task_queues else (), _resource_change))


def _show_queue(answer: QueueExplained) -> None:
    show_verdict(answer, f"Queue {path_of(answer)} for VO {answer.vo}")
    show_table(_STEPS, map(_step, answer.chain), apart=True)
    _show(_suggestions(answer.work.nearest if answer.work else (), _resource_change))
    _show(_director(answer.director))
    show_table(_LATELY, map(_sent, answer.lately), apart=True)


def _step(one: Step) -> list[Cell]:
    known_for = span(one.age_seconds) if isinstance(one.age_seconds, float) else ""
    return [one.step, _HOLDS[one.holds], one.text, known_for]


def _show(lines: Iterable[str]) -> None:
    """Lines below the table, apart from what stands above; nothing if there are none."""
    for number, line in enumerate(lines):
        if not number:
            click.echo()
        say(line)


def _suggestions(changes: Sequence[C], effect: Callable[[C], str]) -> Iterator[str]:
    if changes:
        yield "Suggestions:"
    for one in changes:
        yield f"  {one.text}: {effect(one)}"
        for step in one.steps:
            if len(step.options) > 1:
                yield f"    {step.criterion}: {', '.join(map(_option, step.options))}"


def _option(one: Option | ResourceOption) -> str:
    count = one.queues if isinstance(one, Option) else one.task_queues
    return f"{one.value} ({count:,})"


def _job_change(one: JobChange, total: int) -> str:
    return f"{one.queues:,} of {counted(total, 'queue')}, for instance {path_of(one.example)}"


def _resource_change(one: ResourceChange) -> str:
    jobs = f"{counted(one.task_queues, 'task queue')}, {counted(one.jobs, 'job')}"
    example = one.example
    return f"{jobs}, for instance task queue {example.task_queue} of {example.owner} ({example.group})"


def _in_queue(found: QueueForJob) -> Iterator[str]:
    yield f"Queue {path_of(found)}: {'could run it' if found.eligible else 'cannot run it'}."
    yield from (f"  {reason}" for reason in found.reasons)
    if found.room is not None:
        gate = f" ({found.gate})" if found.gate else ""
        yield f"  free capacity for {counted(found.room, 'pilot')}{gate}"


def _director(director: JobDirector | QueueDirector) -> Iterator[str]:
    at = director.decided_seconds_ago
    yield f"Director ({'never decided' if at is None else f'decided {span(at)} ago'}):"
    yield from (f"  {line}" for line in director.lines)


def _sent(one: SentPilot) -> list[Cell]:
    unused = not one.joined and one.ended_seconds_ago is not None
    remark = one.reason or ("never joined" if unused else "")
    return [str(one.id), state(one.state), f"{span(one.sent_seconds_ago)} ago", str(one.jobs_done), remark]
