"""What the background process asks the hot process, and the answers."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Raw, Struct, field

from lodesman.wire.nodes import QueueId
from lodesman.wire.quotas import BucketRow, FullBucket
from lodesman.wire.vocabulary import MainReason, PilotState

Holds = list[tuple[int, str]]
# Owner and SHA-256 of an input file.
FileKey = tuple[str, str]
# The old identifier of a SubmitPool, the new one, the text to be stored.
Renewal = tuple[str, str, str]


class Alive(Struct, frozen=True):
    """The background process lives; these of its steps fail, each with the last fault. `left_out`: what they leave out;
    `damaged`: files that were not as they were written.
    """

    failing: dict[str, str]
    left_out: list[str] = []
    damaged: list[str] = []


class NewPilot(Struct, frozen=True, kw_only=True):
    """A pilot about to be submitted. `request`: the resource as configured; `join_hash`: the hash of its join token.
    `bound`: it gets one job of its task queue now, and runs no other. `forwards`: it may run in another queue than this.
    `most_there`: it is not stored if more live pilots than that were in its queue, itself counted.
    """

    stamp: str
    vo: str
    site: str
    ce: str
    queue: str
    request: dict[str, Any]
    join_hash: bytes
    owner: str = ""
    group: str = ""
    pilot_type: str = ""
    submission_pool: str = ""
    tq_id: int | None = None
    backend: str = "local"
    requirements: str = "{}"
    join_seconds: float = 5 * 86_400.0
    bound: bool = False
    forwards: bool = False
    most_there: int | None = None


class Prepared(Struct, frozen=True):
    """How many pilots were stored, the first of those that were sent: a bound one only if there is a job for it."""

    stored: int


# What a batch system answered: by stamp the native id, or None with the reason of the refusal.
Outcomes = dict[str, tuple[str | None, str]]


class PilotSeen(NamedTuple):
    """What a batch system said of a pilot that has not ended: where it runs, since when it is held, and when it said so."""

    host: str
    held_since: float | None
    at: float


class PilotEnd(Struct, frozen=True):
    """A pilot that its batch system reports as gone."""

    pilot: int
    state: PilotState
    reason: str


class Ordered(Struct, frozen=True):
    """Pilots that run at their batch systems, and were ordered to end before they joined."""

    pilots: list[int]
    reason: str


class Unbound(Struct, frozen=True):
    """Pilots that have not taken the jobs which they are bound to, and never will."""

    pilots: list[int]
    reason: str


class Rescued(Struct, frozen=True):
    """How many jobs went back to their task queues."""

    rescued: int


class PilotLoad(Struct, frozen=True):
    """A pilot, and (cores, memory_mb) as promised to each of its jobs."""

    pilot: int
    used: list[tuple[int, int]]


class LimitsAt(Struct, frozen=True):
    """CE queues where pilots may be sent, or those where jobs of `task_queue` could run, or jobs with that `key` (JSON);
    neither: which task queues are limited there is asked. Pilots of the queues `here` run on `host`.
    """

    queues: list[QueueId]
    task_queue: int = 0
    key: str = ""
    here: list[QueueId] = []
    host: str = ""


class LimitedAt(Struct, frozen=True):
    """Task queues that limits keep from starting in each of these CE queues; `never`: those of them that would not start if
    nothing ran.
    """

    queues: list[QueueId]
    ids: list[int]
    never: list[int] = []


class LimitedPilots(Struct, frozen=True):
    """Task queues that limits keep from starting where these idle pilots are."""

    pilots: list[int]
    ids: list[int]


class Limited(Struct, frozen=True):
    """Task queues of which limits keep every job from starting at all these places and where live pilots are, those at
    `some`, and those where pilots are `idle`; or the buckets that keep those of one from it, `everywhere` or at some, the
    `pilots` where they do, and the `queues` where they do on hosts that are not known yet, in `never` of them whatever ends.
    """

    ids: list[int] = []
    some: list[LimitedAt] = []
    idle: list[LimitedPilots] = []
    buckets: list[FullBucket] = []
    pilots: list[int] = []
    queues: list[QueueId] = []
    never: list[QueueId] = []
    everywhere: bool = False


class Behind(NamedTuple):
    """Jobs of a task queue that wait."""

    task_queue: int
    vo: str
    owner: str
    jobs: int


class BehindBucket(Struct, frozen=True):
    """A bucket for places with the values `of_place`, and all task queues that it keeps from starting somewhere."""

    row: BucketRow
    of_place: list[str]
    behind: list[Behind]


class Iteration(Struct, frozen=True):
    """One iteration of the director, with inputs and clamps: megabytes that are kept as they come."""

    plan: Raw


class StoredBreaker(NamedTuple):
    """The breaker of a CE queue, as JSON (`director.limits.Breaker`); '' for one that is as if it had never moved."""

    site: str
    ce: str
    queue: str
    record: str


class Judged(NamedTuple):
    """Why the jobs of a task queue wait. The first `next_jobs` of them, whose ids are less than `next_before`, have
    another reason: they are next, or closings keep their pilots away.
    """

    reason: MainReason
    detail: str = ""
    next_reason: MainReason | None = None
    next_jobs: int = 0
    next_before: int = 0


class Reasons(Struct, frozen=True):
    """Changed pending reasons, by task queue; None for task queues without waiting jobs."""

    changed: dict[int, Judged | None]
    facts_at: float | None


class Renewals(Struct, frozen=True, kw_only=True):
    """SubmitPools with another identifier under the types of today. `config`: the digest of the configuration."""

    config: str
    pools: list[Renewal] = []


class Difference(Struct, frozen=True, kw_only=True):
    """The result of an evaluation of all pools since the pass `previous`. `config`: the digest of the configuration.

    `answers`: passes asked for. `masks`: pools whose queues changed, in hexadecimal. `seconds`: its duration.
    """

    previous: int
    answers: int
    config: str
    cause: str
    pools: int
    seconds: float
    masks: dict[str, str] = {}


class PassDone(Struct, frozen=True):
    """The number of a pass, and when it was made."""

    number: int = field(name="pass")
    at: float


class Judgement(Struct, frozen=True, kw_only=True):
    """Task queues that no configured queue can run, and those that one can run again, each with the reason."""

    number: int
    hold: Holds = []
    release: Holds = []


class Cleaning(Struct, frozen=True, kw_only=True):
    """Pools that no job needs since now, that jobs need again, and that no job needed since `unused_before`."""

    mark: list[str] = []
    unmark: list[str] = []
    remove: list[str] = []
    unused_before: float = 0.0


class Removed(Struct, frozen=True):
    """How many pools were removed."""

    removed: int


class UploadedFile(Struct, frozen=True):
    """An input sandbox that was uploaded. `quota`, `most_files`: what its owner may keep, bytes and files; 0: no limit."""

    owner: str
    sha256: str
    size: int
    quota: int = 0
    most_files: int = 0


class UploadedOutput(Struct, frozen=True):
    """The output of an attempt that its pilot uploaded, as it was stored."""

    pilot: int
    job: int
    attempt: int
    sha256: str
    size: int


class Old(Struct, frozen=True, kw_only=True):
    """What ended before that time. `holes`: (cohort, start). `templates`, `submissions`: those without references.
    `queues`: (task queue, when it was emptied).
    """

    before: float
    jobs: list[int] = []
    holes: list[tuple[int, int]] = []
    templates: list[int] = []
    submissions: list[int] = []
    pilots: list[int] = []
    queues: list[tuple[int, float]] = []


class Purged(Struct, frozen=True, kw_only=True):
    """(job, attempts) whose files may go now; `more` if submissions have more to delete."""

    jobs: list[tuple[int, int]] = []
    queues: int = 0
    more: bool = False


class UnusedInputs(Struct, frozen=True, kw_only=True):
    """Input files to mark as unused, to unmark, and to remove (marked before the time `before`). `done`: submissions
    whose jobs need their files no longer; `some`: files of a submission that it needs no longer.
    """

    before: float = 0.0
    mark: list[FileKey] = []
    unmark: list[FileKey] = []
    remove: list[FileKey] = []
    done: list[int] = []
    some: list[tuple[int, list[str]]] = []


class Tidied(Struct, frozen=True):
    """The files that are not known any more."""

    gone: list[FileKey]


_Taken = tuple[int, int, int]


class Suspects(Struct, frozen=True, kw_only=True):
    """Jobs that may lack a task queue or a live attempt, task queues that may be miscounted, and live attempts that their
    jobs may not name, or whose pilots may have ended. `outputs`: (attempt, size as stored, size of the file; None: there is
    none). `usage`: (owner; files, bytes and outputs as stored, and as counted).
    """

    jobs: list[int] = []
    queues: list[int] = []
    attempts: list[int] = []
    outputs: list[tuple[int, int, int | None]] = []
    usage: list[tuple[str, _Taken, _Taken]] = []


class Repaired(Struct, frozen=True):
    """How many faults of each kind were repaired."""

    waiting_without_queue: int = 0
    active_without_attempt: int = 0
    wrong_counters: int = 0
    attempts_without_job: int = 0
    attempts_not_named: int = 0
    attempts_of_ended_pilots: int = 0
    wrong_outputs: int = 0
    wrong_usage: int = 0


class LimitsChecked(Struct, frozen=True):
    """How many buckets of limits had another use than the live attempts say, and have that now."""

    wrong_limits: int = 0
