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
"""It was added up before classes were kept, or its task queue is gone."""
UNKNOWN_GROUP: Final = "(unknown)"
"""The JobGroup likewise."""
OK: Final = "ok"
"""The cause of an attempt that ended Done."""
_Second = Annotated[int, Meta(ge=0, le=253_402_300_799)]


class UsageQuery(Struct, frozen=True, omit_defaults=True):
    """Whole days (UTC) of usage."""

    by: UsageBy = "group"
    since: _Second = 0  # A time of the first day, UNIX seconds; 0: the last seven days.
    until: _Second = 0  # A time of the last day, UNIX seconds; 0: now.


class PilotHoursQuery(Struct, frozen=True, omit_defaults=True):
    """Whole days (UTC) of what pilots held, as of `UsageQuery`."""

    by: PilotHoursBy = "site"  # queue: SITE/CE/QUEUE.
    since: _Second = 0
    until: _Second = 0


class UsageDays(NamedTuple):
    """The first and the last of some days (UTC), in days since 1970."""

    first: int
    last: int


class UsedBy(Struct, frozen=True, kw_only=True):
    """What attempts used that ended in these days."""

    # '': of all users that the caller may not know (`others`); by class or job-group, of jobs without one, and
    # `unknown` or `(unknown)` of those where it was not kept.
    name: str
    vo: str  # '': of any.
    jobs: int  # Those whose first attempt ended then.
    attempts: int
    failures: int  # Attempts that did not end Done.
    wall_seconds: float
    core_seconds: float
    cpu_seconds: float
    cpu_efficiency: float | None  # CPU time of the core-seconds for which it is known; None of nothing.
    wasted_core_seconds: float
    waste: dict[str, float]  # Core-seconds of failures, by cause.
    others: bool | UnsetType = UNSET


class UsageOfDays(Struct, frozen=True, kw_only=True):
    """Usage of whole days."""

    by: UsageBy
    since: int  # The beginning of the first day, UNIX seconds.
    until: int  # The end of the last day.
    rows: list[UsedBy]  # Who used most comes first.


class HeldBy(Struct, frozen=True, kw_only=True):
    """What pilots held in these days: their cores from when each joined (of one that never did, was seen to run) to its
    end, or until now.
    """

    name: str  # '': of pilots that serve all groups.
    vo: str
    pilots: int
    live: int  # Those of the pilots that have not ended.
    held_core_seconds: float
    used_core_seconds: float  # What payloads held.
    idle_core_seconds: float  # The rest.
    # Those that ended and were never seen to run: what they held is not known, and is in no sum.
    unknown_starts: int
    unknown_ends: int  # Those that were lost, which count until they were last heard.


class HeldOfDays(Struct, frozen=True, kw_only=True):
    """What pilots held in whole days, as of `UsageOfDays`, up to now."""

    by: PilotHoursBy
    since: int
    until: int
    # Some pilots that ended before that time are not there any more (UNIX seconds; 0: all are).
    purged: float
    rows: list[HeldBy]  # Who held most comes first.


class UsageSums(NamedTuple):
    """Sums of attempts."""

    attempts: int
    jobs: int  # First attempts among them.
    wall_ms: int
    core_ms: int
    cpu_ms: int
    measured_core_ms: int  # Of those whose CPU time is known.


class UsageKey(NamedTuple):
    """What is added up together: attempts that ended on a day for one cause."""

    day: int  # In days since 1970.
    owner: str
    group: str
    vo: str
    site: str
    cause: str
    job_class: str
    job_group: str


class UsageIncrement(Struct, frozen=True, kw_only=True):
    """Attempts that ended, added up. It holds if `done` and `changes` are those that are stored."""

    done: int  # The attempts with ids above this one are looked at.
    changes: int
    last: int  # The highest id of these attempts.
    # Of those that ended, and of those that were open and have ended since.
    sums: list[tuple[UsageKey, UsageSums]]
    opened: list[int]  # Those that have not ended.
    closed: list[int]  # Those that were open and have ended.
