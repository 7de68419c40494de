"""`lode why JOB|PILOT|QUEUE`: the verdict, the chain that leads to it, suggestions, and the director's arithmetic."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import click
from msgspec.structs import replace

from lodesman.base.errors import counted
from lodesman.user.cli.arguments import Parsed, read_job
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, coloured, is_terminal, say, show_table, state
from lodesman.user.cli.words import path_of, plain, span
from lodesman.wire import calls
from lodesman.wire.requests import JobInQueue, NodeQuery, PilotAt
from lodesman.wire.vocabulary import JobState, MainReason, PilotVerdict
from lodesman.wire.why_jobs import JobChange, JobExplained, JobWaits, Option, QueueForJob, Step
from lodesman.wire.why_pilots import PilotWhy, ResourceChange, ResourceOption
from lodesman.wire.why_queues import QueueExplained, SentPilot

_STAMP = re.compile(r"[0-9a-f]{24}")
_KINDS = ("job", "pilot", "queue")
_STEPS = ("step", "", "what is known", ">age")
_LATELY = (">pilot", "state", ">sent", ">jobs", "remark")
_HOLDS = {True: "ok", False: "NO", None: "?"}
# Where nothing is in the way, a step that does not hold is not needed.
_OPEN, _NOT_NEEDED = ("now", PilotVerdict.WOULD_GET), "-"
# What alone stands in the way, whatever else does not hold now.
_ALONE = {
    **dict.fromkeys((MainReason.HELD, MainReason.LIMITED, MainReason.OVER_LIMIT), "limits"),
    MainReason.WAITS_FOR_JOBS: "",
}
# What fits on half a screen; less is shown of the steps, never of the verdict.
_MOST_LINES, _FEW = 12, 3
# Beside the name of a step and its text: what it holds, the age, the gaps.
_BESIDE, _LEAST_WIDTH = 16, 20
_Explained = JobExplained | PilotWhy | QueueExplained


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
    if kind == "job" and not colon and not re.search(r"\A[\d\s,-]+\Z", word):
        what = "the number of a job, pilot:NUMBER or SITE/CE/QUEUE"
        raise ValueError(
            f"{word[:60]!r} is none of what is explained; write {what}. Of a site see lode site show."
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
@click.argument("what", required=False, type=Parsed("what", _subject), metavar="[WHAT]")
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
    asked = (what, pilot and _Subject("pilot", pilot), queue and not is_job and _Subject("queue", queue))
    subjects = [one for one in asked if one]
    if len(subjects) != 1:
        raise click.UsageError("Name one job, one pilot or one queue.", click.get_current_context())
    kind, name = subjects[0]
    if vo and kind != "queue":
        raise click.UsageError("--vo belongs to a queue.", click.get_current_context())
    if kind == "queue":
        of_queue = session.answer(calls.QUEUE_WHY, NodeQuery(path=name, vo=vo or ""))
        nearest = of_queue.work.nearest if of_queue.work else ()
        _explain(of_queue, f"Queue {path_of(of_queue)} for VO {of_queue.vo}", nearest, verbose=verbose)
    elif kind == "pilot":
        of_pilot = session.answer(calls.PILOT_WHY, PilotAt(name))
        nearest = of_pilot.task_queues.nearest if of_pilot.task_queues else ()
        _explain(of_pilot, f"Pilot {of_pilot.id}", nearest, verbose=verbose)
    else:
        of_job = session.answer(calls.JOB_WHY, JobInQueue(int(name), queue=queue or ""))
        if isinstance(of_job, JobWaits):
            show_explained(of_job, f"Job {of_job.id}", of_job.queue or None, verbose=verbose)
            if of_job.state == JobState.WAITING and of_job.reason:
                click.echo()
                say(f"Before: {of_job.reason}.")
        else:
            click.echo(f"Job {of_job.id}: {of_job.state}. {plain(of_job.summary)}")


def show_explained(
    answer: JobExplained, title: str, queue: QueueForJob | None = None, *, verbose: bool = False
) -> None:
    """Why a job waits, and all that one queue has against it."""
    verdict = _verdict(answer, title)
    room = _room(verdict)
    if queue:
        say(f"Queue {path_of(queue)}: {'could run it' if queue.eligible else 'cannot run it'}.")
        for reason in queue.reasons:
            say(f"  {reason}")
        if queue.room is not None:
            gate = f" ({queue.gate})" if queue.gate else ""
            say(f"  free capacity for {counted(queue.room, 'pilot')}{gate}")
    elif verbose:
        _show_steps(answer, answer.chain)
        show_suggestions(answer.queues.nearest, answer.queues.total)
        _show_director(answer)
    else:
        _show_briefly(answer, answer.queues.nearest, room, answer.queues.total)
    _show_verdict(answer, verdict, apart=bool(answer.chain or queue))


def _explain(
    answer: PilotWhy | QueueExplained, title: str, changes: Sequence[ResourceChange], *, verbose: bool
) -> None:
    verdict = _verdict(answer, title)
    if verbose:
        _show_steps(answer, answer.chain)
        show_suggestions(changes)
        if isinstance(answer, QueueExplained):
            _show_director(answer)
            show_table(_LATELY, map(_sent, answer.lately), apart=True)
    else:
        _show_briefly(answer, changes, _room(verdict))
    _show_verdict(answer, verdict, apart=bool(answer.chain))


def _verdict(answer: _Explained, title: str) -> list[str]:
    """The verdict, and who can change it."""
    lines = [f"{plain(title)}: {plain(answer.verdict).upper()}. {plain(answer.summary)}"]
    if answer.verdict != "now" and not answer.who.startswith("no "):
        lines.append(f"Who can change that: {plain(answer.who)}.")
    return lines


def show_verdict(answer: _Explained, title: str) -> None:
    """The verdict, the summary, and who can change it."""
    _show_verdict(answer, _verdict(answer, title))


def _show_verdict(answer: _Explained, lines: list[str], *, apart: bool = False) -> None:
    if apart:
        click.echo()
    word, style = state(answer.verdict)
    shown = plain(word).upper()
    click.echo(lines[0].replace(f": {shown}. ", f": {coloured(shown, style)}. ", 1))
    for line in lines[1:]:
        click.echo(line)


def _room(verdict: Sequence[str]) -> int:
    """How many lines are left beside the verdict and the blank line before it."""
    return _MOST_LINES - 1 - sum(map(_height, verdict))


def _height(text: str, beside: int = 0) -> int:
    """How many lines a text takes on this terminal, where other columns take `beside`; in a pipe one."""
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else 0
    return -(-max(1, len(text)) // max(_LEAST_WIDTH, width - beside)) if width else 1


def _show_briefly(
    answer: _Explained, changes: Sequence[JobChange | ResourceChange], room: int, queues: int = 0
) -> None:
    """The steps that are in the way, and the first suggestions that the summary does not name, in `room` lines."""
    chain = answer.chain
    new = (one for one in changes if one.text not in answer.summary)
    lines = [f"Suggestion: {_suggestion(one, queues)}" for one in islice(new, _FEW)]
    while lines and sum(map(_height, lines)) > room // 2:
        lines.pop()
    room -= sum(map(_height, lines)) + 2  # the titles, and what was left out
    shown = _fitting(answer, room)
    _show_steps(answer, [shown[place] for place in sorted(shown)])
    for line in lines:
        click.echo(line)
    if len(shown) < len(chain):
        click.echo(f"(--verbose shows all {counted(len(chain), 'step')})")


def _fitting(answer: _Explained, room: int) -> dict[int, Step]:
    """The steps that are in the way, by their places, as many as fit in `room` lines; if none does, the first cut to one."""
    chain, shown = answer.chain, dict[int, Step]()
    beside = max((len(one.step) for one in chain), default=0) + _BESIDE
    places = [place for place, one in enumerate(chain) if _in_the_way(answer, one)]
    places.sort(key=lambda place: chain[place].holds is None)
    for place in places:
        height = _height(chain[place].text, beside)
        if height > room and (shown or room < 1):
            break
        shown[place] = chain[place] if height <= room else _cut(chain[place], beside)
        room -= min(room, height)
    return shown


def _cut(one: Step, beside: int) -> Step:
    """A step in one line of this terminal."""
    most = max(_LEAST_WIDTH, shutil.get_terminal_size().columns - beside)
    return replace(one, text=f"{one.text[: most - 3]}...")


def _in_the_way(answer: _Explained, one: Step) -> bool:
    """Whether a step is among those that the verdict follows from."""
    if one.holds or answer.verdict in _OPEN:
        return False
    alone = _ALONE.get(answer.main_reason) if isinstance(answer, JobExplained) else None
    return alone is None or one.step == alone


def _show_steps(answer: _Explained, steps: Sequence[Step]) -> None:
    holds = {**_HOLDS, False: _NOT_NEEDED} if answer.verdict in _OPEN else _HOLDS
    known_for = (span(one.age_seconds) if isinstance(one.age_seconds, float) else "" for one in steps)
    rows = [[one.step, holds[one.holds], one.text, age] for one, age in zip(steps, known_for, strict=True)]
    show_table(_STEPS, rows)


def show_suggestions(changes: Sequence[JobChange | ResourceChange], queues: int = 0) -> None:
    """The smallest changes that would help: of a resource, or of a job to which `queues` CE queues are open."""
    if changes:
        click.echo("\nSuggestions:")
    for one in changes:
        say(f"  {_suggestion(one, queues)}")
        for step in one.steps:
            if len(step.options) > 1:
                say(f"    {step.criterion}: {', '.join(map(_option, step.options))}")


def _suggestion(one: JobChange | ResourceChange, queues: int) -> str:
    if isinstance(one, JobChange):
        effect = f"{one.queues:,} of {counted(queues, 'queue')}, for instance {path_of(one.example)}"
    else:
        effect = f"{counted(one.task_queues, 'task queue')}, {counted(one.jobs, 'job')}, for instance "
        effect += f"task queue {one.example.task_queue} of {one.example.owner} ({one.example.group})"
    return plain(f"{one.text}: {effect}")


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
