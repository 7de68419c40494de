"""`lode why JOB|PILOT|QUEUE`: the verdict, the chain that leads to it, the suggestions, the director's arithmetic."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.subjects import Subject, SubjectType, the_one
from lodesman.cli.tables import Column, emit_json, is_terminal, say, show_table, state
from lodesman.cli.why_more import LATELY, in_queue, lately, smallest_changes
from lodesman.cli.words import counted, plain, span

COLUMNS = (
    Column(title="step"),
    Column(title=""),
    Column(title="what is known"),
    Column(title="age", right=True),
)
HOLDS = {True: "ok", False: "NO", None: "?"}
EXAMPLES = """\b
Examples:
  lode why 42                           why job 42 waits
  lode why 42 --queue LCG.North/ce.north/short   what this queue has against job 42
  lode why 42 --json                    for programs: .verdict, .main_reason, .chain[], .queues.nearest[]
  lode why pilot:7                      why pilot 7 got nothing; or --pilot 7, or its stamp
  lode why LCG.North/ce.north/short     why no pilots go there; or --queue SITE/CE/QUEUE"""


@click.command(epilog=EXAMPLES)
@click.argument("what", required=False, type=SubjectType(), metavar="[WHAT]")
@click.option("--pilot", metavar="ID|STAMP", help="Tell why this pilot got nothing.")
@click.option(
    "--queue",
    metavar="SITE/CE/QUEUE",
    help="Tell why no pilots are sent to this queue; of a job, why it cannot run there.",
)
@click.option("--vo", metavar="NAME", help="The queue as this VO sees it (administrators); else yours.")
@json_option
@pass_session
def why(
    session: Session, /, *, what: Subject | None, pilot: str | None, queue: str | None, vo: str | None
) -> None:
    """Tell why a job waits, why a pilot got nothing, or why no pilots are sent to a queue.

    WHAT is a job (42), a pilot (pilot:7, or its stamp) or a CE queue (SITE/CE/QUEUE).

    Of a job the whole way to a pilot is told, step by step, ending in never (as things are configured no queue can run
    it), not now (something must change first) or now (it is expected next). Of a queue the same: may pilots be sent
    there never, not now, or now. A step that says NO is in the way; the age tells how old the fact is.
    """
    subject = the_one(what, pilot, queue)
    if vo and subject.kind != "queue":
        raise click.UsageError("--vo belongs to a queue.", click.get_current_context())
    answer = _ask(session, subject, vo, queue)
    if session.as_json:
        emit_json(answer)
        return
    tell(answer, _titled(subject, answer))
    if answer.get("lately"):
        click.echo()
        show_table(LATELY, lately(answer["lately"]))


def _ask(session: Session, subject: Subject, vo: str | None, queue: str | None) -> Any:
    from urllib.parse import quote, urlencode

    if subject.kind == "queue":
        return session.get(
            f"/v1/queues/why?{urlencode({'path': subject.name, **({'vo': vo} if vo else {})})}"
        )
    there = f"?{urlencode({'queue': queue})}" if queue else ""
    return session.get(f"/v1/{subject.kind}s/{quote(subject.name, safe='')}/why{there}")


def _titled(subject: Subject, answer: Mapping[str, Any]) -> str:
    if subject.kind == "queue":
        return f"Queue {answer['site']}/{answer['ce']}/{answer['queue']} for VO {answer['vo']}"
    return f"{subject.kind.capitalize()} {answer['id']}"


def tell(answer: Mapping[str, Any], who: str) -> None:
    """The whole answer for people; `who` it is about."""
    _headline(answer, who)
    if answer.get("chain"):
        click.echo()
        show_table(COLUMNS, [_row(step) for step in answer["chain"]])
    for line in explanation(answer):
        say(line)


def _headline(answer: Mapping[str, Any], who: str) -> None:
    verdict = answer.get("verdict") or answer["state"]
    cell = state(verdict)
    text = plain(cell.text).upper() if answer.get("verdict") else plain(cell.text)
    if is_terminal(sys.stdout) and cell.style:
        text = click.style(text, fg=cell.style.rpartition(" ")[2], bold=True)
    click.echo(f"{plain(who)}: {text}. {plain(answer['summary'])}")
    who_can = answer.get("who") or "no one"
    if answer.get("verdict") and answer["verdict"] != "now" and not who_can.startswith("no "):
        click.echo(f"Who can change that: {plain(answer['who'])}.")


def _row(step: Mapping[str, Any]) -> list[str]:
    age = step.get("age_seconds")
    return [step["step"], HOLDS[step["holds"]], step["text"], "" if age is None else span(age)]


def explanation(answer: Mapping[str, Any]) -> Iterator[str]:
    """What follows the table, line by line; nothing for what the answer does not tell."""
    nearest = (answer.get("queues") or {}).get("nearest") or []
    if nearest:
        yield ""
        yield "Suggestions:"
        total = answer["queues"]["total"]
        for one in nearest:
            yield from _change(one, total)
    if isinstance(answer.get("queue"), Mapping):
        yield from in_queue(answer["queue"])
    yield from smallest_changes(answer.get("task_queues") or answer.get("work"))
    if answer.get("director"):
        yield ""
        yield from _director(answer["director"])


def _change(one: Mapping[str, Any], total: int) -> Iterator[str]:
    example = one["example"]
    where = "/".join(example[part] for part in ("site", "ce", "queue"))
    yield f"  {one['text']}: {one['queues']:,} of {counted(total, 'queue')}, for instance {where}"
    for step in one["steps"]:
        if len(step["options"]) > 1:
            options = ", ".join(f"{option['value']} ({option['queues']:,})" for option in step["options"])
            yield f"    {step['criterion']}: {options}"


def _director(director: Mapping[str, Any]) -> Iterator[str]:
    at = director["decided_seconds_ago"]
    yield f"Director ({'never decided' if at is None else f'decided {span(at)} ago'}):"
    yield from (f"  {line}" for line in director["lines"])


COMMANDS = (why,)
