"""`lode change`: other values for attributes of jobs that wait or are held."""

from __future__ import annotations

from typing import Any

import click

from lodesman.base.errors import SyntaxFault
from lodesman.user.cli.actions import confirm, show_outcome
from lodesman.user.cli.arguments import JOB_RANGES, Range, merged
from lodesman.user.cli.choosing import choice_options, chosen, taken_choice
from lodesman.user.cli.faults import CONFLICT, FAILED
from lodesman.user.cli.session import Session, with_session
from lodesman.wire import calls
from lodesman.wire.jobs import ChangeBody
from lodesman.wire.vocabulary import JobState


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[JOB|RANGE]... ATTRIBUTE=VALUE...")
@choice_options
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the jobs.")
@click.option(
    "--hold-if-impossible", is_flag=True, help="Also if no queue could run them: they are Held then."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Change nothing; say what would be refused, and how many would be changed.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, also for more than 100 jobs.")
@with_session
def change(session: Session, /, *, words: tuple[str, ...], yes: bool, **options: Any) -> int:
    """Change jobs that wait or are held.

    Jobs are named, or chosen with --job-group, --where and so on among your own that wait or are held; all that are given
    must hold.

    A VALUE is written as in JDL; what is none is a text. ATTRIBUTE= takes an attribute away. The new description is judged
    as at submission, by the job class as it was then, or by the JobClass that is given; if it does not allow all of it,
    nothing is changed.
    """
    ranges, attributes = _parse(words)
    wanted = chosen(session, ranges, taken_choice(options), (JobState.WAITING, JobState.HELD))
    if not yes and not options["dry_run"]:
        confirm("change", wanted)
    body = ChangeBody([(one.first, one.last) for one in wanted], attributes, **options)
    answer = session.call(calls.CHANGE_JOBS, body=body)
    missing = any(not one.changed + one.refused for one in answer.ranges or [])
    code = FAILED if missing and answer.changed else CONFLICT if answer.refused and not answer.changed else 0
    session.exit_if_json(answer, code)
    show_outcome(answer, "would be changed" if answer.dry_run else "changed")
    return code


def _parse(words: tuple[str, ...]) -> tuple[tuple[Range, ...], dict[str, Any]]:
    """Jobs, and attributes with their values (None: taken away). Raises UsageError."""
    ranges = [JOB_RANGES.convert(word, None, None) for word in words if "=" not in word]
    attributes: dict[str, Any] = {}
    for name, _, text in (word.partition("=") for word in words if "=" in word):
        if not name.strip() or name in attributes:
            raise click.UsageError(
                f"{name or '='} is given twice." if name else "The name before = is missing."
            )
        attributes[name.strip()] = _value(text)
    if not attributes:
        raise click.UsageError("Name at least one ATTRIBUTE=VALUE.")
    return merged(tuple(ranges)), attributes


def _value(text: str) -> Any:
    """A value of JDL, or else the text itself; None for nothing."""
    from lodesman.languages.jobs import read_description

    if not text.strip():
        return None
    try:
        found = read_description(f"Value = {text};", form="jdl").record
    except SyntaxFault:
        return text
    return found["Value"] if found.keys() == {"Value"} else text
