"""Jobs of a site by state, by its batch system. A count that is not whole is none: unknown is not zero."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable
from xml.etree import ElementTree as ET

from lodesman.base.errors import LodesmanError, each_once

_COUNT_SECONDS = 120.0
_STAMP = re.compile(r"[A-Za-z0-9_]{1,48}-[0-9]{1,9}")
_PREFIX = "lode-"  # of the names that Slurm and Grid Engine have for our pilots


class NotCounted(LodesmanError, code="not-counted"):
    """The jobs are not known, so nothing may be published."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The jobs could not be counted, so nothing is published: {reason}.")


@dataclass(frozen=True)
class JobCounts:
    """Each in one state; None: not known."""

    running: int
    submitting: int | None
    pending: int | None
    stamps: Sequence[str] = ()  # of our pilots among them, the newest first


def _counts(jobs: Iterable[tuple[str, str, int]]) -> JobCounts:
    """`jobs`: a state or '', the pilot's name if it is ours, a number that grows with time."""
    rows = [row for row in jobs if row[0]]
    states = Counter(state for state, _, _ in rows)
    ours = sorted(((number, stamp) for _, stamp, number in rows if _STAMP.fullmatch(stamp)), reverse=True)
    stamps = [stamp for _, stamp in ours]
    return JobCounts(states["running"], states["submitting"], states["pending"], stamps)


# --- what batch systems print ---------------------------------------------------------------------------------------------

_SQUEUE = ("State", "ArrayJobID", "ArrayTaskID", "Name")
_SLURM_WAITS = (
    "CONFIGURING", "EXPEDITING", "PENDING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
)  # fmt: skip
_SLURM_ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
)  # fmt: skip


def squeue_words(mark: str) -> list[str]:
    """For `read_squeue`; the mark, which no job has in its name, ends each field."""
    return ["squeue", "--all", "--array", "--Format=" + ",".join(f"{name}:0{mark}" for name in _SQUEUE)]


def read_squeue(text: str, mark: str) -> JobCounts:
    """A job with resources runs, also while it completes; the rest waits. Raises NotCounted."""
    titles, *records = [record.split(mark) for record in text.split(f"{mark}\n")]
    if len(titles) != len(_SQUEUE) or not records or records.pop() != [""]:
        raise NotCounted(f"squeue printed {_start(text)}")
    rows = []
    for record in records:
        if len(record) != len(_SQUEUE) or not record[1].isdigit():
            raise NotCounted(f"squeue printed {_start(mark.join(record))}")
        word, array, task, name = record
        state = "" if word in _SLURM_ENDED else "pending" if word in _SLURM_WAITS else "running"
        rows.append((state, f"{name[len(_PREFIX) :]}-{task}" if name.startswith(_PREFIX) else "", int(array)))
    return _counts(rows)


QSTAT = ("qstat", "-xml", "-g", "d", "-u", "*")


def read_qstat(text: str) -> JobCounts:
    """A job with a slot runs; one that waits, also held or in error, is pending. Raises NotCounted."""
    try:
        root = ET.fromstring(text) if "<!" not in text else None  # noqa: S314 - without declarations
    except (ET.ParseError, ValueError):
        root = None
    if root is None or [part.tag for part in root] != ["queue_info", "job_info"]:
        raise NotCounted(f"qstat printed {_start(text)}")
    return _counts(map(_qstat_job, root.iter("job_list")))


def _qstat_job(job: ET.Element) -> tuple[str, str, int]:
    number, letters = job.findtext("JB_job_number") or "", job.findtext("state") or ""
    if not number.isdigit() or not letters:
        raise NotCounted("qstat lists a job without number or state")
    state = "" if letters == "z" else "running" if set(letters) & set("rtsST") else "pending"
    name, task = job.findtext("JB_name") or "", job.findtext("tasks") or "1"
    return state, f"{name[len(_PREFIX) :]}-{task}" if name.startswith(_PREFIX) else "", int(number)


_CONDOR = ("ClusterId", "ProcId", "JobStatus", "HoldReasonCode", "NumShadowStarts", "LodesmanSubmission")
CONDOR_FORMAT = (
    "SELECT NOTITLE NOHEADER\n"
    + "".join(f'{name} AS "" PRINTF "%V" WIDTH 0\n' for name in _CONDOR)
    + "SUMMARY STANDARD\n"
)
CONDOR_Q = ("condor_q", "-allusers", "-print-format", "-")
_CONDOR_TOTAL = re.compile(r"(?m)^Total for query: (\d+) jobs;")
_CONDOR_ROW = re.compile(r"(?m)^\d+ \d+ .*$")
_SPOOLING = "16"  # the hold of a job whose files are being sent


def read_condor_q(text: str) -> JobCounts:
    """Idle and held jobs are pending, those whose files still come submitting, ended ones nothing. Raises NotCounted, also
    if rows are missing.
    """
    total, rows = _CONDOR_TOTAL.findall(text), _CONDOR_ROW.findall(text)
    if len(total) != 1 or int(total[0]) != len(rows):
        raise NotCounted(f"condor_q printed {_start(text)}")
    return _counts(map(_condor_job, rows))


def _condor_job(row: str) -> tuple[str, str, int]:
    words = row.split(None, len(_CONDOR) - 1)
    if len(words) != len(_CONDOR) or words[2] not in tuple("1234567"):
        raise NotCounted(f"condor_q printed {_start(row)}")
    cluster, proc, status, hold, starts, submission = words
    state = {"1": "pending", "4": "", "5": "pending"}.get(status, "running")
    if status == "5" and hold == _SPOOLING:
        state = "submitting"
    if status == "3" and starts in ("0", "undefined"):
        state = ""  # removed before it ran
    ours = submission[:1] == '"'  # else it is undefined
    return state, f"{submission[1:-1]}-{int(proc) + 1}" if ours else "", int(cluster)


def read_command(text: str) -> JobCounts:
    """A JSON object, or words such as running=3: running, maybe submitting, pending, stamps. Raises NotCounted."""
    is_json = text.lstrip().startswith("{")
    try:
        values = _object(text) if is_json else each_once(word.split("=", 1) for word in text.split())
        stamps: Sequence[str] = values.pop("stamps", [])
        counts = {name: _number(value) for name, value in values.items()}
        if counts.keys() <= {"running", "submitting", "pending"} and all(map(_STAMP.fullmatch, stamps)):
            return JobCounts(counts["running"], counts.get("submitting"), counts.get("pending"), stamps)
    except (KeyError, ValueError, TypeError, RecursionError):
        pass
    raise NotCounted(f"the command printed {_start(text)} where running=N submitting=N pending=N is needed")


def _object(text: str) -> Any:
    return json.loads(text, object_pairs_hook=each_once)


def _number(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()) or int(value) < 0:
        raise ValueError(value)
    return int(value)


# A-REX prepares and submits: it may also hold that back, as PENDING:PREPARING.
_ARC_SUBMITS = ("ACCEPTED", "PREPARING", "SUBMIT")
_ARC_FOLDERS = ("accepting", "processing", "restarting")
_ARC_NAME = re.compile(r"(?m)^jobname=(.*)$")
_ARC_LRMS = re.compile(r"<State>nordugrid:INLRMS:(\w)")


def read_arc(folder: Path) -> JobCounts:
    """Of a computing element's `controldir` (seen on ARC 6.17), as ARC last heard. Raises NotCounted."""
    for _ in range(3):
        try:
            names = [(kind, name) for kind in _ARC_FOLDERS for name in os.listdir(folder / kind)]
            return _counts(_arc_job(folder, kind, name) for kind, name in names if name.endswith(".status"))
        except FileNotFoundError as fault:
            gone = fault.filename  # a job that went on meanwhile, or there is no such folder
        except OSError as fault:
            raise NotCounted(f"{fault.filename}: {fault.strerror}") from None
    raise NotCounted(f"there is no {gone}")


def _arc_job(folder: Path, kind: str, name: str) -> tuple[str, str, int]:
    status = folder / kind / name
    word = status.read_text(encoding="ascii", errors="replace").strip().rpartition(":")[2]
    state = "submitting" if word in _ARC_SUBMITS else "running"
    if word == "INLRMS":
        heard = _ARC_LRMS.search(_arc_file(folder, name, "xml"))
        state = "pending" if heard is None or heard[1] == "Q" else "running"
    named = _ARC_NAME.search(_arc_file(folder, name, "local"))
    return state, named[1] if named else "", status.stat().st_mtime_ns


def _arc_file(folder: Path, name: str, kind: str) -> str:
    try:
        return (folder / f"{name[: -len('status')]}{kind}").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _start(text: str) -> str:
    return repr(text.strip()[:80]) if text.strip() else "nothing"


# --- counting -------------------------------------------------------------------------------------------------------------

Run = Callable[..., str]


def run(words: Sequence[str], *, given: str = "") -> str:
    """What a command prints. Raises NotCounted if it fails."""
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, encoding="utf-8", errors="replace", env=environ,
            timeout=_COUNT_SECONDS, check=False,
        )  # fmt: skip
    except OSError as fault:
        raise NotCounted(f"{words[0]}: {fault.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NotCounted(f"{words[0]} did not end within {_COUNT_SECONDS:.0f} s") from None
    if done.returncode:
        raise NotCounted(f"{words[0]} ended with exit code {done.returncode}, and said {_start(done.stderr)}")
    return done.stdout


def count_jobs(source: str, words: Sequence[str], run: Run = run) -> JobCounts:
    """`words`: more of the batch system's command, or the command, or a folder. Raises NotCounted."""
    if source == "slurm":
        mark = f"~{secrets.token_hex(8)}~"
        return read_squeue(run([*squeue_words(mark), *words]), mark)
    if source == "gridengine":
        return read_qstat(run([*QSTAT, *words]))
    if source == "htcondor":
        return read_condor_q(run([*CONDOR_Q, *words], given=CONDOR_FORMAT))
    if source == "arc":
        return read_arc(Path(*words))
    return read_command(run(words))
