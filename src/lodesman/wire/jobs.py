"""Answers about jobs and their files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.call import Page
from lodesman.wire.requests import Number
from lodesman.wire.vocabulary import Form, JobState, MainReason


class Notice(Struct, frozen=True):
    """Something odd in a description that does not stop the job."""

    attribute: str
    message: str
    line: int = 0  # 0: unknown.
    column: int = 0  # 0: unknown.


class Submission(Struct, frozen=True):
    """Jobs that were stored, with ids `first` to `first + count - 1`."""

    submission: int
    first: int
    count: int
    held: int  # How many of them are Held.
    repeated: bool  # An earlier call with this id made them.
    notices: list[Notice]


class TrialSubmission(Struct, frozen=True):
    """What a submission would become; nothing was stored."""

    count: int
    held: int
    notices: list[Notice]
    dry_run: Literal[True]


# Who holds a job.
HeldBy = Literal["impossible", "user", "admin"]


class JobStart(Struct, frozen=True):
    """When a waiting job starts, in 90 % of cases."""

    low_seconds: float  # From now.
    high_seconds: float  # From now.


class Job(Struct, frozen=True):
    """A job with its last attempt, as far as it was reported."""

    id: int
    state: JobState
    attempt: int
    since: float  # It is in its state since then.
    reason: str  # Why it came into its state.
    # No queue can run it, or a user said so, or an administrator, and then only an administrator releases it.
    held_by: HeldBy | None
    owner: str
    group: str
    vo: str
    name: str
    submitted_at: float
    task_queue: int
    template: int
    submission: int
    last_event: int | None
    last_attempt: int | None
    site: str | None
    pilot: int | None
    claimed_at: float | None
    started_at: float | None
    ended_at: float | None
    outcome: str | None
    cause: str | None
    exit_code: int | None  # Of the payload.
    signal: int | None
    cpu_seconds: float | None
    wall_seconds: float | None
    max_rss_mb: float | None
    output_sha256: str | None  # Of what is stored; None: it wrote none; '': it was not kept.
    output_size: int | None  # In bytes.
    message: str | None
    ce: str | None  # Of its last pilot, like `queue` and `host`.
    queue: str | None
    host: str | None
    base: int  # The first id of its submission.
    main_reason: MainReason | None  # Why it waits; None until judged.
    # When a waiting job starts, None if that is unknown; only where it was asked for.
    start: JobStart | UnsetType | None = UNSET
    job_group: str = ""
    job_class: str = ""


class Jobs(Page, frozen=True):
    """Jobs in the order of their ids."""

    jobs: list[Job]


class Attempt(Struct, frozen=True):
    """One attempt of a job."""

    id: int
    number: int
    pilot: int
    site: str
    claimed_at: float
    started_at: float | None
    ended_at: float | None
    outcome: str | None  # None while it runs, like `cause`.
    cause: str | None
    exit_code: int | None
    signal: int | None
    cpu_seconds: float | None
    wall_seconds: float | None
    max_rss_mb: float | None
    message: str | None
    ce: str | None  # Of its pilot, like `queue` and `host`; None where that is not known any more.
    queue: str | None
    host: str | None


class Event(Struct, frozen=True):
    """What happened to a job."""

    at: float
    event: str  # The state into which it came, or Submitted, Rescheduled, Changed.
    by: str | UnsetType = UNSET  # A user, or the reconciler.
    name: str | UnsetType = UNSET  # Of the user.
    reason: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    pilot: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    late: bool | UnsetType = UNSET  # A lost attempt is Done after all.
    silent_since: float | UnsetType = UNSET  # The last heartbeat of its pilot.
    submission: int | UnsetType = UNSET
    task_queue: int | UnsetType = UNSET  # It happened to the whole task queue.
    attributes: list[str] | UnsetType = UNSET  # Those that were Changed.


class JobInFull(Job, frozen=True, kw_only=True):
    """A job with its attempts and events."""

    sites: list[str]  # Those that meet its Requirements, if it has any.
    attempts: list[Attempt]
    events: list[Event]


class Count(Struct, frozen=True):
    """A number of jobs."""

    owner: str
    group: str
    state: JobState
    jobs: int


class Counts(Struct, frozen=True):
    """Jobs that the caller may see, counted."""

    counts: list[Count]


class Logs(Struct, frozen=True):
    """The last output of a job."""

    id: int
    state: JobState
    attempt: int
    live: bool  # It still runs, and its pilot reports its use.
    tail: str  # Up to 64 kB.
    cpu_seconds: float | UnsetType = UNSET
    wall_seconds: float | UnsetType = UNSET
    rss_mb: float | UnsetType = UNSET


class NotChanged(Struct, frozen=True):
    """A job that was not changed, and why."""

    id: int
    reason: str


class RangeControlled(Struct, frozen=True, omit_defaults=True):
    """What became of the jobs from `first` to `last`."""

    first: int
    last: int
    changed: int = 0
    refused: int = 0
    reason: str = ""  # Why one of them was not changed, or not found.


class Controlled(Struct, frozen=True):
    """How many jobs were changed and refused."""

    changed: int
    refused: int
    examples: list[NotChanged]  # Some of those refused.
    # What became of each range, if several were given; those that had ids in common are one.
    ranges: list[RangeControlled] | UnsetType = UNSET
    rest: list[tuple[int, int]] | UnsetType = UNSET  # Ranges that were not reached: ask again for these.


class ChangeBody(Struct, frozen=True, omit_defaults=True):
    """Other values for attributes of waiting and held jobs."""

    # Inclusive ranges of ids.
    ranges: Annotated[list[tuple[Number, Number]], Meta(min_length=1, max_length=1_000)]
    attributes: Annotated[dict[str, Any], Meta(min_length=1, max_length=100)]  # null takes an attribute away.
    reason: Annotated[str, Meta(max_length=1_000)] = ""  # Is kept in the history of the jobs.
    hold_if_impossible: bool = False  # Change them also if no queue could run them any more.
    dry_run: bool = False  # Change nothing.


class JobsChanged(Controlled, frozen=True, kw_only=True):
    """How many waiting and held jobs were changed, or would be."""

    dry_run: bool = False  # They would be.


class Resolution(Struct, frozen=True, omit_defaults=True):
    """What a job class made of a description."""

    job_class: str = ""  # class.variant; '' without one.
    revision: int = 0  # Of the class.
    # Who wrote each attribute last: default, class, command line, client or server JSV, a change.
    origins: dict[str, str] = {}
    snapshot: str = ""  # What the class allows, as JSON.


class JobDescription(Struct, frozen=True):
    """The description of a job, or of all jobs of a parametric one."""

    id: int
    form: Form
    text: str
    jobs: int  # How many it describes.
    rebuilt: bool  # It was made again from the job: none is stored of a batch.
    resolution: Resolution | None = None  # What its job class made of it.
    # With a `resolution` what the job has, by attribute (an entry of a list behind a dot).
    values: dict[str, str] = {}
    defaults: dict[str, str] = {}  # With a `resolution` what the job has without a word of anything.


class Stored(Struct, frozen=True):
    """A file that the server has."""

    sha256: str
    size: int  # In bytes.
