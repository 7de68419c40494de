"""`lode status`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import click

from lodesman.user.cli import job_columns
from lodesman.user.cli.arguments import (
    JOB_RANGES,
    PAST,
    Range,
    filter_option,
    limit_option,
    merge_ranges,
    states_option,
    where_option,
)
from lodesman.user.cli.columns import Columns, ListShape, shaped
from lodesman.user.cli.selection import Question, fetch, fetch_submissions
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import PORTION, WatchedList, emit_json_rows, is_terminal, note, say, watch_list
from lodesman.user.cli.words import FINAL, states
from lodesman.wire import job_calls
from lodesman.wire.job_queries import CountsQuery
from lodesman.wire.jobs import Job
from lodesman.wire.vocabulary import JobState, MainReason

# To sort rows all of them are kept in memory.
_MOST_SORTED = 50_000
R = TypeVar("R")
_OF_OTHERS = "; --all shows those of others that you may see."


@click.command()
@click.argument("ranges", nargs=-1, type=JOB_RANGES, metavar="[JOB|RANGE]...")
@click.option("--jobs", "each", is_flag=True, help="One row for each job.")
@states_option("With jobs in this state")
@filter_option("--name", about="With this name in the description; * and ? for any text or letter.")
@click.option("--submission", type=click.IntRange(1), metavar="N", help="Only this submission.")
@filter_option("--owner", about="Of this user, if you may see them.")
@filter_option("--group", about="Of this group.")
@filter_option("--job-group", about="With this JobGroup; * and ? as in a name.")
@filter_option("--class", "job_class", about="Of this class, or CLASS.VARIANT; * and ?.")
@where_option("With this attribute")
@filter_option("--site", about="Whose last attempt was at this site.")
@filter_option("--cause", about="Whose last attempt failed by this cause.")
@click.option(
    "--reason", type=click.Choice([reason.value for reason in MainReason]), metavar="WORD",
    callback=lambda _context, _option, word: word or "",
    help="That wait for this reason (see: lode tq reasons).",
)  # fmt: skip
@click.option(
    "--since",
    type=PAST,
    metavar="TIME",
    help='Submitted since: 2h30m, 7d, today, 08:00, "2026-12-01 08:00".',
)
@click.option("--until", type=PAST, metavar="TIME", help="Submitted before.")
@click.option(
    "--all", "everyone", is_flag=True, help="Jobs of all users that you may see, not only your own."
)
@click.option("--shared", is_flag=True, help="Only what others share with you (lode share).")
@limit_option(100, 1_000_000)
@click.option("--start", is_flag=True, help="Estimate when waiting jobs start (one row for each job).")
@click.option("--watch", is_flag=True, help="Show again every two seconds until all have ended.")
@shaped(job_columns.JOBS, job_columns.SUBMISSIONS)
@with_session
def status(
    session: Session, /, *, ranges: tuple[Any, ...], each: bool, watch: bool, shape: ListShape, **options: Any
) -> None:
    """Show your submissions, the newest first, each with the states of its jobs.

    In PROGRESS # is done, x failed or killed, > has a pilot, . waits, h is held. With a JOB or RANGE (12-40 or 12,15,20-22),
    or --jobs: one row for each job.
    """
    question = Question(ranges=merge_ranges(ranges), **options)
    each = each or question.start or bool(question.ranges)
    shape.check(job_columns.JOBS if each else job_columns.SUBMISSIONS)
    if shape.sort and question.limit > _MOST_SORTED and not session.as_json:
        raise click.UsageError(
            f"--sort needs --limit {_MOST_SORTED} or less. For more: --format csv, and the command sort."
        )
    if watch:
        if session.as_json or not is_terminal(sys.stdout) or not shape.is_table:
            raise click.UsageError("--watch needs a terminal.")
        frame = _job_frame if each else _submission_frame
        watch_list(lambda: frame(session, question, shape))
    elif each:
        _list_jobs(session, question, shape)
    else:
        _list_submissions(session, question, shape)


# --- submissions --------------------------------------------------------------------------------------------------------


def _none(question: Question) -> str:
    if question.shared:
        return "Nothing such is shared with you."
    if question.is_narrow:
        is_own = not question.everyone and not question.owner and not question.ranges
        return (
            f"None of your jobs matches all filters{_OF_OTHERS}" if is_own else "No job matches all filters."
        )
    return "There are no jobs." if question.everyone else f"You have no jobs{_OF_OTHERS}"


def _list_submissions(session: Session, question: Question, shape: ListShape) -> None:
    listed, counts = fetch_submissions(session, question), Counter[str]()
    rows = job_columns.count_states(listed, counts)
    if session.as_json:
        emit_json_rows("submissions", rows, lambda: {"more": listed.more, "counts": counts})
        return
    shape.show(
        job_columns.SUBMISSIONS,
        rows,
        _usual_submissions(question),
    )
    if not listed.count:
        note(_none(question))
    if shape.is_table:
        say(f"{'In these' if listed.more or question.is_narrow else 'In all'}: {states(counts)}.")
        if counts[JobState.HELD]:
            note(f"Why jobs are Held: lode status --jobs --state Held{' --all' if question.everyone else ''}")
    if listed.more:
        note(f"There are older ones: --limit {question.limit * 10}.")


def _usual_submissions(question: Question) -> Sequence[str]:
    return job_columns.usual_of_submissions(owners=question.everyone, shared=question.shared)


def _submission_frame(session: Session, question: Question, shape: ListShape) -> WatchedList:
    rows = list(fetch_submissions(session, question))
    counts, has_ended = job_columns.total_of(rows), all(map(job_columns.has_ended, rows))
    return _frame(
        shape, job_columns.SUBMISSIONS, _usual_submissions(question), rows, counts, has_ended=has_ended
    )


def _frame(
    shape: ListShape, columns: Columns[R], usual: Sequence[str], rows: Sequence[R], counts: Counter[str], *, has_ended: bool
) -> WatchedList:  # fmt: skip
    shown = shape.pick_columns(columns, usual)
    cells = [[column.cell(row, utc=shape.utc) for column in shown] for row in shape.sort_rows(columns, rows)]
    return WatchedList([column.title for column in shown], cells, f"{states(counts)}.", has_ended)


# --- jobs ---------------------------------------------------------------------------------------------------------------


def _list_jobs(session: Session, question: Question, shape: ListShape) -> None:
    listed = fetch(session, question)
    if session.as_json:
        emit_json_rows("jobs", listed, lambda: {"more": listed.more, **_counts(session, question)})
        return
    rows = iter(listed)
    first = list(islice(rows, PORTION))
    if not first:
        is_named = question.ranges and not question.is_narrow
        note("There is no such job." if is_named else _none(question))
    shape.show(job_columns.JOBS, chain(first, rows), _usual_jobs(question, first))
    if shape.is_table and (counts := _counts(session, question)):
        say(f"In all: {states(counts['counts'])}.")
    if listed.more and listed.last and question.ranges:
        rest = Range(listed.last.id + 1, question.ranges[-1].last)
        note(f"There are more: lode status {rest}, or --limit {question.limit * 10}.")
    elif listed.more:
        note(f"There are older ones: --limit {question.limit * 10}.")


def _counts(session: Session, question: Question) -> dict[str, Counter[str]]:
    """Jobs by state, under `counts`; empty if only some are listed."""
    if question.ranges or question.is_narrow_beside_group:
        return {}
    counts = Counter[str]()
    for row in session.call(job_calls.JOB_COUNTS, CountsQuery(own=not question.everyone)).counts:
        if question.group in ("", row.group):
            counts[row.state] += row.jobs
    return {"counts": counts}


def _usual_jobs(question: Question, rows: Sequence[Job]) -> Sequence[str]:
    owners = len({row.owner for row in rows}) > 1 or question.everyone or question.shared
    return job_columns.usual_of_jobs(owners=owners, start=question.start)


def _job_frame(session: Session, question: Question, shape: ListShape) -> WatchedList:
    rows = list(fetch(session, question))
    counts, has_ended = Counter(row.state.value for row in rows), all(row.state in FINAL for row in rows)
    return _frame(shape, job_columns.JOBS, _usual_jobs(question, rows), rows, counts, has_ended=has_ended)
