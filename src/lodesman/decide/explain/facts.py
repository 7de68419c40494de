"""What explanations use beside the configuration: a snapshot of jobs, pilots and the director."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct, field

from lodesman.decide.director.hosts import NODE_FAULT, ON_SHUT_HOST
from lodesman.decide.explain.last_iteration import RecordedIteration
from lodesman.decide.explain.turns import SOON_SECONDS, Waiting
from lodesman.decide.explain.verdict import StoppedPilots, counted, since, span
from lodesman.decide.matching.policy import VOConfig
from lodesman.wire.nodes import QueueId

_FRESH_ITERATIONS: Final = 3
_FRESH_LEAST: Final = 60.0


def fresh_seconds(polling_seconds: float) -> float:
    """How long an iteration of the director counts as recent."""
    return max(_FRESH_LEAST, _FRESH_ITERATIONS * polling_seconds)


class FailingPilots(NamedTuple):
    """A CE queue whose last pilots did not start; none joined since."""

    pilots: int
    reason: str  # of the last one
    is_open: bool = False  # its breaker lets no pilot try it, or only one


class UnreachedPilots(NamedTuple):
    """Running pilots of a CE queue that have not reached the server."""

    pilots: int
    since: float  # of the first one
    host: str  # of the first one

    def text(self, now: float) -> str:
        """For people."""
        first = f"on {self.host} for {span(max(0.0, now - self.since))}"
        if self.pilots == 1:
            return f"a pilot runs there {first}, and has not reached this server"
        return (
            f"{counted(self.pilots, 'pilot')} run there, the first {first}, and have not reached this server"
        )


class DirectorState(NamedTuple):
    """What a running director reports."""

    iterated_at: float | None = None  # its last iteration, stored or with nothing to decide; None: unknown
    full: Mapping[str, bool] | None = None  # whether each submission pool is; None: unknown
    failing: Mapping[QueueId, FailingPilots] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType(
        {}
    )  # of the server, by the sign of them in pilots' last words

    def failing_of(self, config: VOConfig, unreached: int = 0) -> StoppedPilots:
        """Queues whose last pilots did not start, and a mask of those whose pilots do not reach the server."""
        queues = by_nodes = on_shut = 0
        for queue, failing in self.failing.items():
            bit = config.table.bit(queue)
            mask = 0 if bit is None else 1 << bit
            queues |= mask
            by_nodes |= mask if failing.reason.startswith(NODE_FAULT) else 0
            on_shut |= mask if failing.reason == ON_SHUT_HOST else 0
        return StoppedPilots(queues | unreached, by_nodes, on_shut=on_shut)


_NO_DIRECTOR: Final = DirectorState()


class Snapshot(Struct, frozen=True, kw_only=True):
    """The task queues with waiting jobs, and the director."""

    at: float
    fresh_seconds: float  # an older iteration says nothing about now
    waiting: Sequence[Waiting]
    groups: Mapping[tuple[str, str], int]  # waiting jobs by VO and group
    iteration: RecordedIteration | None
    decided_after: float | None = None  # when a later iteration was that is not read yet
    director: DirectorState = _NO_DIRECTOR
    polling_seconds: float = SOON_SECONDS  # between iterations
    left_out: Mapping[str, str] = field(
        default_factory=dict
    )  # what the server fails to handle -> where and why

    def decision(self, now: float) -> RecordedIteration | None:
        """The director's last iteration; None if it is not recent."""
        at = self.decided_at
        return self.iteration if at is not None and now - at <= self.fresh_seconds else None

    @property
    def decided_at(self) -> float | None:
        """The time of the last iteration."""
        read_at = None if self.iteration is None else self.iteration.at
        return read_at if self.decided_after is None else self.decided_after

    @property
    def iterated_at(self) -> float | None:
        """The time of the last iteration, even one with nothing to decide."""
        seen = (self.decided_at, self.director.iterated_at)
        return max((at for at in seen if at is not None), default=None)

    def iterates_soon(self, now: float) -> bool:
        """Whether the next iteration is expected within a minute."""
        return self.iterated_at is not None and self.iterated_at + self.polling_seconds - now <= SOON_SECONDS


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """Facts that jobs and CE queues share. Not slotted, for cached properties."""

    snapshot: Snapshot
    now: float

    def age(self, at: float | None) -> float | None:
        """Seconds since then; None if unknown."""
        return since(at, self.now)

    @property
    def decided_age(self) -> float | None:
        """Seconds since `decision`, or since the last iteration."""
        return self.age(self.snapshot.decided_at if self.decision is None else self.decision.at)

    @property
    def iterated_age(self) -> float | None:
        """Seconds since the last iteration, even one with nothing to decide."""
        return self.age(self.snapshot.iterated_at)

    @cached_property
    def decision(self) -> RecordedIteration | None:
        """See `Snapshot.decision`."""
        return self.snapshot.decision(self.now)

    def left_out(self, *items: str) -> str:
        """Which of these the server could not handle, and why; '' if none."""
        faults = self.snapshot.left_out
        return "; ".join(f"{item} is left out of {faults[item]}" for item in items if item in faults)

    def undecided(self, about: str = "") -> str:
        """That there is no decision, and since when."""
        age = self.decided_age
        return f"the director has not decided anything{about} {'yet' if age is None else f'for {span(age)}'}"
