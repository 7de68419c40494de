"""The messages between pilot and server; every field of their JSON is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Callable, NamedTuple, TypeVar

from lodesman.base.errors import Conflict, Forbidden, InvalidRequest, NotFound

PROTOCOL = 1
MB = 1 << 20

# States and causes of a report.
RUNNING, DONE, FAILED, RELEASED = "Running", "Done", "Failed", "Released"
OK, EXIT, SIGNAL = "ok", "exit", "signal"
CPU_LIMIT, WALL_LIMIT = "cpu-limit", "wall-limit"
MEMORY_LIMIT, OUTPUT_LIMIT = "memory-limit", "output-limit"
NOT_STARTED, NEVER_STARTED, INPUT = "not-started", "never-started", "input"
WARDEN_LOST, KILLED, PILOT_SHUTDOWN = "warden-lost", "killed", "pilot-shutdown"
# It was claimed, and goes back before it started.
RETURNED = "returned"
# It ended well, and the server had no space for its output until the pilot's end.
STORAGE_FULL = "storage-full"
# The pilot has tried its node, which is of no use. Also why the pilot leaves.
NODE_FAULT = "node-fault"
_TRIED_AGAIN = (NEVER_STARTED, WARDEN_LOST, PILOT_SHUTDOWN, RETURNED, NODE_FAULT)

# The server has understood and refuses: asking again would not help.
REFUSED = (Conflict, Forbidden, InvalidRequest, NotFound)
# Above this a float does not count exactly.
_MAX_NUMBER = 2**53

T = TypeVar("T")
Priority = int
"""A whole number that may be negative."""


class AttemptKey(NamedTuple):
    """Names one attempt of one job; as text `<id>.<attempt>`."""

    id: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.id}.{self.attempt}"


@dataclass(frozen=True)
class JoinReply:
    """What the server grants at the join; times in seconds."""

    token: str = field(default="", repr=False)
    pilot: int = 0
    lease_s: float = 1800.0
    heartbeat_s: float = 60.0
    idle_s: float = 120.0
    sandbox_mb: float = 200.0  # the largest output of one job
    bound_job: int = 0  # the only job that it runs; 0: any that fits
    site: str = ""  # where it runs, '': sent nowhere in particular


@dataclass(frozen=True)
class SandboxFile:
    """A file called `name`, or an archive to unpack."""

    name: str
    url: str
    sha256: str
    size: int = 0  # bytes
    unpack: bool = False
    executable: bool = False
    modified: int = 0  # UNIX seconds, 0: not known


@dataclass(frozen=True)
class PayloadLimits:
    """What a payload may use on this node; 0: no limit."""

    cpu_seconds: float = 0
    wall_seconds: float = 0
    memory_mb: float = 0
    output_mb: float = 0
    sandbox_mb: float = 0  # the server's limit for the output of any job

    @property
    def max_output_mb(self) -> float:
        """The limit of the job's output, and of its two streams."""
        return min((limit for limit in (self.output_mb, self.sandbox_mb) if limit), default=0)


@dataclass(frozen=True)
class PayloadUsage:
    """What a payload's tree has used, and the bytes in its streams."""

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    rss_mb: float = 0.0
    stream_bytes: int = 0
    max_rss_mb: float = 0.0


@dataclass(frozen=True)
class AssignedJob:
    """One attempt of one job, claimed for this pilot."""

    key: AttemptKey
    executable: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    std_input: str = ""
    std_output: str = "std.out"
    std_error: str = "std.err"
    output_sandbox: tuple[str, ...] = ()
    cores: int = 1
    memory_mb: int = 0
    inputs: tuple[SandboxFile, ...] = ()
    limits: PayloadLimits = PayloadLimits()
    exclusive: bool = False
    vacate_priority: Priority = 0  # what is higher is kept longer
    expected_seconds: float = 0  # wall time, at most the limit; 0: unknown
    index: int | None = None  # of a member of an array


@dataclass(frozen=True)
class ClaimReply:
    """The answer to a claim."""

    jobs: Sequence[AssignedJob] = ()
    # Jobs to report as failed, with what is wrong.
    unreadable: Mapping[AttemptKey, str] = field(default_factory=dict)
    drain: bool = False


@dataclass(frozen=True)
class HeartbeatReply:
    """Attempts to kill, with reasons."""

    kill: Mapping[AttemptKey, str] = field(default_factory=dict)
    drain: bool = False
    lease_s: float = 0
    others_wait: bool = False  # for jobs that this pilot has not started


@dataclass(frozen=True)
class PayloadReport:
    """How an attempt stands. Times are UNIX seconds."""

    key: AttemptKey
    state: str
    cause: str = OK
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    max_rss_mb: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    output: Mapping[str, Any] | None = None  # sha256 and size of the packed archive
    tail: str = ""

    def as_json(self) -> dict[str, Any]:
        """What never started has no time of a start."""
        fields = {**vars(self), "started": self.started or None, "ended": self.ended or None}
        return {**fields.pop("key")._asdict(), **fields}


def report_end(key: AttemptKey, cause: str, message: str = "", **more: Any) -> PayloadReport:
    """The state follows from the cause."""
    state = DONE if cause == OK else RELEASED if cause in _TRIED_AGAIN else FAILED
    return PayloadReport(key, state, cause, message, **more)


def parse_key(text: str) -> AttemptKey | None:
    """Read `<id>.<attempt>`."""
    job, dot, attempt = text.partition(".")
    return AttemptKey(int(job), int(attempt)) if dot and job.isdecimal() and attempt.isdecimal() else None


def parse_join(answer: Any, default: JoinReply) -> JoinReply:
    """Missing numbers are those of `default`. Raises InvalidRequest."""
    record = read_record(answer, "a join's answer")
    values = {**vars(default), **{name: value for name, value in record.items() if value is not None}}
    place = record.get("place")
    site = read_value(place, "site", "str", "") if isinstance(place, dict) else default.site
    terms = read_as(JoinReply, values, token=read_value(record, "token", "str"), site=site)
    heartbeat_s, sandbox_mb = max(0.1, terms.heartbeat_s), terms.sandbox_mb or default.sandbox_mb
    return replace(terms, heartbeat_s=heartbeat_s, sandbox_mb=sandbox_mb)


def parse_claim(answer: Any, *, scaling: float = 1.0, sandbox_mb: float = 0) -> ClaimReply:
    """`scaling`: normalised CPU seconds for each second here. Raises InvalidRequest if not even ids can be read."""
    jobs, unreadable = [], {}
    for record in read_records(answer, "jobs"):
        key = _key(record)
        try:
            jobs.append(_job(key, record, scaling, sandbox_mb))
        except InvalidRequest as fault:
            unreadable[key] = fault.message
    return ClaimReply(jobs, unreadable, answer.get("drain") is True)


def parse_heartbeat(answer: Any) -> HeartbeatReply:
    """Raises InvalidRequest."""
    kill = {_key(order): read_value(order, "reason", "str", "") for order in read_records(answer, "kill")}
    return read_as(HeartbeatReply, answer, kill=kill)


def parse_refusals(answer: Any) -> dict[AttemptKey, str]:
    """Key -> why its report was refused, or "". Raises InvalidRequest."""
    refusals = {}
    for result in read_records(answer, "results"):
        accepted = result.get("accepted") is True
        refusals[_key(result)] = "" if accepted else read_value(result, "reason", "str", "refused")
    return refusals


def _job(key: AttemptKey, record: Mapping[str, Any], scaling: float, sandbox_mb: float) -> AssignedJob:
    spec = read_record(record.get("spec"), "spec")
    limits = read_record(record.get("limits") or {}, "limits")
    cpu_seconds = read_value(limits, "cpu_seconds", "float", 0.0)
    cpu_seconds = cpu_seconds or read_value(limits, "norm_cpu_seconds", "float", 0.0) / scaling
    cores = max(1, read_value(spec, "cores", "int", 1))
    wall_seconds = read_value(limits, "wall_seconds", "float", 0.0)
    expected_seconds = (
        read_value(spec, "expected_seconds", "float", 0.0) or wall_seconds or cpu_seconds / cores
    )
    return read_as(
        AssignedJob,
        spec,
        key=key,
        cores=cores,
        inputs=tuple(read_as(SandboxFile, item) for item in read_records(record, "input")),
        limits=read_as(PayloadLimits, limits, cpu_seconds=cpu_seconds, sandbox_mb=sandbox_mb),
        exclusive=record.get("exclusive") is True,
        index=None if record.get("index") is None else read_value(record, "index", "Priority"),
        expected_seconds=min(expected_seconds, wall_seconds or expected_seconds),
    )


def _key(record: Mapping[str, Any]) -> AttemptKey:
    return AttemptKey(read_value(record, "id", "int"), read_value(record, "attempt", "int"))


# --- JSON into values -----------------------------------------------------------------------------------


def read_as(kind: type[T], record: Mapping[str, Any], **given: Any) -> T:
    """Fields that are not `given` by their types, missing or empty ones by their defaults. Raises InvalidRequest."""
    for name, type_name, has_default in _fields_of(kind):  # type: ignore[arg-type]
        if name not in given and not (has_default and record.get(name) in (None, "")):
            given[name] = read_value(record, name, type_name)
    return kind(**given)


@lru_cache(maxsize=100)
def _fields_of(kind: type) -> list[tuple[str, str, bool]]:
    return [
        (
            member.name,
            str(member.type).partition(" | ")[0],
            member.default is not MISSING or member.default_factory is not MISSING,
        )
        for member in fields(kind)
    ]


def read_value(record: Mapping[str, Any], name: str, kind: str, default: Any = None) -> Any:
    """A value of a type in `_KINDS`, or the default if missing or empty. Raises InvalidRequest."""
    value = record.get(name)
    if default is not None and value in (None, ""):
        return default
    fits, words, convert = _KINDS[kind]
    if not fits(value):
        raise InvalidRequest(f"`{name}` must {words}.")  # without the value: it may be a token
    return convert(value)


def read_record(value: Any, what: str) -> Mapping[str, Any]:
    """Raises InvalidRequest."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what} must be a record.")
    return value


def read_records(value: Any, name: str) -> list[Mapping[str, Any]]:
    """Empty if the name is missing. Raises InvalidRequest."""
    items = read_record(value, "the answer").get(name)
    if items is not None and not isinstance(items, list):
        raise InvalidRequest(f"`{name}` must be a list.")
    return [read_record(item, f"each of `{name}`") for item in items or ()]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER


def _is_priority(value: Any) -> bool:
    return _is_number(-value if isinstance(value, (int, float)) and value < 0 else value)


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


# For the type of a field: which JSON values fit, the words for others, and the conversion.
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str, Callable[[Any], Any]]] = {
    "str": (lambda value: isinstance(value, str), "be a text", str),
    "int": (_is_number, "be a number from 0 to 2^53", int),
    "float": (_is_number, "be a number from 0 to 2^53", float),
    "Priority": (_is_priority, "be a number from -2^53 to 2^53", int),
    "bool": (lambda _: True, "be a truth value", lambda value: value is True),
    "tuple[str, ...]": (
        lambda value: isinstance(value, list) and _are_texts(value), "be a list of texts", tuple
    ),
    "Mapping[str, str]": (
        lambda value: isinstance(value, dict) and _are_texts(value.values()), "map names to texts", dict
    ),
}  # fmt: skip
