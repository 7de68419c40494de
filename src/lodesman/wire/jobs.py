"""Answers about jobs and their files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.call import Page
from lodesman.wire.requests import Number
from lodesman.wire.vocabulary import Form, JobState, MainReason


class Notice(Struct, frozen=True):
    """Something odd in a description that does not stop the job; line and column 0: unknown."""

    attribute: str
    message: str
    line: int = 0
    column: int = 0


class Submission(Struct, frozen=True):
    """Ids `first` to `first + count - 1`, `held` of them Held. `repeated`: an earlier call with this id made them."""

    submission: int
    first: int
    count: int
    held: int
    repeated: bool
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
    """In how many seconds a waiting job starts, in 90 % of cases."""

    low_seconds: float
    high_seconds: float


class Job(Struct, frozen=True):
    """A job with its last attempt; CPU and wall times in seconds, memory in MB, as reported and as far as they can be.

    `output_size`, in bytes, and `output_sha256` are those of what is stored; None: it wrote none; '': it was not kept.
    `since` it is in its state, for `reason`. `held_by`: no queue can run it, or a user said so, or
    an administrator, and then only an administrator releases it. `main_reason`: why it
    waits, None until judged. `base`: the first id of its submission. `start`: when a waiting job starts, None if that is
    unknown; only where it was asked for. `ce`, `queue`, `host`: of its last pilot.
    """

    id: int
    state: JobState
    attempt: int
    since: float
    reason: str
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
    exit_code: int | None
    signal: int | None
    cpu_seconds: float | None
    wall_seconds: float | None
    max_rss_mb: float | None
    output_sha256: str | None
    output_size: int | None
    message: str | None
    ce: str | None
    queue: str | None
    host: str | None
    base: int
    main_reason: MainReason | None
    start: JobStart | UnsetType | None = UNSET
    job_group: str = ""
    job_class: str = ""


class Jobs(Page, frozen=True):
    """Jobs in the order of their ids."""

    jobs: list[Job]


class Attempt(Struct, frozen=True):
    """One attempt of a job; `outcome` and `cause` are None while it runs. `ce`, `queue`, `host`: of its pilot, None where
    that is not known any more.
    """

    id: int
    number: int
    pilot: int
    site: str
    claimed_at: float
    started_at: float | None
    ended_at: float | None
    outcome: str | None
    cause: str | None
    exit_code: int | None
    signal: int | None
    cpu_seconds: float | None
    wall_seconds: float | None
    max_rss_mb: float | None
    message: str | None
    ce: str | None
    queue: str | None
    host: str | None


class Event(Struct, frozen=True):
    """A job came into a state, was Submitted, Rescheduled or Changed (`attributes`); `by` a user (`name`) or the reconciler.

    `task_queue`: it happened to the whole task queue. `late`: a lost attempt is Done after all. `silent_since`: the
    last heartbeat of its pilot.
    """

    at: float
    event: str
    by: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    pilot: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    late: bool | UnsetType = UNSET
    silent_since: float | UnsetType = UNSET
    submission: int | UnsetType = UNSET
    task_queue: int | UnsetType = UNSET
    attributes: list[str] | UnsetType = UNSET


class JobInFull(Job, frozen=True, kw_only=True):
    """A job with its attempts and events; `sites`: those that meet its Requirements, if it has any."""

    sites: list[str]
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
    """The last output of a job, up to 64 kB; `live`: it still runs, and its pilot reports its use (seconds, MB)."""

    id: int
    state: JobState
    attempt: int
    live: bool
    tail: str
    cpu_seconds: float | UnsetType = UNSET
    wall_seconds: float | UnsetType = UNSET
    rss_mb: float | UnsetType = UNSET


class NotChanged(Struct, frozen=True):
    """A job that was not changed, and why."""

    id: int
    reason: str


class RangeControlled(Struct, frozen=True, omit_defaults=True):
    """What became of the jobs from `first` to `last`; `reason`: why of one of them that was not changed, or not found."""

    first: int
    last: int
    changed: int = 0
    refused: int = 0
    reason: str = ""


class Controlled(Struct, frozen=True):
    """How many jobs were changed and refused, and some of those refused. `ranges`: what became of each, if several were
    given; those that had ids in common are one. `rest`: ranges that were not reached: ask again for these.
    """

    changed: int
    refused: int
    examples: list[NotChanged]
    ranges: list[RangeControlled] | UnsetType = UNSET
    rest: list[tuple[int, int]] | UnsetType = UNSET


class ChangeBody(Struct, frozen=True, omit_defaults=True):
    """Other values for attributes of waiting and held jobs, by inclusive ranges of ids; null takes an attribute away.
    `reason` is kept in their history. `hold_if_impossible`: also if no queue could run them any more.
    """

    ranges: Annotated[list[tuple[Number, Number]], Meta(min_length=1, max_length=1_000)]
    attributes: Annotated[dict[str, Any], Meta(min_length=1, max_length=100)]
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    hold_if_impossible: bool = False
    dry_run: bool = False


class JobsChanged(Controlled, frozen=True, kw_only=True):
    """How many waiting and held jobs were changed, or (`dry_run`) would be."""

    dry_run: bool = False


class Resolution(Struct, frozen=True, omit_defaults=True):
    """What a job class made of a description. `job_class`: class.variant, '' without one, of that `revision`; `snapshot`:
    what it allows, as JSON. `origins`: who wrote each attribute last: default, class, command line, client or server JSV, a
    change.
    """

    job_class: str = ""
    revision: int = 0
    origins: dict[str, str] = {}
    snapshot: str = ""


class JobDescription(Struct, frozen=True):
    """The description of a job, or of all `jobs` of a parametric one. `rebuilt`: none is stored of a batch. `resolution`:
    what its job class made of it; then `values` are what the job has by attribute (an entry of a list behind a dot), and
    `defaults` what it has without a word of anything.
    """

    id: int
    form: Form
    text: str
    jobs: int
    rebuilt: bool
    resolution: Resolution | None = None
    values: dict[str, str] = {}
    defaults: dict[str, str] = {}


class Stored(Struct, frozen=True):
    """A file that the server has; `size` in bytes."""

    sha256: str
    size: int
