"""The queue that a pilot runs in, and the SubmitPools that this queue serves (RFC #7).

A pilot that was sent to no particular queue (through a broker, or by hand) finds it in its environment: a site
sets LODESMAN_SITE, LODESMAN_CE and LODESMAN_QUEUE; batch systems set a variable with the name of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lodesman.client import Client
from lodesman.errors import Unavailable
from lodesman.pilot.pilot_file import PilotFile

# The variable that names the queue, and one that proves this batch system.
_BATCH_SYSTEMS = (
    ("SLURM_JOB_PARTITION", "SLURM_JOB_ID"),
    ("PBS_QUEUE", "PBS_JOBID"),
    ("LSB_QUEUE", "LSB_JOBID"),
    ("QUEUE", "SGE_ROOT"),
)
# A longer list is not presented: the server finds the pools itself in any case.
_MAX_PRESENTED = 5_000


class BatchQueue(NamedTuple):
    """Site, CE and queue by name."""

    site: str
    ce: str
    queue: str


@dataclass(frozen=True)
class ServedPools:
    """The SubmitPools that a queue serves, as of the server's pass of this number."""

    number: int
    pools: tuple[str, ...]


def find_queue(pilot_file: PilotFile, environment: Mapping[str, str]) -> BatchQueue | None:
    """The pilot's queue, or None if a part of its name is unknown. The pilot's file overrides the environment."""
    found = BatchQueue(
        pilot_file.site or environment.get("LODESMAN_SITE", ""),
        pilot_file.ce or environment.get("LODESMAN_CE", ""),
        pilot_file.queue or environment.get("LODESMAN_QUEUE", "") or _queue_of_batch_system(environment),
    )
    return found if all(found) else None


def _queue_of_batch_system(environment: Mapping[str, str]) -> str:
    for name, proof in _BATCH_SYSTEMS:
        if environment.get(name) and proof in environment:
            return environment[name]
    return ""


def ask_served_pools(client: Client, queue: BatchQueue) -> ServedPools:
    """Ask `getSubmitPoolsForQueue`. Raises what `Client.request` raises, and Unavailable for an unreadable answer."""
    body = {"queues": [list(queue)]}
    answer = client.request("POST", "/v1/submit-pools/for-queues", body, idempotent=True)
    try:
        number, (row,) = answer["pass"], answer["queues"]
        pools = tuple(row["pools"])
    except (KeyError, TypeError, ValueError):
        raise Unavailable("The answer about SubmitPools cannot be read.") from None
    if not isinstance(number, int) or not all(isinstance(pool, str) for pool in pools):
        raise Unavailable("The answer about SubmitPools cannot be read.")
    return ServedPools(number, pools)


def presented(queue: BatchQueue | None, served: ServedPools | None) -> dict[str, Any]:
    """The part of the join request about the queue, its SubmitPools and the pass that they are from."""
    if queue is None:
        return {}
    body: dict[str, Any] = {"place": queue._asdict()}
    if served is not None:
        body["pools_pass"] = served.number
        if len(served.pools) <= _MAX_PRESENTED:
            body["submit_pools"] = list(served.pools)
    return body
