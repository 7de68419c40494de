"""Resource quota sets: what administrators write of them, and what is used of each limit."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lodesman.wire.call import Page
from lodesman.wire.requests import AllQuery

MOST_TEXT: Final = 4 << 20
RUNNING_JOBS: Final = "running jobs"
NEXT_START: Final = "seconds between starts"
"""What limits of sites count, beside the resources of quota sets. Of a delay, `used` is the seconds until it opens."""
BYTES: Final = "bytes"


class QuotaTextBody(Struct, frozen=True, omit_defaults=True):
    """Sets in Grid Engine's own text. `how`: add new ones, or change those that there are. `trial`: change nothing."""

    text: Annotated[str, Meta(max_length=MOST_TEXT)]
    how: Literal["add", "change"] = "add"
    trial: bool = False


class DropQuotasBody(Struct, frozen=True):
    """The sets to remove, all or none."""

    names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(min_length=1, max_length=1_000)
    ]


class QuotaNoticeRow(Struct, frozen=True):
    """What is odd in a set and does not stop it: in which rule (`set/rule`), and at which line of the text."""

    kind: str
    rule: str
    line: int
    message: str


class QuotasChanged(Struct, frozen=True):
    """The sets that were added, changed or removed, or would be."""

    names: list[str]
    notices: list[QuotaNoticeRow] = []


class QuotaSetRow(Struct, frozen=True):
    """One set, with its canonical text. Times in UNIX seconds."""

    name: str
    enabled: bool
    rules: int
    text: str
    changed_at: float
    changed_by: str


class QuotaSets(Struct, frozen=True):
    """All sets, in the order in which they are asked."""

    sets: list[QuotaSetRow]


class Holder(Struct, frozen=True):
    """An owner whose live attempts, `jobs` of them, use something of a bucket; those without a project apart."""

    vo: str
    owner: str
    project: str
    used: str
    jobs: int


class Waiter(Struct, frozen=True):
    """An owner whose jobs wait."""

    vo: str
    owner: str
    jobs: int


class LimitBucket(Struct, frozen=True, kw_only=True):
    """What is used of one resource in one bucket of a rule (`set/rule`). `of`: the values that have it alone. Amounts are
    numbers, as texts, of a `unit`: bytes, seconds, or '' (or they are words, of a resource that is no number).

    `need`: what is asked of it and has no room, '' if there is room. `since`: it has had no room for that since then, or for
    longer (UNIX seconds; None: unknown). `holders`: who of one's own VO uses it, for administrators of all VOs, the largest
    first; `more_holders` are left out.
    """

    rule: str
    of: list[str]
    resource: str
    used: str
    limit: str
    need: str = ""
    since: float | None = None
    holders: list[Holder] = []
    more_holders: int = 0
    unit: str = ""

    def amount(self, text: str) -> str:
        """One of the amounts for people, as quota sets write it: `1.5G` of 1610612736 bytes."""
        if self.unit == BYTES and text[:1].isdigit():
            for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
                size = float(text) / 1024**power
                if size >= 1 and round(size, 3) == size:
                    return f"{size:.15g}{letter}"
        return text


class BucketRow(LimitBucket, frozen=True, kw_only=True):
    """`jobs` wait in `task_queues` that it keeps from starting now, `full`; of these `owners`, of the same VOs, the largest
    first, and `more_owners`. `need`: of the smallest of them.
    """

    full: bool
    jobs: int
    task_queues: int = 0
    owners: list[Waiter] = []
    more_owners: int = 0


class FullBucket(LimitBucket, frozen=True, kw_only=True):
    """A limit that keeps a job from starting: the job needs `need` of what has no room. It fits when `ends` jobs of the
    holders have ended (None: no end is enough), or with a limit of `enough`; '' and None: not known. `hopeless`: it does not
    fit even if nothing is used.
    """

    ends: int | None = None
    enough: str = ""
    hopeless: bool = False

    @property
    def text(self) -> str:
        """For people."""
        if self.resource == NEXT_START:
            return f"{self.of[0]} opens in {self.used} s, one start in {self.limit} s ({self.rule})"
        what = f"{self.resource}="
        if self.resource == RUNNING_JOBS:
            what = ""
            jobs = "1 job runs" if self.limit == "1" else f"{self.limit} jobs run"
            jobs = "no job may run" if self.limit == "0" else f"{self.used} of {jobs}"
            text = f"{jobs} at {self.of[0]} ({self.rule})"
        else:
            whose = f" for {', '.join(self.of)}" if self.of else ""
            use = f"{self.amount(self.used)} is used, the job needs {self.amount(self.need)}"
            text = f"quota {self.rule}{whose} allows {what}{self.amount(self.limit)}, {use}"
        if self.holders:
            more = f", {self.more_holders} more" if self.more_holders else ""
            text += f"; used by {', '.join(map(self._holder, self.holders))}{more}"
        if self.enough:
            limit = f"a limit of {what}{self.amount(self.enough)}"
            if self.ends is not None:
                text += f"; it fits when {_jobs(self.ends)} ended, or with {limit}"
            elif self.need in ("", self.enough):
                text += f"; it does not fit when other jobs end, only with {limit}"
            else:
                then = f"a limit of {what}{self.amount(self.need)} when all that use it have ended"
                text += f"; it does not fit when other jobs end, only with {then}, or with {limit} at once"
        return text

    def _holder(self, one: Holder) -> str:
        return f"{one.owner}{f' for {one.project}' if one.project else ''} ({self.amount(one.used)} in {one.jobs})"


def _jobs(count: int) -> str:
    return "1 of these jobs has" if count == 1 else f"{count} of these jobs have"


class UsesQuery(AllQuery, frozen=True, kw_only=True):
    """Limits on jobs of this user and of this job class (`class` or `class.variant`), also those on all; '' is any."""

    user: str = ""
    job_class: str = ""


class QuotaUses(Page, frozen=True):
    """The buckets of which something is used, by rule."""

    uses: list[BucketRow]


class QuotaResourceRow(Struct, frozen=True):
    """A resource that rules may limit (a complex of Grid Engine). `consumable`: whether jobs use it up, for each of their
    cores (YES) or once (JOB); `default`: what a job uses that asks for nothing of it.
    """

    name: str
    shortcut: str
    type: str
    consumable: str
    default: str


class QuotaResources(Struct, frozen=True):
    """All of them, in the order of the files."""

    resources: list[QuotaResourceRow]


class RuleEffect(Struct, frozen=True):
    """Waiting jobs of some task queues for which a rule decides; of these `owners`, the largest first, and `more_owners`."""

    rule: str
    task_queues: int
    jobs: int
    owners: list[Waiter]
    more_owners: int


class PlanQuotasBody(Struct, frozen=True):
    """Sets in Grid Engine's own text, which would be added, or replace those of the same name."""

    text: Annotated[str, Meta(max_length=MOST_TEXT)]


class QuotaPlan(Struct, frozen=True):
    """What sets would do. `over`: buckets of which more would be used than there is. `stopped`: jobs that limits let start
    somewhere now and would not then; `freed`: the other way round, by the rule that stops them now. `limited_now` and
    `limited_then`: all jobs that limits keep from starting wherever they may run.
    """

    names: list[str]
    notices: list[QuotaNoticeRow]
    over: list[BucketRow]
    more_over: int
    stopped: list[RuleEffect]
    freed: list[RuleEffect]
    limited_now: int
    limited_then: int
