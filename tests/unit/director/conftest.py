"""Factories for the director's tests: short ways to write task queues, resources, CE queues and pilots."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from lodesman.decide.director.plan import TaskQueueDemand
from lodesman.decide.director.queues import CandidateQueue, OwnPilots, QueueCaps, QueueLoad
from lodesman.decide.director.supply import PilotStanding, PilotView
from lodesman.decide.matching.criteria import Reason
from lodesman.decide.matching.criteria import explain as explain_match
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueId

NOW = 1_000_000.0
HOUR = 3600.0


def make_demand(tq_id: int = 1, **given: Any) -> TaskQueueDemand:
    """A task queue; unknown names go into its key."""
    own = {name: given.pop(name) for name in list(given) if name in TaskQueueDemand.__struct_fields__}
    named: dict[str, Any] = {"owner": "ann", "group": "users", "vo": "lab", "norm_cpu_seconds": 3600}
    key = TaskQueueKey(**(named | given))
    base: dict[str, Any] = {"tq_id": tq_id, "key": key, "weight": 1.0, "waiting_jobs": 10}
    return TaskQueueDemand(**(base | own))


def make_request(**given: Any) -> ResourceRequest:
    """What a generic pilot of site A presents."""
    base: dict[str, Any] = {
        "vo": "lab",
        "site": "A",
        "ce": "ce",
        "queue": "q",
        "platforms": ("x86",),
        "norm_cpu_seconds": 86_400,
    }
    return ResourceRequest(**(base | given))


def make_pilot(pilot_id: int, **given: Any) -> PilotView:
    """A pilot waiting since an hour; unknown names go into its request."""
    own = {name: given.pop(name) for name in list(given) if name in PilotView.__struct_fields__}
    base: dict[str, Any] = {
        "pilot_id": pilot_id,
        "standing": PilotStanding.WAITING,
        "request": make_request(**given),
        "submitted_at": NOW - HOUR,
        "tq_id": 1,
    }
    return PilotView(**(base | own))


_BITS: dict[QueueId, int] = {}


@pytest.fixture(autouse=True)
def _numbered_anew() -> None:
    """Each test numbers its CE queues in the order in which it makes them."""
    _BITS.clear()


def make_queue(site: str = "A", queue: str = "q", **given: Any) -> CandidateQueue:
    """A CE queue, empty and freshly seen, without caps unless given."""
    queue_id = QueueId(site, given.pop("ce", "ce"), queue)
    waiting, running = given.pop("waiting", 0), given.pop("running", 0)
    observed_at = given.pop("observed_at", NOW)
    vos = given.pop("vos", ("lab",))
    own = {name: given.pop(name) for name in list(given) if name in CandidateQueue.__struct_fields__}
    template = {"site": site, "ce": queue_id.ce, "queue": queue} | given
    base: dict[str, Any] = {
        "queue_id": queue_id,
        "bit": _BITS.setdefault(queue_id, len(_BITS)),
        "templates": {vo: make_request(vo=vo, **template) for vo in vos},
        "submission_pools": ("Local",),
        "load": QueueLoad(waiting, running, observed_at, "batch"),
        "own": OwnPilots(),
        "caps": QueueCaps(max_waiting=None, max_total=None),
    }
    return CandidateQueue(**(base | own))


class MakePools:
    """SubmitPools as masks: bits of queues by name, queues by pool."""

    def __init__(self, bits: Mapping[QueueId, int], queues: Mapping[str, Collection[QueueId]]) -> None:
        self.bits = bits
        self.queues = queues

    def mask(self, pool: str, /) -> int | None:
        found = self.queues.get(pool)
        return None if found is None else sum(1 << self.bits[queue_id] for queue_id in set(found))

    def bit(self, place: tuple[str, str, str], /) -> int | None:
        return self.bits.get(QueueId(*place))

    def of(self, place: QueueId) -> tuple[str, ...]:
        """What a queue serves."""
        return tuple(sorted(pool for pool, queues in self.queues.items() if place in queues))


@pytest.fixture(scope="session")
def pools() -> type[MakePools]:
    return MakePools


@pytest.fixture(scope="session")
def now() -> float:
    return NOW


@pytest.fixture(scope="session")
def explain() -> Callable[[TaskQueueKey, ResourceRequest], tuple[Reason, ...]]:
    return explain_match


@pytest.fixture(scope="session")
def demand() -> Callable[..., TaskQueueDemand]:
    return make_demand


@pytest.fixture(scope="session")
def request_of() -> Callable[..., ResourceRequest]:
    return make_request


@pytest.fixture(scope="session")
def pilot() -> Callable[..., PilotView]:
    return make_pilot


@pytest.fixture(scope="session")
def queue() -> Callable[..., CandidateQueue]:
    return make_queue
