"""What ARC's interface reads and answers, as values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.errors import BackendFault
from lodesman.server.engines.backend import (
    BatchLoad,
    Check,
    NativeState,
    NativeStatus,
    PilotSpec,
    SubmitRefusal,
)

SCRIPT: Final = "lodesman.sh"
OUTPUT: Final = "lodesman.out"

# Up to SUBMITTING a job is with ARC alone; from EXECUTED on it has ended, while ARC still works on its files. ARC says
# OTHER of a job that its batch system suspended, or of whose state it knows no word.
_STATES: Final = {
    **dict.fromkeys(("ACCEPTING", "ACCEPTED", "PREPARING", "PREPARED"), NativeState.WAITING),
    **dict.fromkeys(("SUBMITTING", "QUEUING"), NativeState.WAITING),
    "HELD": NativeState.HELD,
    **dict.fromkeys(
        ("RUNNING", "OTHER", "EXITINGLRMS", "EXECUTED", "FINISHING", "KILLING"), NativeState.RUNNING
    ),
    **dict.fromkeys(("FINISHED", "FAILED", "KILLED", "WIPED"), NativeState.ENDED),
}
BEFORE_SUBMISSION: Final = ("ACCEPTING", "ACCEPTED", "PREPARING", "PREPARED")
# A job that is killed before it is submitted goes on to FINISHING.
SUBMITTED: Final = ("SUBMITTING", "QUEUING", "RUNNING", "HELD", "EXITINGLRMS", "OTHER", "EXECUTED", "KILLING")
# A reason of ARC's with one of these does not go away by itself.
_LASTING: Final = re.compile(
    r"requested queue|requested lrms|not supported|unsupported|pars(?:e|ing)|too big|description",
    re.IGNORECASE,
)
# GLUE2 writes nines where a number is not known or has no limit.
_NO_NUMBER: Final = 999_999_999


def state_of(word: str) -> NativeState:
    """UNKNOWN for a word that ARC does not have."""
    return _STATES.get(word, NativeState.UNKNOWN)


def descriptions(spec: PilotSpec, stamps: Mapping[int, str], script_bytes: int) -> str:
    """The copies as xRSL, in the order of `stamps`. The options of `spec` are relations, such as
    `(runtimeenvironment="ENV/PROXY")`. A job starts once its script has arrived whole.
    """
    memory = -(-spec.memory_mb // max(spec.cores, 1))  # ARC counts it for each core
    shared = [
        ("executable", SCRIPT),
        ("stdout", OUTPUT),
        ("stderr", OUTPUT),  # ARC drops `join` from descriptions that come together
        ("queue", spec.queue.queue),
        ("count", str(spec.cores)),
        ("countpernode", str(spec.cores)),
        *([("memory", str(memory))] if memory else []),
        *([("walltime", str(spec.wall_seconds))] if spec.wall_seconds else []),  # seconds, for the server
    ]
    files = f'(executables="{SCRIPT}")(inputfiles=("{SCRIPT}" "{script_bytes}"))(outputfiles=("{OUTPUT}" ""))'
    relations = "".join(f"({name}={_quote(value)})" for name, value in shared) + files + "".join(spec.options)
    jobs = [f'&(jobname="{stamp}")(arguments="{number}"){relations}' for number, stamp in stamps.items()]
    return jobs[0] if len(jobs) == 1 else "+" + "".join(f"({job})" for job in jobs)


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def request_body(ids: Iterable[str]) -> bytes:
    """The body of a request about these jobs."""
    return json.dumps({"job": [{"id": native_id} for native_id in ids]}).encode()


class ArcRecord(NamedTuple):
    """What ARC says of one job; '' where it says nothing."""

    code: int
    reason: str
    native_id: str
    state: str
    document: Mapping[str, Any]


def refusal_of(code: int, reason: str) -> SubmitRefusal:
    """Why ARC made no job. Words about the description mean that the same is refused again."""
    lasting = bool(_LASTING.search(reason)) or code in {400, 404, 413}
    return SubmitRefusal(reason=reason or f"ARC answered {code}", transient=not lasting)


def jobs_in(body: bytes) -> list[ArcRecord]:
    """The jobs of an answer, in order; a record that makes no sense has code 0. Raises BackendFault."""
    jobs = _parse_mapping(body).get("job")
    if not isinstance(jobs, (dict, list)):
        raise BackendFault("ARC sent an answer without jobs.", transient=True)
    return [_record(item) for item in (jobs if isinstance(jobs, list) else [jobs])]


def _parse_mapping(body: bytes) -> Mapping[str, Any]:
    text = body.decode(errors="replace")
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BackendFault(f"ARC sent no answer that can be read: {text[:80]!r}.", transient=True)
    return value


def _record(item: object) -> ArcRecord:
    if not isinstance(item, dict):
        return ArcRecord(0, "", "", "", {})
    document = item.get("info_document")
    activity = document.get("ComputingActivity") if isinstance(document, dict) else None
    code = _text(item.get("status-code"))
    return ArcRecord(
        int(code) if code.isascii() and code.isdigit() else 0,
        _text(item.get("reason")),
        _text(item.get("id")),
        _text(item.get("state")),
        activity if isinstance(activity, dict) else {},
    )


def _text(value: object) -> str:
    """GLUE2 has a value once, twice (the last counts), with attributes or not at all."""
    if isinstance(value, list):
        value = value[-1] if value else ""
    return value if isinstance(value, str) else ""


class ArcFacts(Struct, frozen=True, kw_only=True):
    """What ARC knows of a job besides its state; '' and None where it says nothing. UNIX seconds."""

    name: str = ""
    queue: str = ""
    host: str = ""
    message: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    seen: str = ""  # the state in which this was asked


def facts_of(document: Mapping[str, Any]) -> ArcFacts:
    """The facts of a job's document in GLUE2, of which ARC writes a full one at most once a minute."""
    return ArcFacts(
        name=_text(document.get("Name")),
        queue=_text(document.get("Queue")),
        host=_text(document.get("ExecutionNode")),
        message=_text(document.get("Error")) or _text(document.get("OtherMessages")),
        exit_code=_number(document.get("ExitCode")),
        started_at=_time(_text(document.get("StartTime"))),
        ended_at=_time(_text(document.get("EndTime")) or _text(document.get("ComputingManagerEndTime"))),
    )


_LINES: Final = {
    "jobname": "name",
    "queue": "queue",
    "nodename": "host",
    "exitcode": "exit_code",
    "LRMSStartTime": "started_at",
    "LRMSEndTime": "ended_at",
}


def with_lines(facts: ArcFacts, text: str) -> ArcFacts:
    """What lines NAME=VALUE of ARC's own files say where nothing was known."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        field = _LINES.get(name, "")
        if field and getattr(facts, field) in {"", None}:
            read = {"exit_code": _number, "started_at": _time, "ended_at": _time}.get(field, str)
            values[field] = read(value)
    return replace(facts, **values)


def _number(value: object) -> int | None:
    text = _text(value)
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        return None
    return int(text) if int(text) < _NO_NUMBER else None


def _time(text: str) -> float | None:
    if text[:14].isdigit():
        text = f"{text[:8]}T{text[8:]}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None


def status_of(record: ArcRecord, facts: ArcFacts, state: NativeState, now: float) -> NativeStatus:
    """An observation of a job."""
    ended = state is NativeState.ENDED
    success = 0 if record.state == "FINISHED" else None
    return NativeStatus(
        state=state,
        observed_at=now,
        exit_code=(success if facts.exit_code is None else facts.exit_code) if ended else None,
        detail=facts.message,
        word=f"{record.state}: {facts.message}"
        if state is NativeState.HELD and facts.message
        else record.state,
        host=facts.host,
        started_at=facts.started_at,
        ended_at=facts.ended_at if ended else None,
    )


class ArcShare(Struct, frozen=True, kw_only=True):
    """A queue of a computing element; times in seconds, None where ARC says nothing."""

    slots: int | None = None
    free_slots: int | None = None
    running: int | None = None
    waiting: int | None = None
    wall_seconds: int | None = None
    cores: int | None = None
    memory_mb: int | None = None
    closed: str = ""


class ArcJob(NamedTuple):
    """A job of ours in a queue."""

    queue: str
    state: NativeState


_LIVE: Final = (NativeState.WAITING, NativeState.RUNNING, NativeState.HELD)
_NO_SHARE: Final = ArcShare()


def shares_in(body: bytes) -> dict[str, ArcShare]:
    """The shares by queue. Raises BackendFault."""
    shares: dict[str, ArcShare] = {}
    for share in _shares(_parse_mapping(body)):
        serving = _text(share.get("ServingState"))
        for name in (_text(share.get("Name")), _text(share.get("MappingQueue"))):
            shares[name] = ArcShare(
                slots=_number(share.get("MaxRunningJobs")),
                free_slots=_number(share.get("FreeSlots")),
                running=_sum(share, "RunningJobs", "LocalRunningJobs"),
                waiting=_sum(share, "WaitingJobs", "LocalWaitingJobs", "PreLRMSWaitingJobs"),
                wall_seconds=_number(share.get("MaxWallTime")),
                cores=_number(share.get("MaxSlotsPerJob")),
                memory_mb=_number(share.get("MaxMainMemory")),
                closed=serving if serving in {"closed", "draining"} else "",
            )
    return shares


def _shares(document: object) -> Iterator[Mapping[str, Any]]:
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            shares = value.get("ComputingShare")
            yield from (
                share
                for share in (shares if isinstance(shares, list) else [shares])
                if isinstance(share, dict)
            )
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _sum(share: Mapping[str, Any], *names: str) -> int | None:
    numbers = [number for name in names if (number := _number(share.get(name))) is not None]
    return sum(numbers) if numbers else None


def load_of(queue: str, shares: Mapping[str, ArcShare], ours: Sequence[ArcJob], now: float) -> BatchLoad:
    """Our jobs, and what its share says of all. Ours are unknown if the state of one is."""
    share = shares.get(queue, _NO_SHARE)
    states = [state for name, state in ours if name == queue]
    if any(state is NativeState.UNKNOWN for _, state in ours):
        waiting = running = held = None
    else:
        waiting, running, held = (states.count(state) for state in _LIVE)
    return BatchLoad(
        observed_at=now,
        waiting=waiting,
        running=running,
        held=held,
        others_waiting=_others(share.waiting, waiting),
        others_running=_others(share.running, running),
        slots=share.slots,
        free_cores=share.free_slots,
    )


def _others(every: int | None, ours: int | None) -> int | None:
    """A share is described once in minutes, and may count fewer than there are of ours."""
    return None if every is None or ours is None else max(0, every - ours)


def check_of(spec: PilotSpec, shares: Mapping[str, ArcShare]) -> Check:
    """Whether a share runs jobs like these. ARC that names no shares says nothing."""
    if not shares:
        return Check(possible=None, detail="ARC describes no shares now")
    share = shares.get(spec.queue.queue)
    if share is None:
        return Check(
            possible=False, detail=f"ARC has no share {spec.queue.queue}, only {', '.join(sorted(shares))}"
        )
    limits = (
        ("MaxWallTime", spec.wall_seconds, share.wall_seconds),
        ("MaxSlotsPerJob", spec.cores, share.cores),
        ("MaxMainMemory", spec.memory_mb, share.memory_mb),
    )
    over = [
        f"{name} is {most}, {needed} are asked for" for name, needed, most in limits if most and needed > most
    ]
    if share.closed:
        over.append(f"ServingState is {share.closed}")
    return Check(possible=not over, detail="; ".join(over))
