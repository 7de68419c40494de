"""Hosts of pilots: which get no jobs, why, and when they are tried again."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct

from lodesman.base.errors import counted
from lodesman.wire.call import Page
from lodesman.wire.requests import Given, Name

_MOST_NAME: Final = 255


class HostName(NamedTuple):
    """A machine, by the name that pilots there report: it says nothing at other sites. '' is not known."""

    site: str
    host: str

    def __str__(self) -> str:
        return f"{self.host} at {self.site}" if self.site else self.host


def reported_host(value: Any) -> str:
    """The name of its host as a pilot reports it; '' for what is no name."""
    is_name = isinstance(value, str) and len(value) <= _MOST_NAME and value.isprintable()
    return value if is_name else ""


class HostEvidence(Struct, frozen=True, kw_only=True):
    """What shut a host: `failures` of the `attempts` there of these task queues failed at once. Other `hosts` tried them,
    and they mostly fail on `hosts_failing`. `jobs`: those that failed, once for each attempt; not all if they are many.
    `whole_site`: of its whole site, and of other sites.
    """

    failures: int
    task_queues: int
    attempts: int
    hosts: int
    hosts_failing: int
    jobs: list[int]
    whole_site: bool = False

    @property
    def text(self) -> str:
        """In words."""
        if self.whole_site:
            others = f"at {self.hosts_failing} of {counted(self.hosts, 'other site')}"
            return f"at its whole site {self.in_short}; these fail {others}"
        return f"{self.in_short}; these fail on {self.hosts_failing} of {counted(self.hosts, 'other host')}"

    @property
    def in_short(self) -> str:
        """One side of it."""
        return (
            f"{self.failures} of {counted(self.attempts, 'attempt')} from {counted(self.task_queues, 'task queue')} "
            "failed within 60 s of their start in 30 min"
        )


class HostRecord(Struct, frozen=True, kw_only=True):
    """What is stored of a host. `trips`: how often it was shut, since it was last well for a day. `retry_at`: when it gets a
    job as a probe; None: when an administrator opens it (`by`, `reason`). `fault`: what a pilot there found wrong with the
    machine itself. Times in UNIX seconds.
    """

    shut: bool
    since: float
    retry_at: float | None = None
    trips: int = 0
    by: str = ""
    reason: str = ""
    evidence: HostEvidence | None = None
    fault: str = ""

    @property
    def ground(self) -> str:
        """What shut it, in words; '' if that is an order."""
        if self.fault:
            return f"a pilot there found: {self.fault}"
        return "" if self.evidence is None else self.evidence.text


class HostRow(HostRecord, frozen=True, kw_only=True):
    """A host with live `pilots`, `failures` in the last 30 min, or a record. `text`: why it is shut; '' if it is not."""

    site: str
    host: str
    pilots: int
    failures: int
    text: str


class Hosts(Page, frozen=True):
    """Hosts by site and name."""

    hosts: list[HostRow]


class HostChanged(Struct, frozen=True):
    """A host that was shut or opened; `pilots` live there."""

    site: str
    host: str
    shut: bool
    pilots: int


class HostState(NamedTuple):
    """The new record of a host; None: it has none any more."""

    host: HostName
    record: HostRecord | None


class HostsJudged(Struct, frozen=True, kw_only=True):
    """What evidence says now of hosts; failures with numbers up to `forget` count no more."""

    changed: list[HostState] = []
    forget: int = 0


class OpenHostBody(Struct, frozen=True, omit_defaults=True):
    """A host. `site` may be left out if only one site has pilots on a host of that name."""

    host: Given
    site: Name = ""
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class CloseHostBody(Struct, frozen=True, omit_defaults=True):
    """A host whose pilots shall get no jobs until it is opened; `site` as for opening."""

    host: Given
    reason: Annotated[str, Meta(min_length=1, max_length=1_000)]
    site: Name = ""
