"""What requests to the server hold: parameters of path and query, and bodies, as checked types."""

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
Given = Annotated[str, Meta(min_length=1, max_length=255)]  # a VO, a group: the configuration knows them


class Sent(Struct, frozen=True, omit_defaults=True):
    """What differs from the defaults is sent."""


class Paged(Sent, frozen=True, kw_only=True):
    """A list, at most `limit` rows of it; `after`: those that follow the page with this `cursor`."""

    after: str = ""
    limit: Rows = 1_000


class AllQuery(Paged, frozen=True, kw_only=True):
    """A list that most clients want whole."""

    limit: Rows = MOST_ROWS


# --- parameters of path and query ---------------------------------------------------------------------------------------


class JobAt(Sent, frozen=True):
    """A job."""

    job: int


class AttemptAt(JobAt, frozen=True):
    """An attempt of a job."""

    attempt: int


class JobInQueue(JobAt, frozen=True):
    """A job, and SITE/CE/QUEUE if one queue is asked about."""

    queue: str = ""


class JobInForm(JobAt, frozen=True):
    """A job, and a language for its description; else the language in which it was submitted."""

    form: Form | None = None


class SandboxAt(Sent, frozen=True):
    """An input file by its SHA-256."""

    digest: str


class PilotAt(Sent, frozen=True):
    """A pilot by its number or its stamp."""

    pilot: str


class PilotsQuery(Paged, frozen=True):
    """`all`: with those that ended."""

    all: bool = False
    limit: Rows = 1_000


class TaskQueuesQuery(Paged, frozen=True):
    """Task queues, or those whose jobs wait for one reason."""

    limit: Rows = 1_000
    reason: str = ""


class PoolsQuery(Paged, frozen=True):
    """SubmitPools of a VO; without it of the caller's, for administrators all."""

    vo: str = ""
    limit: Rows = 100


class PoolAt(Sent, frozen=True):
    """A SubmitPool by the beginning of its id."""

    pool: str
    vo: str = ""


class QueuesQuery(AllQuery, frozen=True):
    """CE queues as a VO, else the caller's, sees them; `origin`: with the place where each value is written."""

    vo: str = ""
    origin: bool = False


class NodeQuery(Sent, frozen=True):
    """A site, CE or queue: by `path`, or by names; as a VO sees it."""

    path: str = ""
    site: str = ""
    ce: str = ""
    queue: str = ""
    vo: str = ""


# --- bodies of users ----------------------------------------------------------------------------------------------------


class FileBody(Sent, frozen=True):
    """A file that the caller uploaded before."""

    sha256: _Sha
    size: Count


class InputBody(FileBody, frozen=True):
    """A file of an input sandbox that the caller uploaded before. `executable`: it may be executed where it came from;
    `modified`: its time of change there, in whole UNIX seconds (0: not known).
    """

    executable: bool = False
    modified: Count = 0


class PlanJobBody(Sent, frozen=True):
    """Jobs to plan: one or many descriptions as text (JDL, CFG, JSON), or as JSON records. `hold`: they are Held until their
    owner releases them. `ignore_unknown`: attributes of other systems mean nothing. `client_jsv`: which JSV of the user
    wrote which attribute of Grid Engine (`l_hard h_rt`); `edits` are made in each of them, after its class. `usual_name`:
    JobName is what the client calls the program, and counts only where no job class gives a name.
    """

    text: str | None = None
    texts: Annotated[list[str], Meta(max_length=_MOST_JOBS)] | None = None
    jobs: Annotated[list[dict[str, Any]], Meta(max_length=_MOST_JOBS)] | None = None
    form: Annotated[str, Meta(pattern=rf"^(jdl|cfg|json)?{END}")] = ""
    group: Text = ""
    hold: bool = False
    hold_if_impossible: bool = False
    ignore_unknown: bool = False
    client_jsv: Annotated[dict[Text, Path], Meta(max_length=1_000)] = {}
    edits: Annotated[list[AttributeEdit], Meta(max_length=1_000)] = []
    usual_name: bool = False


class SubmitBody(PlanJobBody, frozen=True):
    """Jobs to submit. `sandboxes`: entry of InputSandbox -> upload. `request_id`: the same gets the first answer again."""

    dry_run: bool = False
    sandboxes: dict[str, InputBody] = {}
    request_id: Text | None = None


class PlanFileBody(Sent, frozen=True):
    """A resource file: TOML if its name ends so, else DIRAC CFG."""

    name: Annotated[str, Meta(min_length=1, max_length=4_096)]
    text: str


class PlanResourcesBody(Sent, frozen=True):
    """Resource files instead of the server's, or (`add`) beside them. `limit`: members of each list of the answer."""

    files: Annotated[list[PlanFileBody], Meta(min_length=1, max_length=1_000)]
    add: bool = False
    limit: Rows = 100


class PlanDirectorBody(Sent, frozen=True):
    """An iteration of the director, stored or of now, by these policies (none: its own). `limit`: rows of each list."""

    policies: Annotated[list[TargetPolicy], Meta(max_length=10)] = field(default_factory=list)
    iteration: Number | None = None
    task_queues: Annotated[list[Number], Meta(max_length=1_000)] = field(default_factory=list)
    limit: Rows = 100


class PlanSharesBody(Sent, frozen=True):
    """New shares of groups, by name."""

    shares: Annotated[dict[Text, _Size], Meta(min_length=1, max_length=1_000)]


class QueuesBody(Sent, frozen=True):
    """CE queues, each as (site, CE, queue)."""

    queues: Annotated[list[tuple[Name, Name, Name]], Meta(min_length=1, max_length=1_000)]


class DrainBody(Sent, frozen=True):
    """Pilots that shall finish what they run and leave."""

    pilots: Annotated[list[Number], Meta(min_length=1, max_length=10_000)]


class OpenSiteBody(Sent, frozen=True):
    """What to open, named as it was closed: by names, or by `path`."""

    site: Name = ""
    ce: Name = ""
    queue: Name = ""
    path: Path = ""


class CloseSiteBody(OpenSiteBody, frozen=True, kw_only=True):
    """A site, CE or queue to close: by names, or by `path`, SITE[/CE[/QUEUE]]. `until` in UNIX seconds. `begins`: likewise;
    it is drained so that nothing runs there then; null: it is closed now. `keep_pilots`: pilots there take jobs as before.
    `dry_run`: nothing is changed.
    """

    reason: Annotated[str, Meta(min_length=1, max_length=1_000)]
    until: Annotated[float, Meta(ge=0, le=LAST_SECOND)] | None = None
    begins: Annotated[float, Meta(ge=0, le=LAST_SECOND)] | None = None
    keep_pilots: bool = False
    dry_run: bool = False


# --- bodies of pilots ---------------------------------------------------------------------------------------------------


class PlaceBody(Struct, frozen=True):
    """The queue that a pilot runs in."""

    site: Name
    ce: Name
    queue: Name


class JoinBody(Struct, frozen=True):
    """A pilot introduces itself with its one-time join token; `place` is for pilots that were sent to no queue.
    `submit_pools` are what that queue served as of pass `pools_pass`; the server finds them itself at each claim.
    """

    join_token: Token
    node: dict[str, Any]
    nonce: Text = ""
    protocol: int = 1
    place: PlaceBody | None = None
    submit_pools: list[Text] | None = None
    pools_pass: Count = 0


class FreeBody(Struct, frozen=True):
    """Free: `norm_cpu_seconds` of its life (0: unlimited). `last_end_s`: until its last expected end (null: unknown)."""

    cores: Annotated[int, Meta(ge=0, le=65_536)] = 1
    memory_mb: Count = 0
    norm_cpu_seconds: Count = 0
    last_end_s: _Size | None = None


class ClaimBody(Struct, frozen=True):
    """A pilot asks for up to `count` jobs that it can run now and waits up to `wait_s` seconds for the first. Up to `ahead`
    more are to run later, one after another; then `count` may be 0, and the answer comes at once.
    """

    claim_token: Token
    resource: FreeBody
    count: Annotated[int, Meta(ge=0, le=1_000)] = 1
    wait_s: Annotated[float, Meta(ge=0, le=3_600)] = 0.0
    ahead: Annotated[int, Meta(ge=0, le=500)] = 0


class RunningBody(Struct, frozen=True):
    """News of one attempt; `tail` only if it changed. `state` `completing`: the payload has ended, its output is sent."""

    id: Number
    attempt: Number
    cpu_seconds: _Size = 0.0
    wall_seconds: _Size = 0.0
    rss_mb: _Size = 0.0
    tail: _Tail | None = None
    state: Text = ""


class HeartbeatBody(Struct, frozen=True):
    """A pilot lives, and what its payloads do."""

    jobs: Annotated[list[RunningBody], Meta(max_length=1_000)] = []
    state: Text = "running"


class OutputBody(FileBody, frozen=True):
    """An output archive (tar.gz) that was uploaded before, or comes with the report: `content` in base64."""

    content: Annotated[bytes, Meta(max_length=8_192)] | None = None


class ReportBody(Struct, frozen=True):
    """What a pilot reports of one attempt. `output` null: nothing was written."""

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
    output: OutputBody | None = None
    tail: _Tail = ""
    message: Annotated[str, Meta(max_length=8_192)] = ""


class ReportsBody(Struct, frozen=True):
    """Reports of one pilot, applied in order."""

    reports: Annotated[list[ReportBody], Meta(max_length=1_000)]


class LeaveBody(Struct, frozen=True):
    """A pilot ends by itself."""

    reason: Text
    message: Annotated[str, Meta(max_length=2_000)] = ""
