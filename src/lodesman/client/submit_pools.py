"""getSubmitPoolsForQueue (RFC #7): which SubmitPools queues serve, asked once for a bunch of pilots, or by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lodesman.client.connection import Client
from lodesman.errors import Unavailable

FOR_QUEUES = "/v1/submit-pools/for-queues"


@dataclass(frozen=True)
class ServedPools:
    """The pools of one queue as of a pass of the server: its number and its time (UNIX seconds)."""

    number: int
    at: float
    pools: tuple[str, ...]


def submit_pools_for_queues(client: Client, queues: Iterable[tuple[str, str, str]]) -> list[ServedPools]:
    """The pools of each of these queues (site, CE, queue), in their order; a queue may come more than once.

    Raises what `Client.request` raises, and Unavailable for an answer that cannot be understood.
    """
    places = [list(queue) for queue in queues]
    if not places:
        return []
    return read_served(client.request("POST", FOR_QUEUES, {"queues": places}, idempotent=True), len(places))


def read_served(answer: Any, count: int) -> list[ServedPools]:
    """The answer for so many queues. Raises Unavailable."""
    try:
        number, at = answer["pass"], float(answer["at"])
        found = [tuple(row["pools"]) for row in answer["queues"]]
    except (KeyError, TypeError, ValueError):
        raise Unavailable("The answer about SubmitPools cannot be understood.") from None
    known = isinstance(number, int) and len(found) == count
    if not known or not all(isinstance(pool, str) for pools in found for pool in pools):
        raise Unavailable("The answer about SubmitPools cannot be understood.")
    return [ServedPools(number, at, pools) for pools in found]
