"""`lode why JOB`: the verdict, then what rules queues out, the smallest change, pilots and the director."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from lodesman.cli.session import JobId, Session, json_option, pass_session
from lodesman.cli.tables import Column, emit_json, is_terminal, say, show_table, state
from lodesman.cli.words import counted, plain, span

COLUMNS = (
    Column(title="ruled out by"),
    Column(title="queues", right=True),
    Column(title="of", right=True),
)


@click.command()
@click.argument("job", type=JobId())
@json_option
@pass_session
def why(session: Session, /, *, job: int) -> None:
    """Tell why a job waits, and what would let it run.

    The verdict is never (no configured queue can run it), not now, or now.
    """
    answer = session.get(f"/v1/jobs/{job}/why")
    if session.as_json:
        emit_json(answer)
        return
    _headline(answer)
    queues = answer.get("queues")
    if queues and queues["ruled_out_by"]:
        click.echo()
        total = f"{queues['total']:,}"
        show_table(
            COLUMNS, [[one["criterion"], f"{one['queues']:,}", total] for one in queues["ruled_out_by"]]
        )
    for line in explanation(answer):
        say(line)


def _headline(answer: Mapping[str, Any]) -> None:
    verdict = answer.get("verdict") or answer["state"]
    cell = state(verdict)
    text = plain(cell.text).upper() if answer.get("verdict") else plain(cell.text)
    if is_terminal(sys.stdout) and cell.style:
        text = click.style(text, fg=cell.style.rpartition(" ")[2], bold=True)
    click.echo(f"Job {answer['id']}: {text}. {plain(answer['summary'])}")


def explanation(answer: Mapping[str, Any]) -> Iterator[str]:
    """What follows the table, line by line; nothing for what the answer does not tell."""
    nearest = (answer.get("queues") or {}).get("nearest") or []
    if nearest:
        yield ""
        yield "Smallest changes:"
        yield from map(_change, nearest)
    position = answer.get("task_queue")
    if position:
        yield ""
        ahead = f", {position['rows_ahead']:,} of them before it" if position["rows_ahead"] else ""
        yield f"Task queue {position['id']}: {counted(position['waiting'], 'job')} waiting{ahead}."
    if answer.get("pilots"):
        yield _pilots(answer["pilots"])
    if answer.get("director"):
        yield from _director(answer["director"])


def _change(one: Mapping[str, Any]) -> str:
    example = one["example"]
    where = "/".join(example[part] for part in ("site", "ce", "queue"))
    return (
        f"  {' and '.join(one['change'])}: gives {counted(one['queues'], 'queue')}, "
        f"for instance {where} ({'; '.join(example['reasons'])})"
    )


def _pilots(pilots: Mapping[str, Any]) -> str:
    seen = pilots["seen_seconds_ago"]
    heard = "" if seen is None else f"; last heard of {span(seen)} ago"
    return (
        f"Pilots: {pilots['live']:,} live, of which can take it: {pilots['usable_idle']:,} idle, "
        f"{pilots['usable_busy']:,} busy, {pilots['usable_waiting']:,} on their way; "
        f"{pilots['draining']:,} draining{heard}."
    )


def _director(director: Mapping[str, Any]) -> Iterator[str]:
    at = director["decided_seconds_ago"]
    yield f"Director ({'never decided' if at is None else f'decided {span(at)} ago'}):"
    yield from (f"  {line}" for line in director["lines"])


COMMANDS = (why,)
