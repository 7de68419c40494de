"""No batch system: a job is a directory of $JOBSTATUS, with cores and start in Job Features by the site."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lodesman.base.processes import parse_stat
from lodesman.site.jobstatus.sites.door import Act, ConsentDoor, SiteFault, site_number
from lodesman.site.jobstatus.vacate.candidates import Candidate

_JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_ENVIRONMENT_BYTES = 1 << 20


def read_job(job: str, directory: Path, features: Path, node: str) -> Candidate | None:
    """None if it is no directory, or the site gives no cores or start."""
    try:
        about = directory.lstat()
    except OSError:
        return None
    cores, started = (
        site_number(features, "allocated_cpu", "allocated_CPU"),
        site_number(features, "jobstart_secs"),
    )
    if not stat.S_ISDIR(about.st_mode) or cores is None or started is None:
        return None
    limit, memory = site_number(features, "wall_limit_secs"), site_number(features, "max_rss_bytes")
    try:
        owner = pwd.getpwuid(about.st_uid).pw_name
    except KeyError:
        owner = str(about.st_uid)
    return Candidate(
        job=job, owner=owner, uid=about.st_uid, nodes=(node,), cores=cores, memory_mb=(memory or 0) >> 20,
        started=started, batch_ends=None if limit is None else started + limit,
    )  # fmt: skip


def processes_of(uid: int, directory: str, proc: Path = Path("/proc")) -> list[int]:
    """The outermost ones of this user that have this directory as their $JOBSTATUS."""
    mark = b"JOBSTATUS=" + os.fsencode(directory)
    parents: dict[int, int] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, IndexError, ValueError):
            if folder.stat().st_uid != uid:
                continue
            with (folder / "environ").open("rb") as file:
                words = file.read(_ENVIRONMENT_BYTES).split(b"\0")
            if mark in words:
                process = parse_stat((folder / "stat").read_bytes())
                if process is not None:
                    parents[process.pid] = process.parent
    return sorted(pid for pid, parent in parents.items() if parent not in parents)


@dataclass(frozen=True)
class DirectoriesDoor(ConsentDoor):
    """Jobs of this machine by the directories in `places`; {job} ends both paths."""

    node: str

    def running(self) -> list[Candidate]:
        """Those with both directories. Raises SiteFault."""
        paths = (self.places.jobstatus, self.places.jobfeatures)
        if not all(path.endswith("/{job}") for path in paths):
            raise SiteFault(
                "Directories are found by --jobstatus PARENT/{job} and --jobfeatures PARENT/{job}."
            )
        parent, features = (Path(path.rpartition("/")[0]) for path in paths)
        try:
            names = sorted(name for name in os.listdir(parent) if _JOB.fullmatch(name))
        except OSError as fault:
            raise SiteFault(f"{parent} cannot be listed: {fault.strerror}.") from None
        jobs = (read_job(name, parent / name, features / name, self.node) for name in names)
        return list(filter(None, jobs))

    def kill(self, job: Candidate) -> list[Act]:
        """SIGTERM; none if no process of the job's user has its $JOBSTATUS."""
        directory = self.places.status_of(job, self.node)
        pids: Sequence[int] = processes_of(job.uid, directory) if job.uid is not None else ()
        return [Act(("kill", "-TERM", *map(str, pids)))] if pids else []
