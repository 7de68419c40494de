"""What HTCondor reads, and what its commands print.

With `-json`, `condor_q` prints for no jobs the same as for a lost answer. So it prints columns whose last lines
count the jobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState, NativeStatus, PilotSpec, split_stamp

ATTRIBUTES: Final = (
    "ClusterId", "ProcId", "JobStatus", "LodesmanSubmission", "LodesmanQueue", "RemoteHost", "LastRemoteHost",
    "NumShadowStarts", "JobCurrentStartDate", "EnteredCurrentStatus", "CompletionDate", "ExitBySignal", "ExitCode",
    "ExitSignal", "HoldReasonCode", "HoldReasonSubCode", "HoldReason", "RemoveReason", "LastRejMatchReason",
)  # fmt: skip
_SELECT: Final = "SELECT"  # of condor_q, not of a database
QUEUE_FORMAT: Final = (
    f"{_SELECT} NOTITLE NOHEADER\n"
    + "".join(f'{name} AS "" PRINTF "%V" WIDTH 0\n' for name in ATTRIBUTES)
    + "SUMMARY STANDARD\n"
)
"""For `condor_q -pr -`: a line for each job, with the values of ATTRIBUTES as ClassAds write them, and the counts."""

REMOVED: Final = "Removed"
"""The word of a job that was removed, or is about to leave the queue."""

_IDLE: Final = 1
_GONE: Final = 3
_COMPLETED: Final = 4
_HELD: Final = 5
_SPOOLING: Final = 16  # a hold of HTCondor's own until the files of the job have arrived
_WORDS: Final = {
    _IDLE: "Idle", 2: "Running", _GONE: REMOVED, _COMPLETED: "Completed", _HELD: "Held",
    6: "Transferring Output", 7: "Suspended",
}  # fmt: skip
MOST_NAMES: Final = 500
"""As many pilots or submissions fit into one argument."""
_LARGEST: Final = 1 << 40

_NATIVE_ID: Final = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)
_GROUP: Final = re.compile(r"[A-Za-z0-9_.]+")
_SUBMITTED: Final = re.compile(r"(?m)^(\d{1,18})\.0 - \1\.(\d{1,18})$")
_ROW: Final = re.compile(r"(?m)^\d+ .*$")
_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^"\s]+')
_TOTALS: Final = re.compile(
    r"(?m)^Total for ([^:\n]+): (\d{1,18}) jobs;(?: \d{1,18} \w+,){2}"
    r" (\d{1,18}) idle, (\d{1,18}) running, (\d{1,18}) held, \d{1,18} suspended *$"
)
_PERMANENT: Final = re.compile(
    r"on Line \d|Failed to parse|Parse error|^Usage|No executable|is not a valid|Invalid|SUBMIT_REQUIREMENT"
)


class CondorJob(Struct, frozen=True, kw_only=True):
    """A job of ours as the schedd has it."""

    native_id: str  # CLUSTER.PROC
    stamp: str
    queue: str
    state: NativeState
    word: str
    detail: str
    starts: int  # how often it was begun
    host: str
    started_at: float | None
    ended_at: float | None
    exit_code: int | None

    def status(self, observed_at: float) -> NativeStatus:
        """One observation."""
        return NativeStatus(
            state=self.state,
            observed_at=observed_at,
            exit_code=self.exit_code,
            detail=self.detail,
            word=self.word,
            host=self.host,
            started_at=self.started_at,
            ended_at=self.ended_at,
        )


class Totals(Struct, frozen=True, kw_only=True):
    """What the schedd counts."""

    jobs: int
    waiting: int
    running: int


class QueueAnswer(Struct, frozen=True, kw_only=True):
    """What `condor_q` prints: jobs by native id, and counts of those asked for and of all users."""

    account: str  # whose jobs it shows, '': all
    jobs: Mapping[str, CondorJob]
    asked: Totals
    everyone: Totals


# --- what is said to HTCondor ----------------------------------------------------------------------


def make_description(spec: PilotSpec, *, keep_seconds: int, remote: bool) -> str:
    """The submit description; `script` and outputs are files of its folder.

    A job that was begun never starts again: it is removed. One that ended stays in the queue for `keep_seconds`. No
    variable of the submitter reaches it.
    """
    begun = "(NumShadowStarts ?: 0) > 0"
    over = f"JobStatus == 2 && time() - JobCurrentStartDate > {spec.wall_seconds}"
    lines = [
        "universe = vanilla",
        "executable = script",
        "transfer_executable = true",
        "lode_copy = $(ProcId) + 1",
        "arguments = $INT(lode_copy)",
        "output = $INT(lode_copy).out",
        "error = $INT(lode_copy).out",
        "skip_filechecks = true",
        "getenv = false",
        "should_transfer_files = YES",
        "when_to_transfer_output = ON_EXIT",
        'transfer_output_files = ""',
        "notification = never",
        f"batch_name = {spec.submission}",
        f'+LodesmanSubmission = "{spec.submission}"',
        f'+LodesmanQueue = "{queue_word(spec.queue)}"',
        f"request_cpus = {max(1, spec.cores)}",
        *([f"request_memory = {spec.memory_mb}"] if spec.memory_mb else ()),
        f"requirements = !({begun})",
        f"periodic_remove = (JobStatus == {_IDLE} && {begun})"
        + (f" || ({over})" if spec.wall_seconds else ""),
        f"leave_in_queue = JobStatus == {_COMPLETED} && time() - CompletionDate < {keep_seconds}",
        "want_graceful_removal = true",
        "job_max_vacate_time = 60",
        *(_for_a_gateway(spec) if remote else _for_a_pool(spec)),
        f"queue {spec.count}",
    ]
    return "\n".join(lines) + "\n"


def _for_a_pool(spec: PilotSpec) -> Iterable[str]:
    """The accounting group, but for `default` and what no group can be."""
    if _GROUP.fullmatch(spec.queue.queue) and spec.queue.queue != "default":
        yield f"accounting_group = {spec.queue.queue}"


def _for_a_gateway(spec: PilotSpec) -> Iterable[str]:
    yield f'+queue = "{_plain(spec.queue.queue)}"'
    yield f"+xcount = {max(1, spec.cores)}"
    if spec.memory_mb:
        yield f"+maxMemory = {spec.memory_mb}"
    if spec.wall_seconds:
        yield f"+maxWallTime = {-(-spec.wall_seconds // 60)}"


def _plain(text: str) -> str:
    """Characters beyond those that submit descriptions and ClassAds take as they are become %XX."""
    return quote(text, safe=":@+")


def queue_word(queue: QueueId) -> str:
    """A queue as an attribute of its jobs."""
    return "/".join(map(_plain, queue))


def our_jobs(submissions: Collection[str] | None = None) -> str:
    """A constraint: jobs of these submissions; of any for None, or too many for one argument."""
    if submissions is None or len(submissions) > MOST_NAMES:
        return "LodesmanSubmission =!= undefined"
    names = ", ".join(f'"{name}"' for name in sorted(submissions))
    return f"member(LodesmanSubmission, {{{names}}})"


def our_jobs_of(account: str) -> str:
    """A constraint: all jobs of ours of this account."""
    return f"{our_jobs()} && Owner == {json.dumps(account)}"


def these_jobs(pilots: Mapping[str, str]) -> str:
    """A constraint: these jobs (stamp -> native id) alone."""
    groups: dict[str, list[str]] = {}
    for stamp, native_id in pilots.items():
        split, number = split_stamp(stamp), _NATIVE_ID.fullmatch(native_id)
        if split and number:
            head = f'ClusterId == {number[1]} && LodesmanSubmission == "{split[0]}"'
            groups.setdefault(head, []).append(number[2])
    clusters = (f"({head} && member(ProcId, {{{', '.join(procs)}}}))" for head, procs in groups.items())
    return " || ".join(clusters) or "false"


# --- what HTCondor says ----------------------------------------------------------------------------


def parse_cluster(text: str, count: int) -> int | None:
    """The cluster that `condor_submit -terse` names, if it has all copies."""
    matches = _SUBMITTED.findall(text)
    if len(matches) == 1 and int(matches[0][1]) == count - 1:
        return int(matches[0][0])
    return None


def is_permanent(error: str) -> bool:
    """Whether `condor_submit` would refuse the same again."""
    return bool(_PERMANENT.search(error))


def parse_queue(text: str) -> QueueAnswer:
    """What `condor_q -pr` prints with QUEUE_FORMAT, without odd lines. Raises BackendFault unless it is whole."""
    totals: dict[str, Totals] = {}
    for who, *counts in _TOTALS.findall(text):
        if who in totals:
            raise BackendFault("condor_q printed two answers at once.", transient=True)
        every, waiting, running, _ = map(int, counts)
        totals[who] = Totals(jobs=every, waiting=waiting, running=running)
    asked, everyone = totals.pop("query", None), totals.pop("all users", None)
    rows = _ROW.findall(text)
    if asked is None or everyone is None or len(totals) > 1 or len(rows) != asked.jobs:
        raise BackendFault(f"condor_q did not print a whole answer: {_start(text)}.", transient=True)
    value = _Values().__getitem__
    parsed = [_job(list(map(value, _VALUE.findall(row))), left=False) for row in rows]
    jobs = {job.native_id: job for job in parsed if job}
    return QueueAnswer(account="".join(totals), jobs=jobs, asked=asked, everyone=everyone)


def parse_history(text: str) -> dict[str, CondorJob]:
    """The jobs of `condor_history -json`. Raises BackendFault unless it is whole."""
    try:
        ads = json.loads(text)
    except (ValueError, RecursionError):
        ads = None
    if not isinstance(ads, list):
        raise BackendFault(f"condor_history did not print a list of jobs: {_start(text)}.", transient=True)
    jobs = (_job([ad.get(name) for name in ATTRIBUTES], left=True) for ad in ads if isinstance(ad, dict))
    return {job.native_id: job for job in jobs if job}


def order(job: CondorJob) -> tuple[int, ...]:
    """Jobs in the order in which the schedd took them."""
    return tuple(map(int, job.native_id.split(".")))


def parse_free_cores(text: str) -> int | None:
    """The sum of what `condor_status -af Cpus` prints for free slots; None if it prints no numbers."""
    words = text.split()
    return sum(map(int, words)) if words and all(re.fullmatch(r"\d{1,9}", word) for word in words) else None


def reason_of(error: str) -> str:
    """The line of an error text that says what is wrong."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return next(
        (line for line in lines if "ERROR" in line or "Error" in line), lines[0] if lines else "no reason"
    )[:300]


def _start(text: str) -> str:
    return repr(text.strip()[:80]) if text.strip() else "it is empty"


class _Values(dict[str, object]):
    """Literal of a ClassAd -> value; None: undefined, or of no interest."""

    def __missing__(self, word: str) -> object:
        value: object = {"true": True, "false": False}.get(word)
        if word[0] == '"':
            value = word[1:-1].replace('\\"', '"')  # nothing else is escaped
        elif word.isascii() and word.isdigit() and len(word) <= 18:
            value = int(word)
        self[word] = value
        return value


def _job(values: Sequence[object], *, left: bool) -> CondorJob | None:
    if len(values) != len(ATTRIBUTES):
        return None
    ad = dict(zip(ATTRIBUTES, values, strict=True))
    cluster, proc, status = (_number(ad[name]) for name in ("ClusterId", "ProcId", "JobStatus"))
    if cluster is None or proc is None or status not in _WORDS:
        return None
    stamp = f"{_text(ad['LodesmanSubmission'])}-{proc + 1}"
    if not split_stamp(stamp):
        return None
    starts = _number(ad["NumShadowStarts"]) or 0
    state = NativeState.ENDED if left else _state(status, starts, ad["HoldReasonCode"])
    ended = state is NativeState.ENDED
    held = f" {ad['HoldReasonCode']}/{ad['HoldReasonSubCode'] or 0}" if status == _HELD else ""
    return CondorJob(
        native_id=f"{cluster}.{proc}",
        stamp=stamp,
        queue=_text(ad["LodesmanQueue"]),
        state=state,
        word=_WORDS[status] + held,
        detail=_detail(ad, status, starts),
        starts=starts,
        host=(_text(ad["RemoteHost"]) or _text(ad["LastRemoteHost"])).rpartition("@")[2],
        started_at=_number(ad["JobCurrentStartDate"]),
        ended_at=(_number(ad["CompletionDate"]) or _number(ad["EnteredCurrentStatus"])) if ended else None,
        exit_code=_exit_code(ad) if ended else None,
    )


def _state(status: int, starts: int, hold_code: object) -> NativeState:
    """Of a job in the queue. One that is removed leaves it when its processes have ended."""
    if status == _IDLE:
        return NativeState.UNKNOWN if starts else NativeState.WAITING
    if status == _HELD:
        return NativeState.WAITING if hold_code == _SPOOLING else NativeState.HELD
    if status == _COMPLETED or (status == _GONE and not starts):
        return NativeState.ENDED
    return NativeState.RUNNING


def _detail(ad: Mapping[str, object], status: int, starts: int) -> str:
    if status == _IDLE and starts:
        return "it was evicted, starts no second time, and is about to be removed"
    reasons = {_IDLE: "LastRejMatchReason", _GONE: "RemoveReason", _HELD: "HoldReason"}
    return _text(ad[reasons[status]]).strip()[:300] if status in reasons else ""


def _exit_code(ad: Mapping[str, object]) -> int | None:
    signal = _number(ad["ExitSignal"])
    return 128 + signal if ad["ExitBySignal"] is True and signal is not None else _number(ad["ExitCode"])


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST:
        return value
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
