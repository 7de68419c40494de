"""Explanations of the server for people."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from itertools import islice

import click
from msgspec.structs import replace

from lodesman.base.errors import counted
from lodesman.user.cli.tables import Cell, coloured, is_terminal, say, show_table, state
from lodesman.user.cli.words import path_of, plain, span
from lodesman.wire.classads import AttributeValue, ClauseRow
from lodesman.wire.vocabulary import MainReason, PilotVerdict
from lodesman.wire.why_jobs import JobChange, JobExplained, Option, QueueForJob, Step
from lodesman.wire.why_pilots import PilotWhy, ResourceChange, ResourceOption
from lodesman.wire.why_queues import QueueExplained, SentPilot

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
CLAUSE_TITLES = ("value", "clause", "here", "there")


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


def show_why(
    answer: PilotWhy | QueueExplained, title: str, changes: Sequence[ResourceChange], *, verbose: bool
) -> None:
    """Say why a pilot gets nothing, or a queue no pilots."""
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
    lines = [f"{plain(title)}: {plain(answer.verdict).upper()}. {plain(answer.summary)}"]
    if answer.verdict != "now" and not answer.who.startswith("no "):
        lines.append(f"Who can change that: {plain(answer.who)}.")
    return lines


def show_verdict(answer: _Explained, title: str) -> None:
    """Print verdict, summary and who can change it."""
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
    return _MOST_LINES - 1 - sum(map(_height, verdict))


def _height(text: str, beside: int = 0) -> int:
    """Lines on this terminal beside columns of that width; 1 in a pipe."""
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else 0
    return -(-max(1, len(text)) // max(_LEAST_WIDTH, width - beside)) if width else 1


def _show_briefly(
    answer: _Explained, changes: Sequence[JobChange | ResourceChange], room: int, queues: int = 0
) -> None:
    chain = answer.chain
    new = (change for change in changes if change.text not in answer.summary)
    lines = [f"Suggestion: {_suggestion(change, queues)}" for change in islice(new, _FEW)]
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
    """By place, what fits in `room` lines; at least one, cut."""
    chain, shown = answer.chain, dict[int, Step]()
    beside = max((len(step.step) for step in chain), default=0) + _BESIDE
    places = [place for place, step in enumerate(chain) if _in_the_way(answer, step)]
    places.sort(key=lambda place: chain[place].holds is None)
    for place in places:
        height = _height(chain[place].text, beside)
        if height > room and (shown or room < 1):
            break
        shown[place] = chain[place] if height <= room else _cut(chain[place], beside)
        room -= min(room, height)
    return shown


def _cut(step: Step, beside: int) -> Step:
    most = max(_LEAST_WIDTH, shutil.get_terminal_size().columns - beside)
    return replace(step, text=f"{step.text[: most - 3]}...")


def _in_the_way(answer: _Explained, step: Step) -> bool:
    if step.holds or answer.verdict in _OPEN:
        return False
    alone = _ALONE.get(answer.main_reason) if isinstance(answer, JobExplained) else None
    return alone is None or step.step == alone


def _show_steps(answer: _Explained, steps: Sequence[Step]) -> None:
    holds = {**_HOLDS, False: _NOT_NEEDED} if answer.verdict in _OPEN else _HOLDS
    known_for = (span(step.age_seconds) if isinstance(step.age_seconds, float) else "" for step in steps)
    rows = [
        [step.step, holds[step.holds], step.text, age] for step, age in zip(steps, known_for, strict=True)
    ]
    show_table(_STEPS, rows)


def show_suggestions(changes: Sequence[JobChange | ResourceChange], queues: int = 0) -> None:
    """`queues`: all that are open to the job."""
    if changes:
        click.echo("\nSuggestions:")
    for change in changes:
        say(f"  {_suggestion(change, queues)}")
        for step in change.steps:
            if len(step.options) > 1:
                say(f"    {step.criterion}: {', '.join(map(_option, step.options))}")


def _suggestion(change: JobChange | ResourceChange, queues: int) -> str:
    if isinstance(change, JobChange):
        effect = f"{change.queues:,} of {counted(queues, 'queue')}, for instance {path_of(change.example)}"
    else:
        effect = f"{counted(change.task_queues, 'task queue')}, {counted(change.jobs, 'job')}, for instance "
        effect += f"task queue {change.example.task_queue} of {change.example.owner} ({change.example.group})"
    return plain(f"{change.text}: {effect}")


def _option(option: Option | ResourceOption) -> str:
    count = option.queues if isinstance(option, Option) else option.task_queues
    return f"{option.value} ({count:,})"


def _show_director(answer: JobExplained | QueueExplained) -> None:
    at, last = answer.director.decided_seconds_ago, answer.director.iterated_seconds_ago
    words = "never decided" if at is None else f"decided {span(at)} ago"
    words += "" if last is None or last == at else f", last iteration {span(last)} ago"
    click.echo(f"\nDirector ({words}):")
    for line in answer.director.lines:
        say(f"  {line}")


def _sent(pilot: SentPilot) -> list[Cell]:
    unused = not pilot.joined and pilot.ended_seconds_ago is not None
    remark = pilot.reason or ("never joined" if unused else "")
    return [
        str(pilot.id),
        state(pilot.state),
        f"{span(pilot.sent_seconds_ago)} ago",
        str(pilot.jobs_done),
        remark,
    ]


# --- clauses of ClassAds -------------------------------------------------------------------------------------------------


def clause_cells(row: ClauseRow) -> list[Cell]:
    """The cells below CLAUSE_TITLES."""
    dear = " (too many steps)" if row.is_dear else ""
    return [row.value + _cycle(row.cycle) + dear, row.clause, _shown(row.own), _shown(row.other)]


def _cycle(names: list[str]) -> str:
    return f" ({' -> '.join([*names, names[0]])})" if names else ""


def _shown(values: list[AttributeValue]) -> str:
    return ", ".join(f"{value.name} = {value.value}" for value in values)
