"""Slurm: running jobs by `squeue`; `scancel` or `scontrol requeue` ends one, an earlier EndTime makes it drain."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lodesman.site.jobstatus.sites.door import Act, JobPlaces, SiteFault, answer, shown
from lodesman.site.jobstatus.vacate.candidates import Candidate

_FIELDS = (
    "JobID", "State", "UserID", "UserName", "NumCPUs", "NodeList", "StartTime", "EndTime", "TimeUsed", "tres-alloc",
    "JobArrayID",
)  # fmt: skip
_USED = re.compile(r"(?:([0-9]{1,5})-)?(?:([0-9]{1,2}):)?([0-9]{1,2}):([0-9]{2})")
_MEMORY = re.compile(r"([0-9]{1,12})(?:\.[0-9]+)?([KMGTP]?)")
_MEGABYTES = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20, "P": 1 << 30}
_TASK = re.compile(r"[0-9]{1,10}_[0-9]{1,10}")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_GPUS = "gres/gpu"
_MOST_NODES = 100_000
_SETTING = re.compile(r"^([A-Za-z]+(?:\[\d+\])?) *= (\S.*?) *$", re.MULTILINE)
_NO_LIMIT = 65_534


def squeue_words(mark: str) -> list[str]:
    """For `read_squeue`; the mark, which no field has in it, ends each."""
    fields = ",".join(f"{name}:0{mark}" for name in _FIELDS)
    return ["squeue", "--all", "--array", "--states=RUNNING,COMPLETING", f"--Format={fields}"]


def read_squeue(text: str, mark: str, now: float) -> list[Candidate]:
    """What runs or completes. Raises SiteFault unless the list is whole."""
    titles, *records = text.split(f"{mark}\n")
    if len(titles.split(mark)) != len(_FIELDS) or not records or records.pop():
        raise SiteFault(f"squeue printed no whole list, but: {shown(text.strip())}")
    return list(filter(None, (_job(record.split(mark), now) for record in records)))


def _job(fields: Sequence[str], now: float) -> Candidate | None:
    if len(fields) != len(_FIELDS):
        raise SiteFault(f"squeue printed an odd record: {shown(' '.join(fields))}")
    job, state, uid, user, cpus, nodes, start, end, used, tres, task = (word.strip() for word in fields)
    amounts = dict(word.split("=", 1) for word in tres.split(",") if "=" in word)
    cores, started = amounts.get("cpu", cpus), _whole(start)
    if state == "COMPLETING" and job.isdigit():  # KillWait, or an epilog
        return Candidate(job, user, (), int(cores) if cores.isdigit() else 0, started or 0.0, leaving=True)
    if state != "RUNNING" or not job.isdigit() or not cores.isdigit() or started is None:
        return None
    worked = _seconds(used)
    return Candidate(
        job=job,
        task=task if _TASK.fullmatch(task) else "",
        owner=user,
        uid=_whole(uid),
        nodes=tuple(nodes_of(nodes)),
        cores=int(cores),
        memory_mb=_megabytes(amounts.get("mem", "")),
        gpus=_whole(amounts.get(_GPUS, "")) or 0,
        started=started,
        batch_ends=_whole(end),
        suspended_seconds=0 if worked is None else max(0.0, now - started - worked),
    )


def read_kill_wait(text: str) -> int:
    """Seconds until SIGKILL, or of an epilog; 65534: none is set."""
    settings = dict(_SETTING.findall(text))
    epilogs = [
        name for name in settings if re.fullmatch(r"Epilog(\[\d+\])?", name) and settings[name] != "(null)"
    ]
    limits = [settings[name] for name in ("EpilogTimeout", "PrologEpilogTimeout") if name in settings]
    limit = next((int(text.split()[0]) for text in limits if text.split()[0].isdigit()), _NO_LIMIT)
    wait = settings.get("KillWait", "").split()[:1]
    seconds = int(wait[0]) if wait and wait[0].isdigit() else 0
    return seconds + (limit if epilogs and limit < _NO_LIMIT else 0)


def nodes_of(text: str) -> Iterator[str]:
    """Of a list such as `n[1-3,07]-ib,login`. Raises SiteFault."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if ",".join(parts) != text:
        raise SiteFault(f"squeue printed a list of nodes that is none: {shown(text)}")
    for part in parts:
        if part != "(null)":
            yield from _expand(part)


def _expand(part: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    inside, _, tail = rest.partition("]")
    if not bracket:
        yield head
        return
    for numbers in inside.split(","):
        match = _RANGE.fullmatch(numbers)
        if not match:
            raise SiteFault(f"squeue printed a list of nodes that is none: {shown(part)}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST_NODES:
            raise SiteFault(f"squeue printed a list of more than {_MOST_NODES:,} nodes.")
        for number in range(first, last + 1):
            for end in _expand(tail):
                yield f"{head}{number:0{len(match[1])}}{end}"


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _seconds(text: str) -> int | None:
    match = _USED.fullmatch(text)
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _megabytes(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    return int(int(match[1]) * _MEGABYTES[match[2]]) if match else 0


def _name(job: Candidate) -> str:
    """One task of each array has the array's number: by that, all tasks would go."""
    return job.task or job.job


@dataclass(frozen=True)
class SlurmDoor:
    """The cluster of this machine's commands."""

    places: JobPlaces

    def can_drain(self, job: Candidate) -> bool:
        """Always."""
        return True

    def kill_s(self) -> float:
        """KillWait, and the limit of epilogs, if any."""
        try:
            return read_kill_wait(answer(("scontrol", "show", "config")))
        except SiteFault:
            return 0.0

    def running(self) -> list[Candidate]:
        """All jobs that run or complete. Raises SiteFault."""
        mark = f"~{secrets.token_hex(8)}~"
        text = answer(squeue_words(mark), {"SLURM_TIME_FORMAT": "%s"})
        return read_squeue(text, mark, time.time())

    def kill(self, job: Candidate) -> list[Act]:
        """SIGTERM, and SIGKILL after KillWait."""
        return [Act(("scontrol", "requeue", _name(job)) if self.places.requeue else ("scancel", _name(job)))]

    def drain(self, job: Candidate, ends: float, now: float) -> list[Act]:
        """Its end comes nearer, never later; shutdowntime_job and signals tell the job."""
        if job.batch_ends is not None and job.batch_ends <= ends:
            return self.places.shutdown_acts(job, job.batch_ends, now)
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(ends))
        nearer = Act(("scontrol", "update", f"JobId={_name(job)}", f"EndTime={when}"))
        return [*self.places.shutdown_acts(job, ends, now), nearer]
