"""The answer of `GET /v1/usage`, counted over all jobs of the caller's VO."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from lodesman.answers.vocabulary import PilotState


class SiteOutcomes(Struct):
    """The attempts that ended at a site, by outcome, and their CPU time in seconds."""

    site: str
    cpu_seconds: float
    outcomes: dict[str, int]


class GroupClaims(Struct):
    """Job starts of a group. `compared`: those with known competitors; `target`: how many of them its share is worth."""

    group: str
    share: float
    claims: int
    compared: int
    target: float


class Claims(Struct):
    """The number of job starts of a group while these groups competed; None: not known."""

    group: str
    eligible: list[str] | None
    count: int


class Spread(Struct):
    """Quantiles of `count` times, in seconds; None without any."""

    count: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    most: float | None


class Faulty(Struct):
    """The number of jobs that are Held, Failed or Killed for one reason; `id`: the first of them."""

    id: int
    count: int
    state: Literal["Held", "Failed", "Killed"]
    reason: str


class AttemptCounts(Struct):
    """All attempts, their jobs, and attempt numbers given twice among the newest of them: expect 0."""

    attempts: int = field(name="all")
    jobs: int
    same_number_twice: int


class PilotCount(Struct):
    """The number of pilots of a site in a state."""

    site: str
    state: PilotState
    pilots: int


class Usage(Struct):
    """Jobs by state, attempts by site, job starts by group, waiting and running times, failures by reason."""

    states: dict[str, int]
    sites: list[SiteOutcomes]
    groups: list[GroupClaims]
    claims: list[Claims]
    waiting_seconds: Spread
    running_seconds: Spread
    faulty: list[Faulty]
    attempts: AttemptCounts
    pilots: list[PilotCount]
