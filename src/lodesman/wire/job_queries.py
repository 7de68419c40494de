"""Requests about many jobs: lists with their filters, actions, and readers, who see what jobs do and change nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from lodesman.wire.call import Page
from lodesman.wire.requests import MOST_ID, Count, KnownName, Name, Number, Paged, Rows, SparseStruct, Text
from lodesman.wire.vocabulary import JobState, MainReason

Where = Annotated[list[Name], Meta(max_length=20)]


class JobsQuery(SparseStruct, frozen=True):
    """Jobs with these ids, and filters of them."""

    first: Count = 1
    last: Count = MOST_ID
    limit: Rows = 1_000
    all: bool = False  # That the caller may see; else the caller's own.
    newest: bool = False
    group: str = ""
    state: str = ""  # Several, with commas between.
    reason: str = ""
    after: str = ""  # The `cursor` of a page: those that follow it.
    start: bool = False  # Estimate when waiting jobs start.
    # As in the description, but with single percent signs where an array has no placeholder in it; `*` stands for any
    # text, `?` for any letter.
    name: str = ""
    owner: str = ""  # Another user's, if the caller may see them.
    site: str = ""  # Of the last attempt.
    cause: str = ""  # Of the last attempt, if it did not end well.
    since: Count = 0  # Submitted from then on, UNIX seconds.
    until: Count = MOST_ID  # Submitted until then.
    submission: Count = 0  # Its number; 0: of any.
    job_group: str = ""  # The JobGroup of the description, matched like `name`.
    job_class: str = ""  # The class, or class.variant, matched like `name`.
    where: Where = field(default_factory=list)  # Attributes as `NAME=VALUE`, all of which hold.
    shared: bool = False  # Only what others share with the caller.


class SubmissionsQuery(Paged, frozen=True, kw_only=True):
    """Submissions that have jobs, the newest first, and filters as of jobs. `state`, `site`, `cause`, `reason`,
    `job_group`, `job_class` and `where` hold for at least one job of each. A page may be shorter than `limit`, or
    empty, though there is `more`.
    """

    all: bool = False
    group: str = ""
    state: str = ""
    reason: str = ""
    name: str = ""
    owner: str = ""
    site: str = ""
    cause: str = ""
    since: Count = 0
    until: Count = MOST_ID
    submission: Count = 0
    job_group: str = ""
    job_class: str = ""
    where: Where = field(default_factory=list)
    shared: bool = False
    limit: Rows = 100


class CountsQuery(SparseStruct, frozen=True):
    """Whose jobs are counted."""

    own: bool = False  # The caller's jobs only.


class SubmissionRow(Struct, frozen=True):
    """A submission, and its jobs that were not purged."""

    id: int
    first: int  # Its jobs have ids from this one on.
    jobs: int  # How many were submitted.
    owner: str
    group: str
    vo: str
    name: str  # Of the first job in its description.
    submitted_at: float
    # How many of the jobs are in which state; those that are missing were purged.
    states: dict[JobState, int]
    sites: dict[str, int]  # Of the last attempt of those that have one.
    causes: dict[str, int]  # Of the end of the last attempt, unless it is Done.
    reasons: dict[MainReason, int]  # Of those that wait.
    shared_by: str = ""  # Who shares it with the caller; '': nobody does.


class Submissions(Page, frozen=True):
    """Submissions, the newest first."""

    submissions: list[SubmissionRow]


Action = Literal["kill", "hold", "release", "reschedule", "delete"]


class Selection(Struct, omit_defaults=True, frozen=True):
    """Which jobs of the `ranges` of an action are meant. Others are passed over."""

    states: Annotated[list[JobState], Meta(max_length=20)] = []
    name: Text = ""  # Of their submissions, as in lists.
    submissions: Annotated[list[Number], Meta(max_length=1_000)] = []  # Their numbers.
    owner: Text = ""  # '': the caller's own jobs.
    job_group: Text = ""  # Matched as in lists.
    job_class: Text = ""  # Matched as in lists.
    where: Where = []  # Attributes as in lists.


class ControlQuery(SparseStruct, frozen=True):
    """How an action is carried out."""

    dry_run: bool = False  # Change nothing, and count the jobs that would be changed and refused.


class ControlBody(SparseStruct, frozen=True):
    """An action on jobs."""

    action: Action
    # Inclusive ranges of job ids; none given: all ids.
    ranges: Annotated[list[tuple[Number, Number]], Meta(max_length=1_000)] = field(default_factory=list)
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    selection: Selection | None = None  # Only some of the jobs in the ranges.


MOST_READERS = 100


class SubmissionAt(Struct, frozen=True, omit_defaults=True):
    """A submission by its number."""

    submission: int


class ReadersBody(Struct, frozen=True, omit_defaults=True):
    """Who may read a submission from now on, or not any more."""

    submission: Number
    # Users (`ann`) and groups (`@physics`) of the submission's VO.
    readers: Annotated[list[KnownName], Meta(min_length=1, max_length=MOST_READERS)]
    how: Literal["add", "remove"] = "add"


class SubmissionReader(Struct, frozen=True):
    """With whom a submission is shared."""

    reader: str  # A user, or `@` and a group.
    at: float  # Since when, UNIX seconds.
    by: str  # Who shared it.


class SubmissionReaders(Struct, frozen=True):
    """All readers of a submission, by name."""

    submission: int
    readers: list[SubmissionReader]
