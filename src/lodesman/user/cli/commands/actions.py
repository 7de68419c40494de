"""`lode kill`, `hold`, `release`, `reschedule`, `delete`, `change`, `share` and `unshare`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import click

from lodesman.base.errors import SyntaxFault
from lodesman.user.cli.arguments import JOB_RANGES, Range, merge_ranges, total
from lodesman.user.cli.faults import CONFLICT, FAILED
from lodesman.user.cli.selection import (
    CHOICES,
    Question,
    choice_options,
    choose_jobs,
    fetch_submissions,
    take_choice,
)
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table
from lodesman.user.cli.words import counted, joined
from lodesman.wire import job_calls
from lodesman.wire.job_queries import (
    Action,
    ControlBody,
    ControlQuery,
    ReadersBody,
    Selection,
    SubmissionAt,
    SubmissionReader,
    SubmissionReaders,
    SubmissionRow,
)
from lodesman.wire.jobs import ChangeBody, Controlled, RangeControlled
from lodesman.wire.nodes import utc
from lodesman.wire.vocabulary import JobState

_ASK_ABOVE: Final = 100
_ALL: Final = 1_000_000_000
_ENDED: Final = frozenset({JobState.DONE, JobState.FAILED, JobState.KILLED, JobState.DELETED})
# In which states an action may take jobs; Held may be Waiting in a task queue that nothing can run, and Matched one that its
# pilot did not begin.
CONCERNED: Final[Mapping[Action, frozenset[JobState]]] = MappingProxyType({
    "kill": frozenset(JobState) - _ENDED,
    "hold": frozenset({JobState.WAITING, JobState.MATCHED, JobState.HELD}),
    "release": frozenset({JobState.HELD}),
    "reschedule": frozenset(JobState) - {JobState.WAITING, JobState.HELD, JobState.DONE, JobState.DELETED},
    "delete": (_ENDED | {JobState.WAITING, JobState.HELD, JobState.MATCHED}) - {JobState.DELETED},
})  # fmt: skip
_CHOICE_HELP: Final = f"""

Jobs are named, or chosen with {CHOICES}; all that are given must
hold. Chosen are your own jobs, or those of --owner. --dry-run only says how many they are."""


def _command(action: Action, done: str, description: str) -> click.Command:
    @click.command(action, help=description + _CHOICE_HELP)
    @click.argument("ranges", nargs=-1, type=JOB_RANGES, metavar="[JOB|RANGE]...")
    @choice_options
    @click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the job.")
    @click.option("--dry-run", is_flag=True, help="Change nothing; say how many jobs are meant.")
    @click.option("-y", "--yes", is_flag=True, help=f"Do not ask, also for more than {_ASK_ABOVE} jobs.")
    @with_session
    def command(session: Session, /, *, ranges: tuple[Any, ...], **options: Any) -> int:
        named, choice = merge_ranges(ranges), take_choice(options)
        if not named and choice is None:
            raise click.UsageError(f"Name jobs, or choose them by {CHOICES}.", click.get_current_context())
        if options["dry_run"]:
            return _preview(session, ControlBody(action, _id_pairs(named), "", choice), named, done)
        if not options["yes"]:
            _ask(session, action, named, choice)
        answer = session.control(ControlBody(action, _id_pairs(named), options["reason"], choice))
        code = _exit_code(answer)
        session.exit_if_json(answer, code)
        _show_outcome(answer, done)
        if choice is not None and not answer.changed + answer.refused:
            note(
                "No such job." if choice.owner else "You have no such job. Jobs of other users: --owner NAME."
            )
        return code

    return command


def _meant(
    session: Session, action: Action, named: Sequence[Range], choice: Selection | None
) -> tuple[int, str]:
    """At most how many, and which, in words."""
    if named or choice is None:
        return total(named), ", ".join(map(str, named[:3])) + ("..." if len(named) > 3 else "")
    rows: list[SubmissionRow] = []
    for number in choice.submissions or [0]:
        question = Question(
            states=tuple(choice.states), name=choice.name, owner=choice.owner, submission=number, limit=_ALL,
            job_group=choice.job_group, job_class=choice.job_class, where=tuple(choice.where),
        )  # fmt: skip
        rows += fetch_submissions(session, question)
    states = CONCERNED[action].intersection(choice.states or JobState)
    jobs = [sum(row.states.get(state, 0) for state in states) for row in rows]
    return sum(jobs), f"of {counted(sum(map(bool, jobs)), 'submission')}"


def _id_pairs(named: Sequence[Range]) -> list[tuple[int, int]]:
    return [(span.first, span.last) for span in named]


def _exit_code(answer: Controlled) -> int:
    missing = any(not part.changed + part.refused for part in answer.ranges or [])
    failed = FAILED if missing and answer.changed else 0
    return CONFLICT if answer.refused and not answer.changed else failed


def _preview(session: Session, body: ControlBody, named: Sequence[Range], done: str) -> int:
    if not named:
        jobs, which = _meant(session, body.action, named, body.selection)
        session.exit_if_json({"dry_run": True, "jobs": jobs})
        say(f"{body.action} would mean up to {counted(jobs, 'job')} ({which}). Nothing was changed.")
        return 0
    answer = session.control(body, ControlQuery(dry_run=True))
    code = _exit_code(answer)
    session.exit_if_json({"dry_run": True, "jobs": answer.changed}, code)
    _show_outcome(answer, f"would be {done}")
    say("Nothing was changed.")
    return code


def _ask(session: Session, action: Action, named: tuple[Range, ...], choice: Selection | None) -> None:
    if sys.stdin.isatty() and sys.stderr.isatty():
        _confirm_many(action, *_meant(session, action, named, choice))


def _show_outcome(answer: Controlled, done: str) -> None:
    each = answer.ranges or []
    for part in each:
        _show_range(part, done)
    if answer.changed or not answer.refused:
        click.echo(f"{counted(answer.changed, 'job')} {done}.")
    done = done.removeprefix("would be ")
    examples = [] if each else answer.examples[:5]
    for example in examples:
        note(f"job {example.id} was not {done}: {example.reason}.")
    if answer.refused > len(examples):
        note(f"In all {counted(answer.refused, 'job')} could not be {done}.")


def _show_range(part: RangeControlled, done: str) -> None:
    name = Range(part.first, part.last)
    if part.changed:
        click.echo(f"{name}: {done}" if name.size == 1 else f"{name}: {counted(part.changed, 'job')} {done}")
    if part.refused:
        which = f"job {name} was" if name.size == 1 else f"of {name}, {counted(part.refused, 'job')} could"
        note(f"{which} not{'' if name.size == 1 else ' be'} {done}: {part.reason}.")
    elif part.reason:
        note(part.reason)


def _confirm(action: str, named: tuple[Range, ...]) -> None:
    if sys.stdin.isatty() and sys.stderr.isatty():
        _confirm_many(
            action, total(named), ", ".join(map(str, named[:3])) + ("..." if len(named) > 3 else "")
        )


def _confirm_many(action: str, count: int, which: str) -> None:
    if count > _ASK_ABOVE:
        click.confirm(f"{action.capitalize()} up to {counted(count, 'job')} ({which})?", abort=True, err=True)


kill = _command(
    "kill",
    "killed",
    "Kill jobs, waiting or running.\n\nA running payload is ended with its whole process tree.",
)
hold = _command("hold", "held", "Hold waiting jobs until they are released.")
release = _command("release", "released", "Let held jobs wait for a pilot again.")
reschedule = _command(
    "reschedule",
    "rescheduled",
    "Send failed, killed or running jobs back to their task queue for another attempt.",
)
delete = _command("delete", "deleted", "Delete jobs that have ended, or that have not begun.")


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
    ranges, attributes = _parse_changes(words)
    meant = choose_jobs(session, ranges, take_choice(options), (JobState.WAITING, JobState.HELD))
    if not yes and not options["dry_run"]:
        _confirm("change", meant)
    body = ChangeBody([(span.first, span.last) for span in meant], attributes, **options)
    answer = session.call(job_calls.CHANGE_JOBS, body=body)
    missing = any(not part.changed + part.refused for part in answer.ranges or [])
    code = FAILED if missing and answer.changed else CONFLICT if answer.refused and not answer.changed else 0
    session.exit_if_json(answer, code)
    _show_outcome(answer, "would be changed" if answer.dry_run else "changed")
    return code


def _parse_changes(words: tuple[str, ...]) -> tuple[tuple[Range, ...], dict[str, Any]]:
    """Values by attribute; None: removed."""
    ranges = [JOB_RANGES.convert(word, None, None) for word in words if "=" not in word]
    attributes: dict[str, Any] = {}
    for name, _, text in (word.partition("=") for word in words if "=" in word):
        if not name.strip() or name in attributes:
            raise click.UsageError(
                f"{name or '='} is given twice." if name else "The name before = is missing."
            )
        attributes[name.strip()] = _jdl_value(text)
    if not attributes:
        raise click.UsageError("Name at least one ATTRIBUTE=VALUE.")
    return merge_ranges(tuple(ranges)), attributes


def _jdl_value(text: str) -> Any:
    """JDL, else the text itself; None for nothing."""
    from lodesman.languages.jobs import read_description

    if not text.strip():
        return None
    try:
        record = read_description(f"Value = {text};", form="jdl").record
    except SyntaxFault:
        return text
    return record["Value"] if record.keys() == {"Value"} else text


_submission = click.argument("submission", type=click.IntRange(1), metavar="SUBMISSION")


@click.command()
@_submission
@click.argument("readers", nargs=-1, metavar="[USER|@GROUP]...")
@with_session
def share(session: Session, /, *, submission: int, readers: tuple[str, ...]) -> None:
    """Let users and groups of your VO read a submission; without any, show who may.

    They see its jobs, why these wait, their descriptions (values of Environment are hidden), logs and output, and can change
    nothing. It holds at once, until: lode unshare SUBMISSION USER. See what is shared with you: lode status --shared
    """
    if not readers:
        answer = session.answer(job_calls.READERS, SubmissionAt(submission))
        show_table(("reader", "since", "by"), map(_reader, answer.readers))
        if not answer.readers:
            note(f"Submission {submission} is not shared.")
        return
    _say_readers(session.answer(job_calls.SET_READERS, body=ReadersBody(submission, list(readers))))


@click.command()
@_submission
@click.argument("readers", nargs=-1, required=True, metavar="USER|@GROUP...")
@with_session
def unshare(session: Session, /, *, submission: int, readers: tuple[str, ...]) -> None:
    """Let users and groups read a submission no more. It holds at once; what they have fetched stays with them."""
    _say_readers(session.answer(job_calls.SET_READERS, body=ReadersBody(submission, list(readers), "remove")))


def _say_readers(answer: SubmissionReaders) -> None:
    readers = joined(row.reader for row in answer.readers)
    say(f"Submission {answer.submission} is {f'shared with: {readers}' if answer.readers else 'not shared'}.")


def _reader(row: SubmissionReader) -> list[Cell]:
    return [row.reader, utc(row.at), row.by]
