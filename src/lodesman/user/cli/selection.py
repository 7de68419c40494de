"""Which jobs are meant: options, the question to the server, its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Generic, TypeVar

import click
from msgspec.structs import replace

from lodesman.base.errors import NotFound, TooLarge
from lodesman.user.access.selecting import join_ranges
from lodesman.user.cli.arguments import Range, filter_option, several, states_option, where_option
from lodesman.user.cli.session import Session
from lodesman.user.cli.words import STATES
from lodesman.wire import job_calls
from lodesman.wire.job_queries import JobsQuery, Selection, SubmissionRow, SubmissionsQuery
from lodesman.wire.jobs import Job
from lodesman.wire.requests import MOST_ID
from lodesman.wire.vocabulary import JobState

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
CHOICES: Final = "--state, --name, --job-group, --class, --where, --submission"
_OPTIONS: Final = (
    states_option("Jobs in this state"),
    filter_option("--name", about="Jobs with this name; * and ? for any text or letter."),
    filter_option("--job-group", about="Jobs with this JobGroup; * and ? as in a name."),
    filter_option("--class", "job_class", about="Jobs of this class, or CLASS.VARIANT; * and ?."),
    where_option("Jobs with this attribute"),
    several(
        "--submission", "submissions", type=click.IntRange(1), metavar="N", help="Jobs of this submission"
    ),
    filter_option("--owner", about="Jobs of this user (administrators)."),
)
_NAMES: Final = ("states", "name", "job_group", "job_class", "where", "submissions", "owner")
_ALL: Final = 1_000_000_000
_MOST_RANGES: Final = 1_000


def choice_options(command: F) -> F:
    """Give a command the options that choose jobs."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def take_choice(options: dict[str, Any]) -> Selection | None:
    """None if none of these options is given."""
    values = {name: options.pop(name) for name in _NAMES}
    choice = Selection(
        [JobState(state) for state in values["states"]], values["name"], list(values["submissions"]), values["owner"],
        values["job_group"], values["job_class"], list(values["where"]),
    )  # fmt: skip
    return None if choice == Selection() else choice


def choose_jobs(
    session: Session, ranges: tuple[Range, ...], choice: Selection | None, states: Iterable[JobState] = ()
) -> tuple[Range, ...]:
    """The chosen jobs in these ranges, or among one's own; without a choice the ranges. `states`: if the choice names none.

    Raises UsageError if nothing is named, NotFound if no job is chosen.
    """
    if choice is None:
        if not ranges:
            raise click.UsageError(f"Name jobs, or choose them by {CHOICES}.", click.get_current_context())
        return ranges
    among = tuple(
        choice.states or states or (JobState(state) for state in STATES if state != JobState.DELETED)
    )
    spans: list[Range] = []
    numbers: Sequence[int | None] = choice.submissions or (None,)
    for number in numbers:
        question = Question(
            ranges=ranges, states=among, name=choice.name, owner=choice.owner, submission=number, limit=_ALL,
            job_group=choice.job_group, job_class=choice.job_class, where=tuple(choice.where),
            everyone=number is not None and not choice.owner,
        )  # fmt: skip
        for job in fetch(session, question):
            _add_id(spans, job.id)
    return _checked_ranges(spans, choice)


def _add_id(spans: list[Range], number: int) -> None:
    """Lists are in order: a job mostly follows the last."""
    if spans and spans[-1].first - 1 <= number <= spans[-1].last + 1:
        spans[-1] = Range(min(spans[-1].first, number), max(spans[-1].last, number))
    else:
        spans.append(Range(number, number))


def _checked_ranges(spans: Sequence[Range], choice: Selection) -> tuple[Range, ...]:
    if not spans:
        who = f"{choice.owner} has" if choice.owner else "You have"
        hint = "See: lode status --jobs, with the same options." + (
            "" if choice.owner or choice.submissions else " Jobs of other users: --owner NAME."
        )
        raise NotFound(f"{who} no such job.", hint=hint)
    merged = join_ranges(spans, beside=True)
    if len(merged) > _MOST_RANGES:
        raise TooLarge(
            f"The chosen jobs are in {len(merged):,} separate ranges of ids; the maximum number is {_MOST_RANGES:,}.",
            hint="Choose fewer at once, as with --submission N.",
        )
    return tuple(merged)


# --- questions ----------------------------------------------------------------------------------------------------------

_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which jobs or submissions are asked for."""

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
    since: float | None = None  # UNIX seconds, as `until`
    until: float | None = None
    everyone: bool = False
    shared: bool = False
    limit: int = 100
    start: bool = False

    def query(self, within: Range | None, limit: int) -> JobsQuery:
        """For one range, or for all jobs."""
        states = self.states or (
            [] if self.ranges else [state for state in STATES if state != JobState.DELETED]
        )
        first, last = within or (1, MOST_ID)
        everyone = self.everyone or bool(self.ranges)
        return JobsQuery(
            first, last, limit, everyone, within is None, state=",".join(states), start=self.start,
            **self.filters(),
        )  # fmt: skip

    def submissions(self) -> SubmissionsQuery:
        """The query for submissions."""
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
        """By more than the group, which counts know."""
        return bool(self.states) or self.filters() | {"group": ""} != _NO_FILTERS


_NO_FILTERS = Question().filters()


@dataclass(slots=True)
class LimitedRows(Generic[R]):
    """At most `limit` rows, fetched once, as they are taken."""

    source: Iterator[R]
    limit: int
    more: bool = True  # afterwards: whether there are rows behind the last
    count: int = 0
    last: R | None = None

    def __iter__(self) -> Iterator[R]:
        for row in self.source:
            if self.count == self.limit:
                return
            self.count, self.last = self.count + 1, row
            yield row
        self.more = False


def fetch_submissions(session: Session, question: Question) -> LimitedRows[SubmissionRow]:
    """At most `limit` submissions."""
    return LimitedRows(_submission_pages(session, question.submissions()), question.limit)


def _submission_pages(session: Session, query: SubmissionsQuery) -> Iterator[SubmissionRow]:
    while True:
        page = session.call(job_calls.SUBMISSIONS, query)
        yield from page.submissions
        if not page.more:
            return
        query = replace(query, after=page.cursor)


def fetch(session: Session, question: Question) -> LimitedRows[Job]:
    """Raises NotFound, on the way, for a single job that is not there."""
    return LimitedRows(_job_pages(session, question), question.limit)


def _job_pages(session: Session, question: Question) -> Iterator[Job]:
    for within in question.ranges or (None,):
        is_found = False
        for job in session.jobs(question.query(within, question.limit + 1)):
            is_found = True
            yield job
        if not is_found and within is not None and within.size == 1 and not question.is_narrow:
            session.refuse_missing(within)
