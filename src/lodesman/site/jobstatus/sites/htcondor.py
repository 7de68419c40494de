"""HTCondor: running jobs by `condor_q -json`; `condor_vacate_job` ends one, shutdowntime_job makes it drain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lodesman.site.jobstatus.sites.door import Act, ConsentDoor, SiteFault, answer, shown, uid_of
from lodesman.site.jobstatus.vacate.candidates import Candidate

ATTRIBUTES = (
    "ClusterId", "ProcId", "JobStatus", "Owner", "RemoteHost", "CpusProvisioned", "RequestCpus", "MemoryProvisioned",
    "RequestMemory", "GPUsProvisioned", "RequestGPUs", "JobCurrentStartDate", "AllowedJobDuration",
    "CumulativeSuspensionTime",
)  # fmt: skip
CONDOR_Q = (
    "condor_q", "-allusers", "-json", "-constraint", "JobStatus == 2 || JobStatus == 7 || RemoteHost =!= UNDEFINED",
    "-attributes", ",".join(ATTRIBUTES),
)  # fmt: skip
_MOST = 10**15
_RUNS = frozenset({2, 7})
"""Running, or suspended on its slot; in other states it is removed, held, or sends its output."""


def read_condor_q(text: str) -> list[Candidate]:
    """The jobs with slots; no text: none. Raises SiteFault unless the list is whole."""
    try:
        ads = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError):
        ads = None
    if not isinstance(ads, list) or not all(isinstance(ad, dict) for ad in ads):
        raise SiteFault(f"condor_q printed no whole list, but: {shown(text.strip())}")
    return list(filter(None, map(_job, ads)))


def _job(ad: Mapping[str, object]) -> Candidate | None:
    """None if number, cores or start are not known; the number of one that is leaving is enough."""
    cluster, proc, started = (_whole(ad.get(name)) for name in ("ClusterId", "ProcId", "JobCurrentStartDate"))
    cores = _first(ad, "CpusProvisioned", "RequestCpus")
    leaving = _whole(ad.get("JobStatus")) not in _RUNS
    if leaving and cluster is not None and proc is not None and "RemoteHost" in ad:
        return Candidate(f"{cluster}.{proc}", "", (), cores or 0, started or 0.0, leaving=True)
    if leaving or cluster is None or proc is None or started is None or cores is None:
        return None
    host, owner = ad.get("RemoteHost"), ad.get("Owner")
    allowed = _whole(ad.get("AllowedJobDuration"))
    return Candidate(
        job=f"{cluster}.{proc}",
        owner=owner if isinstance(owner, str) else "",
        nodes=(host.rpartition("@")[2],) if isinstance(host, str) else (),
        cores=cores,
        memory_mb=_first(ad, "MemoryProvisioned", "RequestMemory") or 0,
        gpus=_first(ad, "GPUsProvisioned", "RequestGPUs") or 0,
        started=started,
        batch_ends=None if allowed is None else started + allowed,
        suspended_seconds=_whole(ad.get("CumulativeSuspensionTime")) or 0,
    )


def _first(ad: Mapping[str, object], *names: str) -> int | None:
    numbers = (_whole(ad.get(name)) for name in names)
    return next((number for number in numbers if number is not None), None)


def _whole(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and isinstance(value, int) and 0 <= value < _MOST else None


@dataclass(frozen=True)
class CondorDoor(ConsentDoor):
    """The queue of this machine."""

    def kill_s(self) -> float:
        """Up to the MachineMaxVacateTime of their nodes; most end at once."""
        return 0.0

    def running(self) -> list[Candidate]:
        """Jobs that have slots. Raises SiteFault."""
        return [replace(job, uid=uid_of(job.owner)) for job in read_condor_q(answer(CONDOR_Q))]

    def kill(self, job: Candidate) -> list[Act]:
        """SIGTERM, and SIGKILL after MachineMaxVacateTime; then it waits again, unless its policy removes it."""
        return [Act(("condor_vacate_job", job.job))]
