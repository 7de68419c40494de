"""Resource quota sets: what administrators write of them, and what is used of each limit."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lodesman.answers.call import Page

MOST_TEXT: Final = 4 << 20
RUNNING_JOBS: Final = "running jobs"
NEXT_START: Final = "seconds between starts"
"""What limits of sites count, beside the resources of quota sets. Of a delay, `used` is the seconds until it opens."""


class QuotaTextBody(Struct, omit_defaults=True):
    """Sets in Grid Engine's own text. `how`: add new ones, or change those that there are. `trial`: change nothing."""

    text: Annotated[str, Meta(max_length=MOST_TEXT)]
    how: Literal["add", "change"] = "add"
    trial: bool = False


class DropQuotasBody(Struct):
    """The sets to remove, all or none."""

    names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(min_length=1, max_length=1_000)
    ]


class QuotaNoticeRow(Struct):
    """What is odd in a set and does not stop it: in which rule (`set/rule`), and at which line of the text."""

    kind: str
    rule: str
    line: int
    message: str


class QuotasChanged(Struct):
    """The sets that were added, changed or removed, or would be."""

    names: list[str]
    notices: list[QuotaNoticeRow] = []


class QuotaSetRow(Struct):
    """One set, with its canonical text. Times in UNIX seconds."""

    name: str
    enabled: bool
    rules: int
    text: str
    changed_at: float
    changed_by: str


class QuotaSets(Struct):
    """All sets, in the order in which they are asked."""

    sets: list[QuotaSetRow]


class BucketRow(Struct):
    """What is used of one resource in one bucket of a rule (`set/rule`). `of`: the values that have it alone.

    `jobs` wait in task queues that it keeps from starting now.
    """

    rule: str
    of: list[str]
    resource: str
    used: str
    limit: str
    full: bool
    jobs: int


class FullBucket(Struct, frozen=True):
    """A limit that keeps a job from starting: the job needs `need` of what has no room. Texts, as quota sets write them."""

    rule: str
    of: list[str]
    resource: str
    used: str
    limit: str
    need: str

    @property
    def text(self) -> str:
        """For people."""
        if self.resource == RUNNING_JOBS:
            return f"{self.used} of {self.limit} jobs run at {self.of[0]} ({self.rule})"
        if self.resource == NEXT_START:
            return f"{self.of[0]} opens in {self.used} s, one start in {self.limit} s ({self.rule})"
        whose = f" for {', '.join(self.of)}" if self.of else ""
        use = f"{self.used} is used, the job needs {self.need}"
        return f"quota {self.rule}{whose} allows {self.resource}={self.limit}, {use}"


class QuotaUses(Page):
    """The buckets of which something is used, by rule."""

    uses: list[BucketRow]


class QuotaResourceRow(Struct):
    """A resource that rules may limit (a complex of Grid Engine). `consumable`: whether jobs use it up, for each of their
    cores (YES) or once (JOB); `default`: what a job uses that asks for nothing of it.
    """

    name: str
    shortcut: str
    type: str
    consumable: str
    default: str


class QuotaResources(Struct):
    """All of them, in the order of the files."""

    resources: list[QuotaResourceRow]
