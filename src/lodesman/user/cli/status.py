"""`lode status`: submissions with the states of their jobs, or jobs one by one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, TypeVar

import click
from msgspec.structs import replace

from lodesman.user.cli import job_columns, submissions
from lodesman.user.cli.arguments import (
    JOB_RANGES,
    Range,
    filter_option,
    limit_option,
    merged,
    states_option,
    where_option,
)
from lodesman.user.cli.columns import ListShape, shaped
from lodesman.user.cli.moments import PAST
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import PORTION, emit_json_rows, is_terminal, note, say
from lodesman.user.cli.watching import WatchedList, watch_list
from lodesman.user.cli.words import FINAL, STATES, states
from lodesman.wire import calls
from lodesman.wire.job_queries import CountsQuery, JobsQuery, SubmissionRow, SubmissionsQuery
from lodesman.wire.jobs import Job
from lodesman.wire.requests import MOST_ID
from lodesman.wire.vocabulary import JobState, MainReason

_PAGE = 1_000
# To sort rows all of them are kept in memory.
_MOST_SORTED = 50_000
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which jobs, or submissions, are asked for. Times in UNIX seconds."""

    ranges: tuple[Range, ...] = ()
    states: tuple[str, ...] = ()
    group: str = ""
    reason: str = ""
    name: str = ""
    owner: str = ""
    site: str = ""
    cause: str = ""
    job_group: str = ""
    job_class: str = ""
    where: tuple[str, ...] = ()
    submission: int | None = None
    since: float | None = None
    until: float | None = None
    everyone: bool = False
    shared: bool = False
    limit: int = 100
    start: bool = False

    def query(self, within: Range | None, limit: int) -> JobsQuery:
        """The server's parameters for one range, or for all jobs; ranges may name jobs of others that one may see."""
        wanted = self.states or ([] if self.ranges else [one for one in STATES if one != JobState.DELETED])
        first, last = within or (1, MOST_ID)
        everyone = self.everyone or bool(self.ranges)
        return JobsQuery(
            first, last, limit, everyone, within is None, state=",".join(wanted), start=self.start,
            **self.filters(),
        )  # fmt: skip

    def submissions(self) -> SubmissionsQuery:
        """The server's parameters for submissions."""
        limit = min(self.limit + 1, _PAGE)
        return SubmissionsQuery(all=self.everyone, state=",".join(self.states), limit=limit, **self.filters())

    def filters(self) -> dict[str, Any]:
        """What both have."""
        texts = ("group", "reason", "name", "owner", "site", "cause", "job_group", "job_class")
        return {
            **{name: getattr(self, name) for name in texts},
            "where": list(self.where),
            "submission": self.submission or 0,
            "shared": self.shared,
            "since": 0 if self.since is None else max(0, int(self.since)),
            "until": MOST_ID if self.until is None else max(0, int(self.until)),
        }

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves jobs out."""
        return bool(self.group) or self.is_narrow_beside_group

    @property
    def is_narrow_beside_group(self) -> bool:
        """Whether it leaves jobs out for another reason than their group, which counts know."""
        return bool(self.states) or self.filters() | {"group": ""} != _NO_FILTERS


_NO_FILTERS = Question().filters()
_OF_OTHERS = "; --all shows those of others that you may see."


@dataclass(slots=True)
class Some(Generic[R]):
    """At most `limit` rows, asked for as they are taken: once. Then `more`: whether there are others after the `last`."""

    source: Iterator[R]
    limit: int
    more: bool = True
    count: int = 0
    last: R | None = None

    def __iter__(self) -> Iterator[R]:
        for row in self.source:
            if self.count == self.limit:
                return
            self.count, self.last = self.count + 1, row
            yield row
        self.more = False


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
    "--reason", type=click.Choice([one.value for one in MainReason]), metavar="WORD",
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
@shaped(job_columns.COLUMNS, submissions.COLUMNS)
@with_session
def status(
    session: Session, /, *, ranges: tuple[Any, ...], each: bool, watch: bool, shape: ListShape, **options: Any
) -> None:
    """Show your submissions, the newest first, each with the states of its jobs.

    In PROGRESS # is done, x failed or killed, > has a pilot, . waits, h is held. With a JOB or RANGE (12-40 or 12,15,20-22),
    or --jobs: one row for each job.
    """
    question = Question(ranges=merged(ranges), **options)
    each = each or question.start or bool(question.ranges)
    shape.check(job_columns.COLUMNS if each else submissions.COLUMNS)
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


def fetch_submissions(session: Session, question: Question) -> Some[SubmissionRow]:
    """At most `limit` submissions."""
    return Some(_submission_pages(session, question.submissions()), question.limit)


def _submission_pages(session: Session, query: SubmissionsQuery) -> Iterator[SubmissionRow]:
    while True:
        page = session.call(calls.SUBMISSIONS, query)
        yield from page.submissions
        if not page.more:
            return
        query = replace(query, after=page.cursor)


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
    found, counts = fetch_submissions(session, question), Counter[str]()
    rows = submissions.counting(found, counts)
    if session.as_json:
        emit_json_rows("submissions", rows, lambda: {"more": found.more, "counts": counts})
        return
    shape.show(submissions.COLUMNS, rows, _usual_submissions(question))
    if not found.count:
        note(_none(question))
    if shape.is_table:
        say(f"{'In these' if found.more or question.is_narrow else 'In all'}: {states(counts)}.")
        if counts[JobState.HELD]:
            note(f"Why jobs are Held: lode status --jobs --state Held{' --all' if question.everyone else ''}")
    if found.more:
        note(f"There are older ones: --limit {question.limit * 10}.")


def _usual_submissions(question: Question) -> Sequence[str]:
    if question.shared:
        return submissions.USUAL_OF_SHARED
    return submissions.USUAL_OF_ALL if question.everyone else submissions.USUAL


def _submission_frame(session: Session, question: Question, shape: ListShape) -> WatchedList:
    rows = list(fetch_submissions(session, question))
    columns = shape.chosen(submissions.COLUMNS, _usual_submissions(question))
    return WatchedList(
        [one.title for one in columns],
        [
            [one.cell(row, utc=shape.utc) for one in columns]
            for row in shape.ordered(submissions.COLUMNS, rows)
        ],
        f"{states(submissions.total(rows))}.",
        all(map(submissions.has_ended, rows)),
    )


# --- jobs ---------------------------------------------------------------------------------------------------------------


def fetch(session: Session, question: Question) -> Some[Job]:
    """At most `limit` jobs. It raises NotFound if a single job named is not there."""
    return Some(_job_pages(session, question), question.limit)


def _job_pages(session: Session, question: Question) -> Iterator[Job]:
    for one in question.ranges or (None,):
        found = False
        for job in session.jobs(question.query(one, question.limit + 1)):
            found = True
            yield job
        if not found and one is not None and one.size == 1 and not question.is_narrow:
            session.refuse_missing(one)


def _list_jobs(session: Session, question: Question, shape: ListShape) -> None:
    found = fetch(session, question)
    if session.as_json:
        emit_json_rows("jobs", found, lambda: {"more": found.more, **_counts(session, question)})
        return
    rows = iter(found)
    first = list(islice(rows, PORTION))
    if not first:
        is_named = question.ranges and not question.is_narrow
        note("There is no such job." if is_named else _none(question))
    shape.show(job_columns.COLUMNS, chain(first, rows), _usual_jobs(question, first))
    if shape.is_table and (counts := _counts(session, question)):
        say(f"In all: {states(counts['counts'])}.")
    if found.more and found.last and question.ranges:
        rest = Range(found.last.id + 1, question.ranges[-1].last)
        note(f"There are more: lode status {rest}, or --limit {question.limit * 10}.")
    elif found.more:
        note(f"There are older ones: --limit {question.limit * 10}.")


def _counts(session: Session, question: Question) -> dict[str, Counter[str]]:
    """`counts` of one's own jobs, or of all that one may see, by state; empty for a choice of them."""
    if question.ranges or question.is_narrow_beside_group:
        return {}
    counts = Counter[str]()
    for row in session.call(calls.JOB_COUNTS, CountsQuery(own=not question.everyone)).counts:
        if question.group in ("", row.group):
            counts[row.state] += row.jobs
    return {"counts": counts}


def _usual_jobs(question: Question, rows: Sequence[Job]) -> Sequence[str]:
    owners = len({row.owner for row in rows}) > 1 or question.everyone or question.shared
    return job_columns.usual(owners=owners, start=question.start)


def _job_frame(session: Session, question: Question, shape: ListShape) -> WatchedList:
    rows = list(fetch(session, question))
    columns = shape.chosen(job_columns.COLUMNS, _usual_jobs(question, rows))
    return WatchedList(
        [one.title for one in columns],
        [
            [one.cell(row, utc=shape.utc) for one in columns]
            for row in shape.ordered(job_columns.COLUMNS, rows)
        ],
        f"{states(Counter(row.state.value for row in rows))}.",
        all(row.state in FINAL for row in rows),
    )
