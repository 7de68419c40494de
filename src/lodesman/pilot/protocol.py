"""What pilot and server say to each other, as values. A language: JSON values to dataclasses and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lodesman.errors import InvalidRequest

PROTOCOL = 1

# (job id, attempt)
Key = tuple[int, int]

# States and causes of a report.
RUNNING, DONE, FAILED, RELEASED = "Running", "Done", "Failed", "Released"
OK, EXIT, SIGNAL = "ok", "exit", "signal"
CPU_LIMIT, WALL_LIMIT = "cpu-limit", "wall-limit"
MEMORY_LIMIT, OUTPUT_LIMIT = "memory-limit", "output-limit"
NOT_STARTED, INPUT, KILLED, PILOT_SHUTDOWN = "not-started", "input", "killed", "pilot-shutdown"

# What a number may be: beyond this a float is no exact count any more.
_MOST = 2**53


@dataclass(frozen=True)
class InputFile:
    """One part of the input sandbox: a file called `name`, or an archive to unpack. `size` in bytes."""

    name: str
    url: str
    sha256: str
    size: int
    unpack: bool


@dataclass(frozen=True)
class Limits:
    """What a payload may use; 0 means no limit. `cpu_seconds` counts all cores together.

    `output_mb` is what the job asked for itself, `sandbox_mb` the most that the server takes from any.
    """

    cpu_seconds: float = 0
    norm_cpu_seconds: float = 0
    wall_seconds: float = 0
    memory_mb: float = 0
    output_mb: float = 0
    sandbox_mb: float = 0

    @property
    def most_output_mb(self) -> float:
        """The most that its output, and its two streams, may have."""
        return min((most for most in (self.output_mb, self.sandbox_mb) if most), default=0)


@dataclass(frozen=True)
class Job:
    """One attempt of one job, claimed for this pilot."""

    id: int
    attempt: int
    executable: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    std_input: str = ""
    std_output: str = "std.out"
    std_error: str = "std.err"
    output_sandbox: tuple[str, ...] = ()
    cores: int = 1
    memory_mb: int = 0
    inputs: tuple[InputFile, ...] = ()
    limits: Limits = Limits()
    exclusive: bool = False

    @property
    def key(self) -> Key:
        """Names the attempt in all that pilot and server say."""
        return (self.id, self.attempt)

    @property
    def label(self) -> str:
        """The key as text: `<id>.<attempt>`."""
        return label(self.key)


@dataclass(frozen=True)
class Broken:
    """A job of a claim that cannot be understood; it has to be reported all the same."""

    key: Key
    message: str


@dataclass(frozen=True)
class Claim:
    """The answer to a claim."""

    jobs: tuple[Job, ...] = ()
    broken: tuple[Broken, ...] = ()
    drain: bool = False


@dataclass(frozen=True)
class Orders:
    """The answer to a heartbeat: attempts to kill, with reasons."""

    kill: tuple[tuple[Key, str], ...] = ()
    drain: bool = False
    lease_s: float | None = None


@dataclass(frozen=True)
class Report:
    """How an attempt stands. Times are UNIX seconds; `output` is (sha256, bytes) of the stored archive."""

    key: Key
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
    output: tuple[str, int] | None = None
    tail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The report as the server reads it."""
        output = None if self.output is None else {"sha256": self.output[0], "size": self.output[1]}
        return {
            "id": self.key[0],
            "attempt": self.key[1],
            "state": self.state,
            "cause": self.cause,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "max_rss_mb": round(self.max_rss_mb, 1),
            "started": self.started,
            "ended": self.ended,
            "output": output,
            "tail": self.tail,
            "message": self.message,
        }


def label(key: Key) -> str:
    """`<id>.<attempt>`."""
    return f"{key[0]}.{key[1]}"


def parse_claim(answer: Any, *, sandbox_mb: float = 0) -> Claim:
    """Read the answer to a claim; `sandbox_mb` is the most that the server takes as one job's output (0: unknown).

    Raises InvalidRequest if not even ids can be read.
    """
    jobs, broken = [], []
    for record in _list(_record(answer, "a claim's answer"), "jobs"):
        key = _key(_record(record, "a job"))
        try:
            jobs.append(_job(key, record, sandbox_mb))
        except InvalidRequest as fault:
            broken.append(Broken(key, fault.message))
    return Claim(tuple(jobs), tuple(broken), answer.get("drain") is True)


def parse_orders(answer: Any) -> Orders:
    """Read the answer to a heartbeat. Raises InvalidRequest."""
    record = _record(answer, "a heartbeat's answer")
    kill = []
    for item in _list(record, "kill"):
        order = _record(item, "a kill order")
        kill.append((_key(order), _text(order, "reason", "")))
    lease_s = _number(record, "lease_s") if record.get("lease_s") is not None else None
    return Orders(tuple(kill), record.get("drain") is True, lease_s)


def parse_verdicts(answer: Any) -> dict[Key, str | None]:
    """Read the answer to reports: key -> None if accepted, else the reason. Raises InvalidRequest."""
    verdicts: dict[Key, str | None] = {}
    for item in _list(_record(answer, "the answer to reports"), "results"):
        result = _record(item, "a result")
        refused = None if result.get("accepted") is True else _text(result, "reason", "") or "refused"
        verdicts[_key(result)] = refused
    return verdicts


def _job(key: Key, record: Mapping[str, Any], sandbox_mb: float) -> Job:
    spec = _record(record.get("spec"), "spec")
    limits = {"sandbox_mb": sandbox_mb, **_record(record.get("limits") or {}, "limits")}
    return Job(
        id=key[0],
        attempt=key[1],
        executable=_text(spec, "executable"),
        arguments=_texts(spec, "arguments"),
        environment=_environment(spec.get("environment") or {}),
        std_input=_text(spec, "std_input", ""),
        std_output=_text(spec, "std_output", "") or "std.out",
        std_error=_text(spec, "std_error", "") or "std.err",
        output_sandbox=_texts(spec, "output_sandbox"),
        cores=max(1, int(_number(spec, "cores"))),
        memory_mb=int(_number(spec, "memory_mb")),
        inputs=tuple(_input(_record(item, "input")) for item in _list(record, "input")),
        limits=Limits(**{name: _number(limits, name) for name in Limits.__dataclass_fields__}),
        exclusive=record.get("exclusive") is True,
    )


def _input(record: Mapping[str, Any]) -> InputFile:
    return InputFile(
        name=_text(record, "name"),
        url=_text(record, "url"),
        sha256=_text(record, "sha256"),
        size=int(_number(record, "size")),
        unpack=record.get("unpack") is True,
    )


def _environment(record: Any) -> dict[str, str]:
    values = _record(record, "environment")
    if not all(isinstance(value, str) for value in values.values()):
        raise InvalidRequest("`environment` is no map of texts.")
    return dict(values)


def _key(record: Mapping[str, Any]) -> Key:
    key = (record.get("id"), record.get("attempt"))
    for number in key:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise InvalidRequest("`id` or `attempt` is missing or no number.")
    return key  # type: ignore[return-value]


def _record(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what} is no record.")
    return value


def _list(record: Mapping[str, Any], name: str) -> list[Any]:
    value = record.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"`{name}` is no list.")
    return value


def _text(record: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = record.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` is missing or no text.")
    return value


def _texts(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _list(record, name)
    if not all(isinstance(value, str) for value in values):
        raise InvalidRequest(f"`{name}` is no list of texts.")
    return tuple(values)


def _number(record: Mapping[str, Any], name: str) -> float:
    value = record.get(name)
    if value is None:
        return 0
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise InvalidRequest(f"`{name}` is no number that makes sense.")
    return value
