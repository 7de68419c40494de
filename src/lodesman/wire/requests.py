"""Parameters of path and query, and bodies, as checked types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from lodesman.wire.job_classes import AttributeEdit
from lodesman.wire.vocabulary import Form, TargetPolicy

MOST_ID = 1 << 53
MOST_ROWS = 10_000
_MOST_JOBS = 10_000  # of their own in one request: one transaction stores them, while all others wait
LAST_SECOND = 253_402_300_799.0  # the end of the year 9999
LONGEST_TOKEN = 36_500 * 86_400.0  # a hundred years
END = r"(?!\n)$"  # a dollar alone lets a line end pass

Text = Annotated[str, Meta(max_length=255)]
Name = Annotated[str, Meta(max_length=1_024)]
Path = Annotated[str, Meta(max_length=3_074)]  # site, CE and queue with slashes between
Token = Annotated[str, Meta(min_length=8, max_length=200)]
Count = Annotated[int, Meta(ge=0, le=MOST_ID)]
_Sha = Annotated[str, Meta(pattern=f"^[0-9a-f]{{64}}{END}")]
Number = Annotated[int, Meta(ge=1, le=MOST_ID)]
Rows = Annotated[int, Meta(ge=0, le=MOST_ROWS)]
Code = Annotated[int, Meta(ge=-(1 << 31), le=1 << 32)]
_Size = Annotated[float, Meta(ge=0)]
_Tail = Annotated[str, Meta(max_length=262_144)]
KnownName = Annotated[str, Meta(min_length=1, max_length=255)]  # a VO, a group: the configuration knows them


class SparseStruct(Struct, frozen=True, omit_defaults=True):
    """What differs from the defaults is sent."""


class Paged(SparseStruct, frozen=True, kw_only=True):
    """A part of a list."""

    after: str = ""  # The `cursor` of a page: the rows that follow it.
    limit: Rows = 1_000  # Rows at most.


class AllQuery(Paged, frozen=True, kw_only=True):
    """A list that most clients want whole."""

    limit: Rows = MOST_ROWS


# --- parameters of path and query ---------------------------------------------------------------------------------------


class JobAt(SparseStruct, frozen=True):
    """A job."""

    job: int


class AttemptAt(JobAt, frozen=True):
    """An attempt of a job."""

    attempt: int


class JobInQueue(JobAt, frozen=True):
    """A job, and perhaps one queue that is asked about."""

    queue: str = ""  # SITE/CE/QUEUE.


class JobInForm(JobAt, frozen=True):
    """A job, and a language for its description."""

    form: Form | None = None  # None: the language in which it was submitted.


class SandboxAt(SparseStruct, frozen=True):
    """An input file by its SHA-256."""

    digest: str


class PilotAt(SparseStruct, frozen=True):
    """A pilot."""

    pilot: str  # Its number or its stamp.


class PilotsQuery(Paged, frozen=True):
    """Pilots."""

    all: bool = False  # With those that ended.
    limit: Rows = 1_000


class TaskQueuesQuery(Paged, frozen=True):
    """Task queues."""

    limit: Rows = 1_000
    reason: str = ""  # Those whose jobs wait for it; '': all.


class PoolsQuery(Paged, frozen=True):
    """SubmitPools of a VO."""

    vo: str = ""  # '': the caller's, for administrators all.
    limit: Rows = 100


class PoolAt(SparseStruct, frozen=True):
    """A SubmitPool."""

    pool: str  # The beginning of its id.
    vo: str = ""


class QueuesQuery(AllQuery, frozen=True):
    """CE queues as a VO sees them."""

    vo: str = ""  # '': the caller's.
    origin: bool = False  # With the place where each value is written.


class NodeQuery(SparseStruct, frozen=True):
    """A site, CE or queue: by `path`, or by names; as a VO sees it."""

    path: str = ""
    site: str = ""
    ce: str = ""
    queue: str = ""
    vo: str = ""


# --- bodies of users ----------------------------------------------------------------------------------------------------


class FileBody(SparseStruct, frozen=True):
    """A file that the caller uploaded before."""

    sha256: _Sha
    size: Count


class InputBody(FileBody, frozen=True):
    """A file of an input sandbox that the caller uploaded before."""

    executable: bool = False  # It may be executed where it came from.
    modified: Count = 0  # Its time of change there, in whole UNIX seconds; 0: not known.


class PlanJobBody(SparseStruct, frozen=True):
    """Jobs to plan."""

    text: str | None = None  # One description: JDL, CFG or JSON.
    texts: Annotated[list[str], Meta(max_length=_MOST_JOBS)] | None = None  # Many descriptions.
    # Descriptions as JSON records.
    jobs: Annotated[list[dict[str, Any]], Meta(max_length=_MOST_JOBS)] | None = None
    form: Annotated[str, Meta(pattern=rf"^(jdl|cfg|json)?{END}")] = ""  # Of the texts; '': it is recognised.
    group: Text = ""
    hold: bool = False  # They are Held until their owner releases them.
    hold_if_impossible: bool = False
    ignore_unknown: bool = False  # Attributes of other systems mean nothing.
    # Which JSV of the user wrote which attribute of Grid Engine (`l_hard h_rt`).
    client_jsv: Annotated[dict[Text, Path], Meta(max_length=1_000)] = {}
    # Are made in each of them, after its class.
    edits: Annotated[list[AttributeEdit], Meta(max_length=1_000)] = []
    # JobName is what the client calls the program, and counts only where no job class gives a name.
    usual_name: bool = False


class SubmitBody(PlanJobBody, frozen=True):
    """Jobs to submit."""

    dry_run: bool = False
    sandboxes: dict[str, InputBody] = {}  # Entry of InputSandbox -> upload.
    request_id: Text | None = None  # The same gets the first answer again.


class PlanFileBody(SparseStruct, frozen=True):
    """A resource file."""

    # It is TOML if its name ends so, else DIRAC CFG.
    name: Annotated[str, Meta(min_length=1, max_length=4_096)]
    text: str


class PlanResourcesBody(SparseStruct, frozen=True):
    """Resource files to try."""

    files: Annotated[list[PlanFileBody], Meta(min_length=1, max_length=1_000)]
    add: bool = False  # They stand beside the server's, not instead.
    limit: Rows = 100  # Members of each list of the answer.


class PlanDirectorBody(SparseStruct, frozen=True):
    """An iteration of the director to plan."""

    # None: its own.
    policies: Annotated[list[TargetPolicy], Meta(max_length=10)] = field(default_factory=list)
    iteration: Number | None = None  # The number of a stored one; null: one of now.
    task_queues: Annotated[list[Number], Meta(max_length=1_000)] = field(default_factory=list)
    limit: Rows = 100  # Rows of each list.


class PlanSharesBody(SparseStruct, frozen=True):
    """New shares of groups, by name."""

    shares: Annotated[dict[Text, _Size], Meta(min_length=1, max_length=1_000)]


class QueuesBody(SparseStruct, frozen=True):
    """CE queues, each as (site, CE, queue)."""

    queues: Annotated[list[tuple[Name, Name, Name]], Meta(min_length=1, max_length=1_000)]


class DrainBody(SparseStruct, frozen=True):
    """Pilots that shall finish what they run and leave."""

    pilots: Annotated[list[Number], Meta(min_length=1, max_length=10_000)]


class OpenSiteBody(SparseStruct, frozen=True):
    """What to open, named as it was closed: by names, or by `path`."""

    site: Name = ""
    ce: Name = ""
    queue: Name = ""
    path: Path = ""


class CloseSiteBody(OpenSiteBody, frozen=True, kw_only=True):
    """A site, CE or queue to close: by names, or by `path`, SITE[/CE[/QUEUE]]."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_000)]
    until: Annotated[float, Meta(ge=0, le=LAST_SECOND)] | None = None  # UNIX seconds.
    # It is drained so that nothing runs there then, UNIX seconds; null: it is closed now.
    begins: Annotated[float, Meta(ge=0, le=LAST_SECOND)] | None = None
    keep_pilots: bool = False  # Pilots there take jobs as before.
    dry_run: bool = False  # Change nothing.


# --- bodies of pilots ---------------------------------------------------------------------------------------------------


class PlaceBody(Struct, frozen=True):
    """The queue that a pilot runs in."""

    site: Name
    ce: Name
    queue: Name


class JoinBody(Struct, frozen=True):
    """A pilot introduces itself with its one-time join token."""

    join_token: Token
    node: dict[str, Any]
    nonce: Text = ""
    protocol: int = 1
    place: PlaceBody | None = None  # Of pilots that were sent to no queue.
    # What its queue served as of pass `pools_pass`; the server finds them itself at each claim.
    submit_pools: list[Text] | None = None
    pools_pass: Count = 0


class FreeBody(Struct, frozen=True):
    """What a pilot has free."""

    cores: Annotated[int, Meta(ge=0, le=65_536)] = 1
    memory_mb: Count = 0
    norm_cpu_seconds: Count = 0  # Of its life; 0: unlimited.
    last_end_s: _Size | None = None  # Until its last expected end; null: unknown.


class ClaimBody(Struct, frozen=True):
    """A pilot asks for jobs."""

    claim_token: Token
    resource: FreeBody
    # It can run up to so many now; 0, if it asks only for jobs ahead: then the answer comes at once.
    count: Annotated[int, Meta(ge=0, le=1_000)] = 1
    wait_s: Annotated[float, Meta(ge=0, le=3_600)] = 0.0  # It waits up to so many seconds for the first.
    ahead: Annotated[int, Meta(ge=0, le=500)] = 0  # Up to so many more are to run later, one after another.


class RunningBody(Struct, frozen=True):
    """News of one attempt."""

    id: Number
    attempt: Number
    cpu_seconds: _Size = 0.0
    wall_seconds: _Size = 0.0
    rss_mb: _Size = 0.0
    tail: _Tail | None = None  # Only if it changed.
    state: Text = ""  # `completing`: the payload has ended, its output is sent.


class HeartbeatBody(Struct, frozen=True):
    """A pilot lives, and what its payloads do."""

    jobs: Annotated[list[RunningBody], Meta(max_length=1_000)] = []
    state: Text = "running"


class OutputBody(FileBody, frozen=True):
    """An output archive (tar.gz) that was uploaded before, or comes with the report."""

    content: Annotated[bytes, Meta(max_length=8_192)] | None = None  # In base64, if it comes with the report.


class ReportBody(Struct, frozen=True):
    """What a pilot reports of one attempt."""

    id: Number
    attempt: Number
    state: Literal["Running", "Done", "Failed", "Released"]
    cause: Text = ""
    exit_code: Code | None = None
    signal: Code | None = None
    cpu_seconds: _Size = 0.0
    wall_seconds: _Size = 0.0
    max_rss_mb: _Size = 0.0
    started: float | None = None
    ended: float | None = None
    output: OutputBody | None = None  # null: nothing was written.
    tail: _Tail = ""
    message: Annotated[str, Meta(max_length=8_192)] = ""


class ReportsBody(Struct, frozen=True):
    """Reports of one pilot, applied in order."""

    reports: Annotated[list[ReportBody], Meta(max_length=1_000)]


class LeaveBody(Struct, frozen=True):
    """A pilot ends by itself."""

    reason: Text
    message: Annotated[str, Meta(max_length=2_000)] = ""
