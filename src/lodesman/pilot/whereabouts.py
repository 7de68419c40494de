"""Where a pilot runs: in the queue that it was sent to, or in the one that it finds itself in (RFC #7).

A pilot that was sent to no particular queue (through a broker, or by hand) looks at its environment: a site says
LODESMAN_SITE, LODESMAN_CE and LODESMAN_QUEUE; batch systems tell their queue by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lodesman.client import ServedPools
from lodesman.pilot.pilot_file import PilotFile

Place = tuple[str, str, str]

SITE, CE, QUEUE = "LODESMAN_SITE", "LODESMAN_CE", "LODESMAN_QUEUE"
# What batch systems call the queue of a job, and a variable that shows that it is this batch system.
BATCH_QUEUES = (
    ("SLURM_JOB_PARTITION", "SLURM_JOB_ID"),
    ("PBS_QUEUE", "PBS_JOBID"),
    ("LSB_QUEUE", "LSB_JOBID"),
    ("QUEUE", "SGE_ROOT"),
)
# More than these are not presented; the server looks them up itself in any case.
MOST_PRESENTED = 5_000


def find_place(papers: PilotFile, environment: Mapping[str, str]) -> Place | None:
    """The site, CE and queue; None if one of them is not known. What the pilot's file says comes first."""
    place = (
        papers.site or environment.get(SITE, ""),
        papers.ce or environment.get(CE, ""),
        papers.queue or environment.get(QUEUE, "") or _batch_queue(environment),
    )
    return place if all(place) else None


def _batch_queue(environment: Mapping[str, str]) -> str:
    for name, proof in BATCH_QUEUES:
        if environment.get(name) and proof in environment:
            return environment[name]
    return ""


def presented(place: Place | None, served: ServedPools | None) -> dict[str, Any]:
    """What a pilot says of its place when it joins: the queue, its SubmitPools and the pass that they are from."""
    if place is None:
        return {}
    told: dict[str, Any] = {"place": {"site": place[0], "ce": place[1], "queue": place[2]}}
    if served is not None:
        told["pools_pass"] = served.number
        if len(served.pools) <= MOST_PRESENTED:
            told["submit_pools"] = list(served.pools)
    return told
