"""Hosts of pilots: which get no jobs, why, and when they are tried again."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct

from lodesman.base.errors import counted
from lodesman.wire.call import Page
from lodesman.wire.requests import KnownName, Name

_MOST_NAME: Final = 255


class HostName(NamedTuple):
    """A machine."""

    site: str  # '': the host is not known.
    host: str  # As pilots there report it; it says nothing at other sites.

    def __str__(self) -> str:
        return f"{self.host} at {self.site}" if self.site else self.host


def reported_host(value: Any) -> str:
    """As a pilot reports it; '' for what is no name."""
    is_name = isinstance(value, str) and len(value) <= _MOST_NAME and value.isprintable()
    return value if is_name else ""


class HostEvidence(Struct, frozen=True, kw_only=True):
    """What shut a host: attempts there that failed at once."""

    failures: int  # How many of the attempts there failed at once.
    task_queues: int  # Those that the attempts are of.
    attempts: int
    hosts: int  # Other hosts that tried these task queues.
    hosts_failing: int  # On how many of these the task queues mostly fail.
    jobs: list[int]  # Those that failed, once for each attempt; not all if they are many.
    whole_site: bool = False  # All this is of its whole site, and `hosts` counts other sites.

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
    """What is stored of a host. Times in UNIX seconds."""

    shut: bool
    since: float
    retry_at: float | None = None  # When it gets a job as a probe; None: when an administrator opens it.
    trips: int = 0  # How often it was shut since it was last well for a day.
    by: str = ""  # The administrator who ordered it.
    reason: str = ""  # Of the order.
    evidence: HostEvidence | None = None
    fault: str = ""  # What a pilot there found wrong with the machine itself.

    @property
    def ground(self) -> str:
        """What shut it, in words; '' if that is an order."""
        if self.fault:
            return f"a pilot there found: {self.fault}"
        return "" if self.evidence is None else self.evidence.text


class HostRow(HostRecord, frozen=True, kw_only=True):
    """A host with live pilots, with failures lately, or with a record."""

    site: str
    host: str
    pilots: int  # Live ones.
    failures: int  # In the last 30 min.
    text: str  # Why it is shut; '' if it is not.


class Hosts(Page, frozen=True):
    """Hosts by site and name."""

    hosts: list[HostRow]


class HostChanged(Struct, frozen=True):
    """A host that was shut or opened."""

    site: str
    host: str
    shut: bool
    pilots: int  # That live there.


class HostState(NamedTuple):
    """The new record of a host."""

    host: HostName
    record: HostRecord | None  # None: it has none any more.


class HostVerdicts(Struct, frozen=True, kw_only=True):
    """What evidence says now of hosts."""

    changed: list[HostState] = []
    forget: int = 0  # Failures with numbers up to this one count no more.


class OpenHostBody(Struct, frozen=True, omit_defaults=True):
    """A host to open."""

    host: KnownName
    site: Name = ""  # May be left out if only one site has pilots on a host of that name.
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class CloseHostBody(Struct, frozen=True, omit_defaults=True):
    """A host whose pilots shall get no jobs until it is opened."""

    host: KnownName
    reason: Annotated[str, Meta(min_length=1, max_length=1_000)]
    site: Name = ""  # As for opening.
