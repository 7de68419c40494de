"""Answers about what jobs used, day by day: it stays when jobs are purged."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple, get_args

from msgspec import UNSET, Meta, Struct, UnsetType

UsageBy = Literal["user", "group", "site", "vo", "class", "job-group"]
USAGE_BY: Final[tuple[UsageBy, ...]] = get_args(UsageBy)
PilotHoursBy = Literal["queue", "site", "group", "vo"]
PILOT_HOURS_BY: Final[tuple[PilotHoursBy, ...]] = get_args(PilotHoursBy)
DAY_SECONDS: Final = 86_400
UNKNOWN_CLASS: Final = "unknown"
"""The class where it is not known: it was added up before classes were kept, or its task queue is gone."""
UNKNOWN_GROUP: Final = "(unknown)"
"""The JobGroup likewise."""
OK: Final = "ok"
"""The cause of an attempt that ended Done."""
_Second = Annotated[int, Meta(ge=0, le=253_402_300_799)]


class UsageQuery(Struct, frozen=True, omit_defaults=True):
    """The days (UTC) from that of `since` to that of `until`, UNIX seconds; 0: the last seven days, and until now."""

    by: UsageBy = "group"
    since: _Second = 0
    until: _Second = 0


class PilotHoursQuery(Struct, frozen=True, omit_defaults=True):
    """The days as of `UsageQuery`. `by`: `queue` is SITE/CE/QUEUE."""

    by: PilotHoursBy = "site"
    since: _Second = 0
    until: _Second = 0


class UsageDays(NamedTuple):
    """The first and the last of some days (UTC), in days since 1970."""

    first: int
    last: int


class UsedBy(Struct, frozen=True, kw_only=True):
    """What attempts used that ended in these days. `name` '': of all users that the caller may not know (`others`); by class
    or job-group, of jobs without one, and `unknown` or `(unknown)` of those where it was not kept. `vo` '': of any.

    `jobs`: those whose first attempt ended then. `failures`: attempts that did not end Done; `waste`: their core-seconds by
    cause. `cpu_efficiency`: CPU time of the core-seconds for which it is known; None of nothing.
    """

    name: str
    vo: str
    jobs: int
    attempts: int
    failures: int
    wall_seconds: float
    core_seconds: float
    cpu_seconds: float
    cpu_efficiency: float | None
    wasted_core_seconds: float
    waste: dict[str, float]
    others: bool | UnsetType = UNSET


class UsageOfDays(Struct, frozen=True, kw_only=True):
    """Who used most comes first. Whole days, from the beginning of the first to the end of the last, UNIX seconds."""

    by: UsageBy
    since: int
    until: int
    rows: list[UsedBy]


class HeldBy(Struct, frozen=True, kw_only=True):
    """What pilots held in these days: their cores from when each joined (of one that never did, was seen to run) to its end,
    or until now. `name` '': of pilots that serve all groups. `used`: what payloads held of that; `idle`: the rest.

    `live`: those of the `pilots` that have not ended. `unknown_ends`: those that were lost, which count until they were last
    heard. `unknown_starts`: others, which ended and were never seen to run: what they held is not known, and is in no sum.
    """

    name: str
    vo: str
    pilots: int
    live: int
    held_core_seconds: float
    used_core_seconds: float
    idle_core_seconds: float
    unknown_starts: int
    unknown_ends: int


class HeldOfDays(Struct, frozen=True, kw_only=True):
    """Who held most comes first. Whole days as `UsageOfDays`, up to now. `purged`: some pilots that ended before that time
    are not there any more (UNIX seconds; 0: all are).
    """

    by: PilotHoursBy
    since: int
    until: int
    purged: float
    rows: list[HeldBy]


class UsageSums(NamedTuple):
    """Sums of attempts. `jobs`: first attempts among them; `measured_core_ms`: of those whose CPU time is known."""

    attempts: int
    jobs: int
    wall_ms: int
    core_ms: int
    cpu_ms: int
    measured_core_ms: int


class UsageKey(NamedTuple):
    """What is added up together: attempts that ended on a day, in days since 1970, for one cause."""

    day: int
    owner: str
    group: str
    vo: str
    site: str
    cause: str
    job_class: str
    job_group: str


class UsageAdded(Struct, frozen=True, kw_only=True):
    """The attempts that ended in those with `done` < id <= `last` and in those that were open, added up.

    `opened`: those that have not ended; `closed`: those that were open and have. It holds if `done` and `changes` are those
    that are stored.
    """

    done: int
    changes: int
    last: int
    sums: list[tuple[UsageKey, UsageSums]]
    opened: list[int]
    closed: list[int]
