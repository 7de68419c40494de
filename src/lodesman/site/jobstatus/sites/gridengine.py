"""Grid Engine: running jobs by `qstat -xml`; `qdel` or `qmod -rj` ends one, shutdowntime_job makes it drain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from xml.etree import ElementTree as ET

from lodesman.site.jobstatus.sites.door import Act, ConsentDoor, SiteFault, answer, shown, uid_of
from lodesman.site.jobstatus.vacate.candidates import Candidate

QSTAT = ("qstat", "-xml", "-r", "-g", "t", "-s", "r", "-u", "*")
_DURATION = re.compile(r"(?:([0-9]{1,6}):)?(?:([0-9]{1,4}):)?([0-9]{1,12})(?:\.[0-9]+)?")
_MEMORY = re.compile(r"([0-9]{1,15})(?:\.[0-9]+)?([kKmMgGtT]?)")
_BYTES = {
    "": 1,
    "k": 1000,
    "K": 1 << 10,
    "m": 10**6,
    "M": 1 << 20,
    "g": 10**9,
    "G": 1 << 30,
    "t": 10**12,
    "T": 1 << 40,
}
_MEMORY_NAMES = ("h_vmem", "m_mem_free", "mem_free")
_GPU_NAMES = ("gpu", "gpus", "ngpus")
_MAY_RUN = set("rtsSTRPN")


def read_qstat(text: str) -> list[Candidate]:
    """A task of an array is `JOB.TASK`. Raises SiteFault if the list is cut off."""
    try:
        root = ET.fromstring(text) if "<!" not in text else None  # noqa: S314 - without declarations
    except (ET.ParseError, ValueError):
        root = None
    if root is None or [part.tag for part in root] != ["queue_info", "job_info"]:
        raise SiteFault(f"qstat printed no whole answer, but: {shown(text.strip())}")
    jobs: dict[str, Candidate] = {}
    for job in filter(None, map(_job, _running(root))):
        other = jobs.get(job.job)
        jobs[job.job] = (
            job if other is None else replace(job, nodes=tuple(dict.fromkeys((*other.nodes, *job.nodes))))
        )
    return list(jobs.values())


def _running(root: ET.Element) -> Iterator[ET.Element]:
    for element in root.iter("job_list"):
        if set(element.findtext("state") or "") & _MAY_RUN:
            yield element


def _job(element: ET.Element) -> Candidate | None:
    """None for one that waits, or of unknown slots or start. One that is being deleted is leaving."""
    number, tasks = element.findtext("JB_job_number") or "", element.findtext("tasks") or ""
    slots = element.findtext("granted_pe") or element.findtext("slots") or ""
    started = _time(element.findtext("JAT_start_time") or "")
    queue = element.findtext("queue_name") or ""
    leaving = "d" in (element.findtext("state") or "")
    if not queue or (not leaving and (started is None or not slots.isdigit())):
        return None
    if not number.isdigit() or not (tasks.isdigit() or not tasks):
        raise SiteFault(f"qstat lists a job without a number: {shown(number)} {shown(tasks)}")
    wants = {part.get("name", ""): part.text or "" for part in element.findall("hard_request")}
    limit = _duration(wants.get("h_rt", ""))
    memory = next((_megabytes(wants[name]) for name in _MEMORY_NAMES if name in wants), 0)
    gpus = [int(wants[name]) for name in _GPU_NAMES if wants.get(name, "").isdigit()]
    return Candidate(
        job=f"{number}.{tasks}" if tasks else number,
        owner=element.findtext("JB_owner") or "",
        nodes=(queue.rpartition("@")[2],),
        cores=(cores := int(slots) if slots.isdigit() else 0),
        memory_mb=memory * cores,  # asked for by slot
        gpus=max(gpus, default=0) * cores,
        started=started or 0.0,
        batch_ends=None if limit is None else (started or 0.0) + limit,
        leaving=leaving,
    )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _duration(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if not match:
        return None
    first, second, last = (int(part or 0) for part in match.groups())
    return first * 60 + last if match[2] is None else (first * 60 + second) * 60 + last


def _megabytes(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    return int(match[1]) * _BYTES[match[2]] >> 20 if match else 0


@dataclass(frozen=True)
class GridEngineDoor(ConsentDoor):
    """The cell of this machine's commands. It cannot set an earlier end for a running job."""

    def kill_s(self) -> float:
        """`qdel` kills at once; Grid Engine does not say how long -notify and epilogs take."""
        return 0.0

    def running(self) -> list[Candidate]:
        """Jobs that have slots. Raises SiteFault."""
        return [replace(job, uid=uid_of(job.owner)) for job in read_qstat(answer(QSTAT))]

    def kill(self, job: Candidate) -> list[Act]:
        """`qmod -rj` is refused for a job that may not run twice."""
        number, _, task = job.job.partition(".")
        if self.places.requeue:
            return [Act(("qmod", "-rj", job.job))]
        return [Act(("qdel", number, "-t", task) if task else ("qdel", number))]
