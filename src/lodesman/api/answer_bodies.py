"""The answers of the most used calls, as types: the OpenAPI document is made from them, and a test holds them
against what the server really answers. Answers may get more members in later releases.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field


class Notice(Struct):
    """A remark on a description that was accepted."""

    attribute: str
    message: str
    line: int | None
    column: int | None


class Submission(Struct):
    """What became of a submission: ids `first` to `first + count - 1`; `held` of them wait for a change of the sites.

    `repeated`: an earlier call with the same request id made them. A dry run has only `count`, `held` and `notices`.
    """

    count: int
    held: int
    notices: list[Notice]
    submission: int = 0
    first: int = 0
    repeated: bool = False
    dry_run: bool = False


class Job(Struct):
    """A job with its last attempt. Times in UNIX seconds; `main_reason` is why it waits, None until that was judged."""

    id: int
    state: str
    attempt: int
    since: float
    reason: str
    held_by: str | None
    owner: str
    group: str
    vo: str
    name: str
    submitted_at: float
    task_queue: int | None
    template: int | None
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
    base: int
    main_reason: str | None


class Jobs(Struct):
    """Jobs in the order of their ids."""

    jobs: list[Job]


class Attempt(Struct):
    """One attempt of a job."""

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


class JobInFull(Job):
    """A job with all its attempts and events; `sites` are those that fulfil its Requirements, where it has any."""

    sites: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)


class Count(Struct):
    """So many jobs."""

    owner: str
    group: str
    state: str
    jobs: int


class Counts(Struct):
    """Jobs that the caller may see, counted."""

    counts: list[Count]


class Step(Struct):
    """One step on the way from a job to a pilot; `holds`: it stands in nobody's way. More by step."""

    step: str
    holds: bool | None
    text: str


class Why(Struct):
    """Why a job waits; for one that does not, only its state and a summary."""

    id: int
    state: str
    verdict: Literal["never", "not now", "now"] | None = None
    main_reason: str | None = None
    summary: str = ""
    who: str = ""
    chain: list[Step] = field(default_factory=list)


class Logs(Struct):
    """The last output of a job; `live`: it still runs."""

    id: int
    state: str
    attempt: int
    live: bool
    tail: str


class Controlled(Struct):
    """How many jobs were changed; how many were not, and some of them with the reason."""

    changed: int
    refused: int
    examples: list[Any]


class Stored(Struct):
    """A file that the server has."""

    sha256: str
    size: int


class Place(Struct):
    """A CE queue."""

    site: str
    ce: str
    queue: str


class Joined(Struct):
    """A pilot's number, token and habits, in seconds; `place`: where it was sent."""

    pilot: int
    stamp: str
    token: str
    lease_s: float
    heartbeat_s: float
    idle_s: float
    server_time: float
    place: Place | None = None
    submit_pools: list[str] = field(default_factory=list)
    pools_pass: int = 0


class Payload(Struct):
    """What is run, and with what."""

    name: str
    executable: str
    arguments: list[str]
    environment: dict[str, str]
    std_input: str
    std_output: str
    std_error: str
    output_sandbox: list[str]
    cores: int
    memory_mb: int


class InputFile(Struct):
    """A file of the input sandbox, to be fetched from `url`; `unpack`: an archive."""

    name: str
    url: str
    sha256: str
    size: int
    unpack: bool


class Limits(Struct):
    """What an attempt may use; 0: no limit."""

    norm_cpu_seconds: int
    cpu_seconds: int
    wall_seconds: int
    memory_mb: int
    output_mb: int


class ClaimedJob(Struct):
    """One attempt handed to a pilot. `exclusive`: it must not run longer than the server is heard."""

    id: int
    attempt: int
    spec: Payload
    input: list[InputFile]
    limits: Limits
    exclusive: bool


class ClaimAnswer(Struct):
    """The jobs that a pilot got; `drain`: it shall ask no more."""

    jobs: list[ClaimedJob]
    drain: bool


class KillOrder(Struct):
    """A payload to be ended."""

    id: int
    attempt: int
    reason: str


class HeartbeatAnswer(Struct):
    """What a pilot shall end, and how long its lease is, in seconds."""

    kill: list[KillOrder]
    drain: bool
    lease_s: float


class ReportResult(Struct):
    """Whether a report counted, and why not."""

    id: int
    attempt: int
    accepted: bool
    reason: str = ""


class ReportsAnswer(Struct):
    """One result per report, in their order."""

    results: list[ReportResult]


class Token(Struct):
    """A token, shown this once."""

    token: str


class TokenRow(Struct):
    """What is known of a token; `expires_at` None: it does not expire."""

    hash: str
    kind: str
    account: str
    scopes: str
    note: str
    created_at: float
    expires_at: float | None


class Tokens(Struct):
    """The tokens of users."""

    tokens: list[TokenRow]


class ServedQueue(Place):
    """A CE queue and the SubmitPools that it serves."""

    pools: list[str] = field(default_factory=list)


class Served(Struct):
    """SubmitPools by CE queue, as of the pass number `pass`."""

    number: int = field(name="pass")
    at: float
    queues: list[ServedQueue]


class Inputs(Struct):
    """What the input files of a user take; `limit` None: they may take any room."""

    files: int
    bytes: int
    limit: int | None


class Me(Struct):
    """Whose token this is."""

    name: str
    kind: str
    vo: str
    groups: list[str]
    admin: bool
    scopes: list[str]
    inputs: Inputs


class Pilot(Struct):
    """A pilot."""

    id: int
    stamp: str
    state: str
    vo: str
    owner: str
    group: str
    pilot_type: str
    submission_pool: str
    task_queue: int | None
    site: str
    ce: str
    queue: str
    native_id: str | None
    created_at: float
    submitted_at: float | None
    joined_at: float | None
    last_seen: float | None
    ended_at: float | None
    drain: int
    reason: str
    jobs_done: int


class Pilots(Struct):
    """Pilots, the newest first."""

    pilots: list[Pilot]


class Pool(Struct):
    """A SubmitPool. More members tell of its queues and jobs."""

    id: str
    vo: str


class Pools(Struct):
    """SubmitPools, those that most jobs need first; `total`: how many there are."""

    pools: list[Pool]
    total: int
    last_pass: dict[str, Any] | None
