"""Test jobs on the queues of a site, and what was found."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from lodesman.wire.nodes import Place
from lodesman.wire.requests import OpenSiteBody

CheckName = Literal[
    "submit", "status", "output", "python", "scratch", "server", "clock", "cancel", "forget"
]  # fmt: skip
Result = Literal["ok", "failed", "unknown"]


class SiteTestBody(OpenSiteBody, frozen=True, kw_only=True):
    """A site, CE or queue to test: by names, or by `path`."""

    seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0  # How long each test job may wait and run.


class SiteTestAt(Struct, frozen=True):
    """A test by its name."""

    test: str


class SiteCheck(Place, frozen=True):
    """One check of a queue."""

    check: CheckName
    result: Result
    seconds: float  # What it took.
    detail: str  # What was found, or what is wrong and what to do.


class SiteTest(Struct, frozen=True, kw_only=True):
    """A test of a site, CE or queue. One that is not asked about for some time is stopped."""

    test: str  # Its name.
    path: str  # What is tested.
    begun_at: float
    state: Literal["running", "stopping", "stopped", "finished"]
    queues: int
    left_out: int  # Queues that are not tested because there are too many.
    doing: dict[str, str]  # What goes on, by queue.
    checks: list[SiteCheck]
