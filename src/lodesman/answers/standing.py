"""The answer of `GET /v1/standing`: how things stand, counted over all jobs of the caller's VO."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from lodesman.answers.vocabulary import PilotState


class SiteOutcomes(Struct):
    """What became of the attempts that ended at a site, by outcome, and the CPU time that they took, in seconds."""

    site: str
    cpu_seconds: float
    outcomes: dict[str, int]


class GroupClaims(Struct):
    """Starts of a group. Of those `compared`, whose competitors are known, it `deserved` so many by its share."""

    group: str
    share: float
    claims: int
    compared: int
    deserved: float


class Claims(Struct):
    """So many starts of a group while these groups competed; None: not known."""

    group: str
    eligible: list[str] | None
    count: int


class Spread(Struct):
    """How long it took, in seconds: of `count`, half took at most `p50`, and so on; None of nothing."""

    count: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    most: float | None


class Faulty(Struct):
    """So many jobs that are Held, or ended badly, for one reason; `id`: the first of them."""

    id: int
    count: int
    state: Literal["Held", "Failed", "Killed"]
    reason: str


class AttemptCounts(Struct):
    """All attempts, the jobs that they are of, and numbers that were given twice among the newest of them: none."""

    attempts: int = field(name="all")
    jobs: int
    same_number_twice: int


class PilotCount(Struct):
    """So many pilots of a site in a state."""

    site: str
    state: PilotState
    pilots: int


class Standing(Struct):
    """How things stand: jobs by state, attempts by site, starts by group, seconds that jobs waited and ran, failures by
    reason.
    """

    states: dict[str, int]
    sites: list[SiteOutcomes]
    groups: list[GroupClaims]
    claims: list[Claims]
    waiting_seconds: Spread
    running_seconds: Spread
    faulty: list[Faulty]
    attempts: AttemptCounts
    pilots: list[PilotCount]
