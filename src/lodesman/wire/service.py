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


class BackgroundState(Struct, frozen=True):
    """The background process lives."""

    failing: dict[str, str]  # Those of its steps that fail, each with the last fault.
    left_out: list[str] = []  # What these steps leave out.
    damaged: list[str] = []  # Files that were not as they were written.


class NewPilot(Struct, frozen=True, kw_only=True):
    """A pilot about to be submitted."""

    stamp: str
    vo: str
    site: str
    ce: str
    queue: str
    request: dict[str, Any]  # The resource as configured.
    join_hash: bytes  # The hash of its join token.
    owner: str = ""
    group: str = ""
    pilot_type: str = ""
    submission_pool: str = ""
    tq_id: int | None = None
    backend: str = "local"
    requirements: str = "{}"
    join_seconds: float = 5 * 86_400.0
    bound: bool = False  # It gets one job of its task queue now, and runs no other.
    forwards: bool = False  # It may run in another queue than this.
    # It is not stored if more live pilots than that were in its queue, itself counted.
    most_there: int | None = None


class PreparedCount(Struct, frozen=True):
    """What became of new pilots."""

    stored: int  # How many, the first of those that were sent: a bound one only if there is a job for it.


# What a batch system answered: by stamp the native id, or None with the reason of the refusal.
Outcomes = dict[str, tuple[str | None, str]]


class PilotSeen(NamedTuple):
    """What a batch system said of a pilot that has not ended."""

    host: str  # Where it runs.
    held_since: float | None  # None: it is not held.
    at: float  # When the batch system said so.


class PilotEnd(Struct, frozen=True):
    """A pilot that its batch system reports as gone."""

    pilot: int
    state: PilotState
    reason: str


class LeaveOrder(Struct, frozen=True):
    """Pilots that run at their batch systems, and were ordered to end before they joined."""

    pilots: list[int]
    reason: str


class UnbindOrder(Struct, frozen=True):
    """Pilots that have not taken the jobs which they are bound to, and never will."""

    pilots: list[int]
    reason: str


class RescuedCount(Struct, frozen=True):
    """How many jobs went back to their task queues."""

    rescued: int


class PilotLoad(Struct, frozen=True):
    """What a pilot has promised to its jobs."""

    pilot: int
    used: list[tuple[int, int]]  # (cores, memory_mb) of each of its jobs.


class LimitQuery(Struct, frozen=True):
    """Places, and the task queue or the key about which is asked; neither: which task queues are limited there."""

    queues: list[QueueId]  # CE queues where pilots may be sent, or those where the jobs could run.
    task_queue: int = 0  # Its jobs are meant.
    key: str = ""  # Jobs with this key are meant (JSON).
    here: list[QueueId] = []  # Those whose pilots run on `host`.
    host: str = ""


class LimitedQueues(Struct, frozen=True):
    """Task queues that limits keep from starting in each of these CE queues."""

    queues: list[QueueId]
    ids: list[int]
    never: list[int] = []  # Those of them that would not start if nothing ran.


class LimitedPilots(Struct, frozen=True):
    """Task queues that limits keep from starting where these idle pilots are."""

    pilots: list[int]
    ids: list[int]


class LimitAnswer(Struct, frozen=True):
    """What limits keep from starting: task queues, or the jobs of the one that was asked about."""

    # Task queues of which every job is kept from starting at all these places and where live pilots are.
    ids: list[int] = []
    some: list[LimitedQueues] = []  # Those that are kept from starting at some of the places.
    idle: list[LimitedPilots] = []  # Those that are kept from starting where pilots are idle.
    buckets: list[FullBucket] = []  # Those that keep the jobs of one task queue from starting.
    pilots: list[int] = []  # Where the buckets do so.
    queues: list[QueueId] = []  # Where the buckets do so on hosts that are not known yet.
    never: list[QueueId] = []  # Those of the queues where they do so whatever ends.
    everywhere: bool = False  # The buckets do so at all places, not at some.


class QueueBehind(NamedTuple):
    """Jobs of a task queue that wait."""

    task_queue: int
    vo: str
    owner: str
    jobs: int


class BehindBucket(Struct, frozen=True):
    """A bucket and what it keeps from starting."""

    row: BucketRow  # The bucket, for places with the values `of_place`.
    of_place: list[str]
    behind: list[QueueBehind]  # All task queues that it keeps from starting somewhere.


class Iteration(Struct, frozen=True):
    """One iteration of the director."""

    plan: Raw  # With inputs and clamps: megabytes that are kept as they come.


class StoredBreaker(NamedTuple):
    """The breaker of a CE queue."""

    site: str
    ce: str
    queue: str
    record: str  # JSON (`director.limits.Breaker`); '': it is as if it had never moved.


class WaitReason(NamedTuple):
    """Why the jobs of a task queue wait."""

    reason: MainReason
    detail: str = ""
    # Of the first jobs, which have another reason: they are next, or closings keep their pilots away.
    next_reason: MainReason | None = None
    next_jobs: int = 0  # How many these are.
    next_before: int = 0  # Their ids are less than that.


class Reasons(Struct, frozen=True):
    """Changed pending reasons."""

    changed: dict[int, WaitReason | None]  # By task queue; None for those without waiting jobs.
    facts_at: float | None


class Renewals(Struct, frozen=True, kw_only=True):
    """SubmitPools with another identifier under the types of today."""

    config: str  # The digest of the configuration.
    pools: list[Renewal] = []


class PassResult(Struct, frozen=True, kw_only=True):
    """The result of an evaluation of all pools."""

    previous: int  # The pass after which the pools are evaluated.
    answers: int  # Passes asked for.
    config: str  # The digest of the configuration.
    cause: str
    pools: int
    seconds: float  # Its duration.
    masks: dict[str, str] = {}  # Pools whose queues changed, in hexadecimal.


class PassNumber(Struct, frozen=True):
    """The number of a pass, and when it was made."""

    number: int = field(name="pass")
    at: float


class QueueVerdicts(Struct, frozen=True, kw_only=True):
    """Task queues that configured queues can no longer run, or again."""

    number: int
    hold: Holds = []  # Those that none can run, each with the reason.
    release: Holds = []  # Those that one can run again, each with the reason.


class PoolCleaning(Struct, frozen=True, kw_only=True):
    """Pools that jobs use no more, or again."""

    mark: list[str] = []  # No job needs them from now on.
    unmark: list[str] = []  # Jobs need them again.
    remove: list[str] = []  # No job needed them since `unused_before`.
    unused_before: float = 0.0


class RemovedCount(Struct, frozen=True):
    """How many pools were removed."""

    removed: int


class UploadedFile(Struct, frozen=True):
    """An input sandbox that was uploaded."""

    owner: str
    sha256: str
    size: int
    quota: int = 0  # Bytes that its owner may keep; 0: no limit.
    most_files: int = 0  # Files that its owner may keep; 0: no limit.


class UploadedOutput(Struct, frozen=True):
    """The output of an attempt that its pilot uploaded, as it was stored."""

    pilot: int
    job: int
    attempt: int
    sha256: str
    size: int


class PurgeOrder(Struct, frozen=True, kw_only=True):
    """What to delete, since it ended long ago."""

    before: float  # All of it ended before that.
    jobs: list[int] = []
    holes: list[tuple[int, int]] = []  # (cohort, start).
    templates: list[int] = []  # Those without references.
    submissions: list[int] = []  # Those without references.
    pilots: list[int] = []
    queues: list[tuple[int, float]] = []  # (task queue, when it was emptied).


class PurgeResult(Struct, frozen=True, kw_only=True):
    """What was deleted."""

    jobs: list[tuple[int, int]] = []  # (job, attempts) whose files may go now.
    queues: int = 0
    more: bool = False  # Submissions have more to delete.


class UnusedInputs(Struct, frozen=True, kw_only=True):
    """Input files that jobs need no longer, or again."""

    before: float = 0.0  # Files to remove were marked before that.
    mark: list[FileKey] = []  # To be marked as unused.
    unmark: list[FileKey] = []
    remove: list[FileKey] = []
    done: list[int] = []  # Submissions whose jobs need their files no longer.
    some: list[tuple[int, list[str]]] = []  # Files of a submission that it needs no longer.


class TidyResult(Struct, frozen=True):
    """What became of input files."""

    gone: list[FileKey]  # Those that are not known any more.


# Files, bytes and outputs.
_InputUse = tuple[int, int, int]


class Suspects(Struct, frozen=True, kw_only=True):
    """What may be wrong in what is stored."""

    jobs: list[int] = []  # They may lack a task queue or a live attempt.
    queues: list[int] = []  # They may be miscounted.
    attempts: list[int] = []  # Live ones that their jobs may not name, or whose pilots may have ended.
    # (attempt, size as stored, size of the file; None: there is none).
    outputs: list[tuple[int, int, int | None]] = []
    # (owner; files, bytes and outputs as stored, and as counted).
    usage: list[tuple[str, _InputUse, _InputUse]] = []


class RepairCounts(Struct, frozen=True):
    """How many faults of each kind were repaired."""

    waiting_without_queue: int = 0
    active_without_attempt: int = 0
    wrong_counters: int = 0
    attempts_without_job: int = 0
    attempts_not_named: int = 0
    attempts_of_ended_pilots: int = 0
    wrong_outputs: int = 0
    wrong_usage: int = 0


class LimitCheck(Struct, frozen=True):
    """What was found wrong with limits."""

    wrong_limits: int = 0  # Buckets that had another use than the live attempts say, and have that now.
