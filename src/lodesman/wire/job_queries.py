"""Requests about many jobs: lists with their filters, actions, and readers, who see what jobs do and change nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from lodesman.wire.call import Page
from lodesman.wire.requests import MOST_ID, Count, Given, Name, Number, Paged, Rows, Sent, Text
from lodesman.wire.vocabulary import JobState, MainReason

Where = Annotated[list[Name], Meta(max_length=20)]


class JobsQuery(Sent, frozen=True):
    """Jobs with ids from `first` to `last`; `all` that the caller may see, else the caller's own. `state`: several, with
    commas between. `after`: those that follow the page with this `cursor`. `start`: estimate when waiting jobs start.

    `name` as in the description, but with single percent signs where an array has no placeholder in it; `*` stands for any
    text, `?` for any letter. `owner`: another user's, if the caller may see them. `site`, `cause`: of the last attempt, if
    it did not end well. `since`, `until`: when they were submitted (UNIX seconds). `submission`: its number; 0: of any.
    `job_group`: the JobGroup of the description, as a name; `job_class`: its class, or class.variant, in the same way.
    `where`: attributes as `NAME=VALUE`, all of which hold.
    `shared`: only what others share with the caller.
    """

    first: Count = 1
    last: Count = MOST_ID
    limit: Rows = 1_000
    all: bool = False
    newest: bool = False
    group: str = ""
    state: str = ""
    reason: str = ""
    after: str = ""
    start: bool = False
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


class SubmissionsQuery(Paged, frozen=True, kw_only=True):
    """Submissions that have jobs, the newest first: filters as of jobs. `state`, `site`, `cause`, `reason`, `job_group`,
    `job_class` and `where` hold for at least one job of each. A page may be shorter than `limit`, or empty, though there is
    `more`.
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


class CountsQuery(Sent, frozen=True):
    """`own`: the caller's jobs only."""

    own: bool = False


class SubmissionRow(Struct, frozen=True):
    """A submission: `jobs` with ids from `first` on; `name` of the first in its description. `states`: how many of them are
    in which state; those that are missing were purged. Of those with an attempt `sites` of the last one, and `causes` of
    its end unless it is Done; of those that wait `reasons`. `shared_by`: who shares it with the caller, '' if it is not.
    """

    id: int
    first: int
    jobs: int
    owner: str
    group: str
    vo: str
    name: str
    submitted_at: float
    states: dict[JobState, int]
    sites: dict[str, int]
    causes: dict[str, int]
    reasons: dict[MainReason, int]
    shared_by: str = ""


class Submissions(Page, frozen=True):
    """Submissions, the newest first."""

    submissions: list[SubmissionRow]


Action = Literal["kill", "hold", "release", "reschedule", "delete"]


class Selection(Struct, omit_defaults=True, frozen=True):
    """Which jobs of the `ranges` of an action are meant: those in these `states`, of submissions with this `name` (as in
    lists) and one of these numbers, in a JobGroup of this name, of this class, with these attributes. `owner`: whose
    jobs, '' for the caller's own. Others are passed over.
    """

    states: Annotated[list[JobState], Meta(max_length=20)] = []
    name: Text = ""
    submissions: Annotated[list[Number], Meta(max_length=1_000)] = []
    owner: Text = ""
    job_group: Text = ""
    job_class: Text = ""
    where: Where = []


class ControlQuery(Sent, frozen=True):
    """`dry_run`: change nothing, and count the jobs that would be changed and refused."""

    dry_run: bool = False


class ControlBody(Sent, frozen=True):
    """An action on inclusive ranges of job ids; with a `selection` on some of the jobs in them. None given: all ids."""

    action: Action
    ranges: Annotated[list[tuple[Number, Number]], Meta(max_length=1_000)] = field(default_factory=list)
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    selection: Selection | None = None


MOST_READERS = 100


class SubmissionAt(Struct, frozen=True, omit_defaults=True):
    """A submission by its number."""

    submission: int


class ReadersBody(Struct, frozen=True, omit_defaults=True):
    """Users (`ann`) and groups (`@physics`) of the submission's VO who may read it from now on, or not any more."""

    submission: Number
    readers: Annotated[list[Given], Meta(min_length=1, max_length=MOST_READERS)]
    how: Literal["add", "remove"] = "add"


class SubmissionReader(Struct, frozen=True):
    """A user, or `@` and a group, with whom a submission is shared: since when (UNIX seconds), and who shared it."""

    reader: str
    at: float
    by: str


class SubmissionReaders(Struct, frozen=True):
    """All readers of a submission, by name."""

    submission: int
    readers: list[SubmissionReader]
