"""The messages between pilot and server as values, and JSON read into them with every field checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lodesman.errors import InvalidRequest

PROTOCOL = 1
MB = 1 << 20

# States and causes of a report.
RUNNING, DONE, FAILED, RELEASED = "Running", "Done", "Failed", "Released"
OK, EXIT, SIGNAL = "ok", "exit", "signal"
CPU_LIMIT, WALL_LIMIT = "cpu-limit", "wall-limit"
MEMORY_LIMIT, OUTPUT_LIMIT = "memory-limit", "output-limit"
NOT_STARTED, INPUT, KILLED, PILOT_SHUTDOWN = "not-started", "input", "killed", "pilot-shutdown"

# Above this a float does not count exactly.
_MAX_NUMBER = 2**53


class AttemptKey(NamedTuple):
    """Names one attempt of one job; as text `<id>.<attempt>`."""

    id: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.id}.{self.attempt}"


@dataclass(frozen=True)
class JoinReply:
    """What the server grants at the join; times in seconds. `sandbox_mb`: the largest output of one job."""

    token: str = field(default="", repr=False)
    pilot: int = 0
    lease_s: float = 1800.0
    heartbeat_s: float = 60.0
    idle_s: float = 120.0
    sandbox_mb: float = 200.0


@dataclass(frozen=True)
class SandboxFile:
    """One part of the input sandbox: a file called `name`, or an archive to unpack. `size` in bytes."""

    name: str
    url: str
    sha256: str
    size: int
    unpack: bool


@dataclass(frozen=True)
class PayloadLimits:
    """What a payload may use; 0 means no limit. `cpu_seconds` are those of this node, of all cores together.

    `output_mb` is the limit of the job, `sandbox_mb` the limit of the server for every job.
    """

    cpu_seconds: float = 0
    wall_seconds: float = 0
    memory_mb: float = 0
    output_mb: float = 0
    sandbox_mb: float = 0

    @property
    def max_output_mb(self) -> float:
        """The limit of the job's output, and of its two streams."""
        return min((limit for limit in (self.output_mb, self.sandbox_mb) if limit), default=0)


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


@dataclass(frozen=True)
class ClaimReply:
    """The answer to a claim. `unreadable`: jobs that are reported as failed, each with what is wrong."""

    jobs: Sequence[AssignedJob] = ()
    unreadable: Mapping[AttemptKey, str] = field(default_factory=dict)
    drain: bool = False


@dataclass(frozen=True)
class HeartbeatReply:
    """The answer to a heartbeat: attempts to kill, with reasons."""

    kill: Mapping[AttemptKey, str] = field(default_factory=dict)
    drain: bool = False
    lease_s: float = 0


@dataclass(frozen=True)
class AttemptReport:
    """How an attempt stands. Times are UNIX seconds; `output` is sha256 and size of the packed archive."""

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
    output: Mapping[str, Any] | None = None
    tail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The report as the server reads it."""
        fields = dict(vars(self))
        return {**fields.pop("key")._asdict(), **fields}


def report_end(key: AttemptKey, cause: str, message: str = "", **more: Any) -> AttemptReport:
    """The report of an end; its state follows from the cause."""
    state = DONE if cause == OK else RELEASED if cause == PILOT_SHUTDOWN else FAILED
    return AttemptReport(key, state, cause, message, **more)


def parse_key(text: str) -> AttemptKey | None:
    """Read `<id>.<attempt>`; None for any other text."""
    job, dot, attempt = text.partition(".")
    return AttemptKey(int(job), int(attempt)) if dot and job.isdecimal() and attempt.isdecimal() else None


def parse_join(answer: Any, default: JoinReply) -> JoinReply:
    """Read the answer to a join; numbers that are missing are those of `default`. Raises InvalidRequest."""
    record = _record(answer, "a join's answer")
    return JoinReply(
        token=read_text(record, "token"),
        pilot=int(read_number(record, "pilot")),
        lease_s=read_number(record, "lease_s", default.lease_s),
        heartbeat_s=max(0.1, read_number(record, "heartbeat_s", default.heartbeat_s)),
        idle_s=read_number(record, "idle_s", default.idle_s),
        sandbox_mb=read_number(record, "sandbox_mb") or default.sandbox_mb,
    )


def parse_claim(answer: Any, *, scaling: float = 1.0, sandbox_mb: float = 0) -> ClaimReply:
    """Read the answer to a claim. `scaling`: normalised CPU seconds for each second of this node.

    Raises InvalidRequest if not even ids can be read.
    """
    jobs, unreadable = [], {}
    for item in _read_list(_record(answer, "a claim's answer"), "jobs"):
        record = _record(item, "a job")
        key = _key(record)
        try:
            jobs.append(_job(key, record, _limits(record, scaling, sandbox_mb)))
        except InvalidRequest as fault:
            unreadable[key] = fault.message
    return ClaimReply(jobs, unreadable, answer.get("drain") is True)


def parse_heartbeat(answer: Any) -> HeartbeatReply:
    """Read the answer to a heartbeat. Raises InvalidRequest."""
    record = _record(answer, "a heartbeat's answer")
    orders = [_record(item, "a kill order") for item in _read_list(record, "kill")]
    kill = {_key(order): read_text(order, "reason", "") for order in orders}
    return HeartbeatReply(kill, record.get("drain") is True, read_number(record, "lease_s"))


def parse_refusals(answer: Any) -> dict[AttemptKey, str]:
    """Read the answer to reports: key -> why the report was refused, or "". Raises InvalidRequest."""
    refusals = {}
    for item in _read_list(_record(answer, "the answer to reports"), "results"):
        result = _record(item, "a result")
        accepted = result.get("accepted") is True
        refusals[_key(result)] = "" if accepted else read_text(result, "reason", "") or "refused"
    return refusals


def _job(key: AttemptKey, record: Mapping[str, Any], limits: PayloadLimits) -> AssignedJob:
    spec = _record(record.get("spec"), "spec")
    return AssignedJob(
        key=key,
        executable=read_text(spec, "executable"),
        arguments=read_texts(spec, "arguments"),
        environment=_environment(spec.get("environment") or {}),
        std_input=read_text(spec, "std_input", ""),
        std_output=read_text(spec, "std_output", "") or "std.out",
        std_error=read_text(spec, "std_error", "") or "std.err",
        output_sandbox=read_texts(spec, "output_sandbox"),
        cores=max(1, int(read_number(spec, "cores"))),
        memory_mb=int(read_number(spec, "memory_mb")),
        inputs=tuple(_input(_record(item, "input")) for item in _read_list(record, "input")),
        limits=limits,
        exclusive=record.get("exclusive") is True,
    )


def _limits(record: Mapping[str, Any], scaling: float, sandbox_mb: float) -> PayloadLimits:
    limits = _record(record.get("limits") or {}, "limits")
    return PayloadLimits(
        cpu_seconds=read_number(limits, "cpu_seconds") or read_number(limits, "norm_cpu_seconds") / scaling,
        wall_seconds=read_number(limits, "wall_seconds"),
        memory_mb=read_number(limits, "memory_mb"),
        output_mb=read_number(limits, "output_mb"),
        sandbox_mb=sandbox_mb,
    )


def _input(record: Mapping[str, Any]) -> SandboxFile:
    return SandboxFile(
        name=read_text(record, "name"),
        url=read_text(record, "url"),
        sha256=read_text(record, "sha256"),
        size=int(read_number(record, "size")),
        unpack=record.get("unpack") is True,
    )


def _environment(record: Any) -> dict[str, str]:
    values = _record(record, "environment")
    if not all(isinstance(value, str) for value in values.values()):
        raise InvalidRequest("`environment` must map names to texts.")
    return dict(values)


def _key(record: Mapping[str, Any]) -> AttemptKey:
    numbers = (record.get("id"), record.get("attempt"))
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise InvalidRequest("`id` and `attempt` must be whole numbers.")
    return AttemptKey(*numbers)  # type: ignore[arg-type]


def _record(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what} must be a record.")
    return value


def _read_list(record: Mapping[str, Any], name: str) -> list[Any]:
    """A list, empty if it is missing. Raises InvalidRequest."""
    value = record.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"`{name}` must be a list.")
    return value


def read_text(record: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text. Raises InvalidRequest, which does not show the value: it may be a token."""
    value = record.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a text.")
    return value


def read_texts(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts, empty if it is missing. Raises InvalidRequest."""
    values = _read_list(record, name)
    if not all(isinstance(value, str) for value in values):
        raise InvalidRequest(f"`{name}` must be a list of texts.")
    return tuple(values)


def read_number(record: Mapping[str, Any], name: str, default: float = 0) -> float:
    """A number from 0 on. Raises InvalidRequest."""
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise InvalidRequest(f"`{name}` must be a number from 0 to 2^53.")
    return value
