"""Resource quota sets: what administrators write of them, and what is used of each limit."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lodesman.wire.call import Page
from lodesman.wire.requests import AllQuery

MOST_TEXT: Final = 4 << 20
RUNNING_JOBS: Final = "running jobs"
NEXT_START: Final = "seconds between starts"
"""What limits of sites count. Of a delay, `used` is the seconds until it opens."""
BYTES: Final = "bytes"


class QuotaTextBody(Struct, frozen=True, omit_defaults=True):
    """Sets in Grid Engine's own text."""

    text: Annotated[str, Meta(max_length=MOST_TEXT)]
    how: Literal["add", "change"] = "add"  # Add new ones, or change those that there are.
    trial: bool = False  # Change nothing.


class DropQuotasBody(Struct, frozen=True):
    """The sets to remove, all or none."""

    names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(min_length=1, max_length=1_000)
    ]


class QuotaNoticeRow(Struct, frozen=True):
    """What is odd in a set and does not stop it."""

    kind: str
    rule: str  # `set/rule`.
    line: int  # Of the text.
    message: str


class QuotasChanged(Struct, frozen=True):
    """The sets that were added, changed or removed, or would be."""

    names: list[str]
    notices: list[QuotaNoticeRow] = []


class QuotaSetRow(Struct, frozen=True):
    """One set."""

    name: str
    enabled: bool
    rules: int
    text: str  # In canonical form.
    changed_at: float  # UNIX seconds.
    changed_by: str


class QuotaSets(Struct, frozen=True):
    """All sets, in the order in which they are asked."""

    sets: list[QuotaSetRow]


class Holder(Struct, frozen=True):
    """An owner whose live attempts use something of a bucket."""

    vo: str
    owner: str
    project: str  # Those without a project stand apart.
    used: str
    jobs: int  # How many attempts.


class Waiter(Struct, frozen=True):
    """An owner whose jobs wait."""

    vo: str
    owner: str
    jobs: int


class LimitBucket(Struct, frozen=True, kw_only=True):
    """What is used of one resource in one bucket of a rule. Amounts are numbers, as texts (or words, of a resource that
    is no number).
    """

    rule: str  # `set/rule`.
    of: list[str]  # The values that have the bucket alone.
    resource: str
    used: str
    limit: str
    need: str = ""  # What is asked of it and has no room; '' if there is room.
    # It has had no room for that since then, or for longer (UNIX seconds; None: unknown).
    since: float | None = None
    # Who of one's own VO uses it, for administrators of all VOs, the largest first.
    holders: list[Holder] = []
    more_holders: int = 0  # How many are left out.
    unit: str = ""  # Of the amounts: bytes, seconds, or ''.

    def amount(self, text: str) -> str:
        """For people, as quota sets write it: `1.5G` of 1610612736 bytes."""
        if self.unit == BYTES and text[:1].isdigit():
            for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
                size = float(text) / 1024**power
                if size >= 1 and round(size, 3) == size:
                    return f"{size:.15g}{letter}"
        return text


class BucketRow(LimitBucket, frozen=True, kw_only=True):
    """A bucket, and the jobs behind it. `need` is that of the smallest of its task queues."""

    full: bool  # It keeps the jobs from starting now.
    jobs: int  # That wait.
    task_queues: int = 0  # Of these jobs.
    owners: list[Waiter] = []  # Of these jobs, of the same VOs, the largest first.
    more_owners: int = 0  # How many are left out.


class FullBucket(LimitBucket, frozen=True, kw_only=True):
    """A limit that keeps a job from starting: the job needs `need` of what has no room."""

    ends: int | None = None  # It fits when so many jobs of the holders have ended; None: no end is enough.
    enough: str = ""  # It fits with such a limit; '' (and `ends` None): not known.
    hopeless: bool = False  # It does not fit even if nothing is used.

    @property
    def text(self) -> str:
        """For people."""
        if self.resource == NEXT_START:
            return f"{self.of[0]} opens in {self.used} s, one start in {self.limit} s ({self.rule})"
        prefix = f"{self.resource}="
        if self.resource == RUNNING_JOBS:
            prefix = ""
            jobs = "1 job runs" if self.limit == "1" else f"{self.limit} jobs run"
            jobs = "no job may run" if self.limit == "0" else f"{self.used} of {jobs}"
            text = f"{jobs} at {self.of[0]} ({self.rule})"
        else:
            whose = f" for {', '.join(self.of)}" if self.of else ""
            use = f"{self.amount(self.used)} is used, the job needs {self.amount(self.need)}"
            text = f"quota {self.rule}{whose} allows {prefix}{self.amount(self.limit)}, {use}"
        if self.holders:
            more = f", {self.more_holders} more" if self.more_holders else ""
            text += f"; used by {', '.join(map(self._holder, self.holders))}{more}"
        if self.enough:
            limit = f"a limit of {prefix}{self.amount(self.enough)}"
            if self.ends is not None:
                text += f"; it fits when {_jobs(self.ends)} ended, or with {limit}"
            elif self.need in ("", self.enough):
                text += f"; it does not fit when other jobs end, only with {limit}"
            else:
                then = f"a limit of {prefix}{self.amount(self.need)} when all that use it have ended"
                text += f"; it does not fit when other jobs end, only with {then}, or with {limit} at once"
        return text

    def _holder(self, holder: Holder) -> str:
        project = f" for {holder.project}" if holder.project else ""
        return f"{holder.owner}{project} ({self.amount(holder.used)} in {holder.jobs})"


def _jobs(count: int) -> str:
    return "1 of these jobs has" if count == 1 else f"{count} of these jobs have"


class UsesQuery(AllQuery, frozen=True, kw_only=True):
    """Limits on some jobs, also those on all."""

    user: str = ""  # Whose jobs; '': anybody's.
    job_class: str = ""  # `class` or `class.variant`; '': any.


class QuotaUses(Page, frozen=True):
    """The buckets of which something is used, by rule."""

    uses: list[BucketRow]


class QuotaResourceRow(Struct, frozen=True):
    """A resource that rules may limit (a complex of Grid Engine)."""

    name: str
    shortcut: str
    type: str
    consumable: str  # Whether jobs use it up, for each of their cores (YES) or once (JOB).
    default: str  # What a job uses that asks for nothing of it.


class QuotaResources(Struct, frozen=True):
    """All of them, in the order of the files."""

    resources: list[QuotaResourceRow]


class RuleEffect(Struct, frozen=True):
    """Waiting jobs for which a rule decides."""

    rule: str
    task_queues: int  # Of these jobs.
    jobs: int
    owners: list[Waiter]  # Of these jobs, the largest first.
    more_owners: int  # How many are left out.


class PlanQuotasBody(Struct, frozen=True):
    """Sets in Grid Engine's own text, which would be added, or replace those of the same name."""

    text: Annotated[str, Meta(max_length=MOST_TEXT)]


class QuotaPlan(Struct, frozen=True):
    """What sets would do."""

    names: list[str]
    notices: list[QuotaNoticeRow]
    over: list[BucketRow]  # Buckets of which more would be used than there is.
    more_over: int
    stopped: list[RuleEffect]  # Jobs that limits let start somewhere now and would not then.
    freed: list[RuleEffect]  # The other way round, by the rule that stops them now.
    limited_now: int  # All jobs that limits keep from starting wherever they may run.
    limited_then: int  # The same with the sets.
