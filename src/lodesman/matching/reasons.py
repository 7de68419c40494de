"""Why a task queue and a resource do not fit: a closed set of values (DESIGN rule 1).

Each reason carries what was wanted (by the task queue) and what was offered (by the resource); `str()` is one
sentence for people, `code` a stable word for programs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Final

SHOWN: Final = 5


def _some(values: tuple[str, ...]) -> str:
    """A list for people: the first few, and how many more."""
    if not values:
        return "nothing"
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(values[:SHOWN]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Root of the reasons; only its subclasses are used."""

    code: ClassVar[str] = ""

    def as_dict(self) -> dict[str, Any]:
        """The reason as JSON values: code, its fields and the sentence."""
        return {"code": self.code, **dataclasses.asdict(self), "message": str(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongVO(Reason):
    """The resource serves another VO."""

    wanted: str
    offered: str
    code: ClassVar[str] = "wrong-vo"

    def __str__(self) -> str:
        return f"the resource serves VO {self.offered}, not {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongGroup(Reason):
    """The resource takes jobs of other groups only; a private pilot without a group takes none."""

    wanted: str
    offered: tuple[str, ...]
    code: ClassVar[str] = "wrong-group"

    def __str__(self) -> str:
        return f"the resource takes jobs of {_some(self.offered)}, not of group {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongOwner(Reason):
    """The pilot runs jobs of another owner only."""

    wanted: str
    offered: str
    code: ClassVar[str] = "wrong-owner"

    def __str__(self) -> str:
        return f"the pilot runs only jobs of {self.offered}, not of {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotTypePrivate(Reason):
    """The job asks for a pilot of its own kind (`private`) and this pilot is another."""

    wanted: str
    offered: str
    code: ClassVar[str] = "pilot-type-private"

    def __str__(self) -> str:
        return f"the job needs a {self.wanted} pilot, this one is {self.offered or 'generic'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNotListed(Reason):
    """The job lists sites and this one is not among them."""

    wanted: tuple[str, ...]
    offered: str
    code: ClassVar[str] = "site-not-listed"

    def __str__(self) -> str:
        return f"the job runs only at {_some(self.wanted)}, not at {self.offered or 'an unnamed site'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteBanned(Reason):
    """The job bans this site."""

    site: str
    code: ClassVar[str] = "site-banned"

    def __str__(self) -> str:
        return f"the job bans site {self.site}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CENotListed(Reason):
    """The job lists computing elements and this one is not among them."""

    wanted: tuple[str, ...]
    offered: str
    code: ClassVar[str] = "ce-not-listed"

    def __str__(self) -> str:
        return f"the job runs only on CE {_some(self.wanted)}, not on {self.offered or 'an unnamed CE'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMissing(Reason):
    """The job lists platforms and the resource does not tell its own."""

    wanted: tuple[str, ...]
    code: ClassVar[str] = "platform-missing"

    def __str__(self) -> str:
        return f"the job needs platform {_some(self.wanted)} and the resource tells none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformUnfit(Reason):
    """The job lists platforms and none of the resource's is among them."""

    wanted: tuple[str, ...]
    offered: tuple[str, ...]
    code: ClassVar[str] = "platform-unfit"

    def __str__(self) -> str:
        return f"the job needs platform {_some(self.wanted)}, the resource has {_some(self.offered)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagMissing(Reason):
    """The job has tags that the resource does not offer."""

    missing: tuple[str, ...]
    code: ClassVar[str] = "tag-missing"

    def __str__(self) -> str:
        return f"the resource lacks tag {_some(self.missing)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredTagMissing(Reason):
    """The resource takes only jobs with tags that this job does not have."""

    missing: tuple[str, ...]
    code: ClassVar[str] = "required-tag-missing"

    def __str__(self) -> str:
        return f"the resource takes only jobs with tag {_some(self.missing)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTypeNotOffered(Reason):
    """The resource takes jobs of other types only."""

    wanted: str
    offered: tuple[str, ...]
    code: ClassVar[str] = "job-type-not-offered"

    def __str__(self) -> str:
        return f"the resource takes jobs of type {_some(self.offered)}, not {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFewCores(Reason):
    """The resource has fewer cores than the job needs."""

    wanted: int
    offered: int
    code: ClassVar[str] = "too-few-cores"

    def __str__(self) -> str:
        return f"the job needs {self.wanted} cores, the resource has {self.offered}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLittleMemory(Reason):
    """The resource has less memory than the job needs; in units of 2^20 bytes."""

    wanted: int
    offered: int
    code: ClassVar[str] = "too-little-memory"

    def __str__(self) -> str:
        has = f"has {self.offered}" if self.offered else "tells of none"
        return f"the job needs {self.wanted} MB of memory, the resource {has}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLittleCPUTime(Reason):
    """The resource has less normalised CPU time left than the job needs; seconds."""

    wanted: int
    offered: int
    code: ClassVar[str] = "too-little-cpu-time"

    def __str__(self) -> str:
        return f"the job needs {self.wanted} s of normalised CPU time, the resource has {self.offered}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPoolNotServed(Reason):
    """The queue that the pilot runs on does not meet the job's Requirements (seed rfc7-job-requirements)."""

    pool: str
    code: ClassVar[str] = "submit-pool-not-served"

    def __str__(self) -> str:
        return f"the queue does not meet the job's Requirements (SubmitPool {self.pool[:12]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionPoolMismatch(Reason):
    """The job names submission pools and the pilot came through another (seed taskqueue-director)."""

    wanted: tuple[str, ...]
    offered: str
    code: ClassVar[str] = "submission-pool-mismatch"

    def __str__(self) -> str:
        return (
            f"the job wants a pilot of submission pool {_some(self.wanted)}, "
            f"this one came through {self.offered or 'none'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked(Reason):
    """A limit is full for this task queue."""

    limit: str
    code: ClassVar[str] = "blocked"

    def __str__(self) -> str:
        return f"the limit {self.limit} is full" if self.limit else "a limit is full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty(Reason):
    """No job waits in the task queue."""

    code: ClassVar[str] = "empty"

    def __str__(self) -> str:
        return "no job waits in the task queue"


REASONS: Final[tuple[type[Reason], ...]] = (
    WrongVO, WrongGroup, WrongOwner, PilotTypePrivate, SiteNotListed, SiteBanned, CENotListed,
    PlatformMissing, PlatformUnfit, TagMissing, RequiredTagMissing, JobTypeNotOffered, TooFewCores,
    TooLittleMemory, TooLittleCPUTime, SubmitPoolNotServed, SubmissionPoolMismatch, Blocked, Empty,
)  # fmt: skip
