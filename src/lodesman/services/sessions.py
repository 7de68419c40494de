"""Pilots that joined, as the hot process keeps them: last word, what they may match, who they are.

Leases live in memory only: the time that a server was down never counts, and after a start every pilot
gets a full term (DESIGN 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import msgspec

from lodesman.matching import ResourceRequest
from lodesman.services.pool_map import PoolMap
from lodesman.store import pilots

CPU_STEP = 60
UNLIMITED = 10**9


@dataclass(frozen=True, slots=True)
class Free:
    """What a pilot has free now. `norm_cpu_seconds` is what is left of its life."""

    cores: int
    memory_mb: int
    norm_cpu_seconds: int


class Ask(NamedTuple):
    """A claim as it came, whatever became of it; `at` in UNIX seconds."""

    at: float
    free: Free
    jobs: int


class PilotSession:
    """One pilot that joined. `asked`: its last claim."""

    __slots__ = (
        "_cache",
        "asked",
        "drain",
        "drain_told",
        "id",
        "last_seen",
        "offer",
        "pilot_type",
        "queue",
        "stamp",
        "tails",
        "token",
        "usage",
        "vo",
        "who",
    )  # fmt: skip

    def __init__(self, row: pilots.PilotRow, node: Mapping[str, Any], *, now: float) -> None:
        self.id = row.id
        self.stamp = row.stamp
        self.vo = row.vo
        self.queue = (row.site, row.ce, row.queue)
        self.who = (row.owner, row.group, row.submission_pool)
        self.pilot_type = row.pilot_type
        self.offer = _offer(msgspec.json.decode(row.request), node)
        self.last_seen = now
        self.drain = bool(row.drain)
        self.token = b""
        self.asked: Ask | None = None
        # Live news of running payloads: (job, attempt) -> last output, and usage.
        self.tails: dict[tuple[int, int], str] = {}
        self.usage: dict[tuple[int, int], dict[str, float]] = {}
        self._cache: dict[tuple[int, int, int], ResourceRequest] = {}

    def request(self, free: Free, pools: PoolMap) -> ResourceRequest:
        """The resource that this pilot is now, in the matcher's words."""
        cpu = free.norm_cpu_seconds - free.norm_cpu_seconds % CPU_STEP
        key = (free.cores, free.memory_mb, cpu)
        served = pools.of_queue(self.queue)
        known = self._cache.get(key)
        if known is None or known.submit_pools is not served:
            if len(self._cache) > 32:
                self._cache.clear()
            known = self._cache[key] = self._build(free, cpu, served)
        return known

    def _build(self, free: Free, cpu: int, served: tuple[str, ...]) -> ResourceRequest:
        owner, group, submission_pool = self.who
        site, ce, queue = self.queue
        offer = self.offer
        return ResourceRequest(
            vo=self.vo,
            groups=(group,) if group else None,
            owner=owner,
            pilot_type=self.pilot_type,
            site=site,
            ce=ce,
            queue=queue,
            platforms=offer["platforms"],
            tags=offer["tags"],
            required_tags=offer["required_tags"],
            job_types=offer["job_types"],
            submit_pools=served,
            submission_pool=submission_pool,
            cores=min(free.cores, offer["cores"]),
            memory_mb=min(free.memory_mb, offer["memory_mb"]),
            norm_cpu_seconds=min(cpu, offer["norm_cpu_seconds"]),
        )


def _offer(request: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration says what the queue is; the node says the rest. Memory that nobody knows is unlimited."""
    job_types = request.get("job_types")
    return {
        "platforms": tuple(request.get("platforms") or ()) or _told(node.get("platform")),
        "tags": tuple(request.get("tags") or ()),
        "required_tags": tuple(request.get("required_tags") or ()),
        "job_types": None if job_types is None else tuple(job_types),
        "cores": _number(request.get("cores")) or _number(node.get("cores")) or 1,
        "memory_mb": _number(request.get("memory_mb")) or _number(node.get("memory_mb")) or UNLIMITED,
        "norm_cpu_seconds": _number(request.get("norm_cpu_seconds")) or UNLIMITED,
    }


def _number(value: Any) -> int:
    """A whole number that a node told, 0 for anything else: it is stored and read again at each start."""
    return min(value, UNLIMITED) if type(value) is int and value > 0 else 0


def _told(value: Any) -> tuple[str, ...]:
    """The one platform that a node tells, if that is a text."""
    return (value,) if isinstance(value, str) and value else ()


def load_sessions(db: apsw.Connection, *, now: float) -> dict[int, PilotSession]:
    """The pilots that had joined and not ended when the server stopped; each gets a full lease."""
    rows = db.execute(f"SELECT {pilots.COLUMNS} FROM pilot WHERE state = 'Running' AND ended_at IS NULL")  # noqa: S608
    found = [pilots.row_of(values) for values in rows]
    return {row.id: PilotSession(row, msgspec.json.decode(row.node), now=now) for row in found}
