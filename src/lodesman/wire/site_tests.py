"""The test of a site: test jobs sent to its queues, and what was found on the way."""

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
    """A site, CE or queue to test: by names, or by `path`. Each test job may wait and run for `seconds`."""

    seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0


class SiteTestAt(Struct, frozen=True):
    """A test by its name."""

    test: str


class SiteCheck(Place, frozen=True):
    """One check of a queue; `seconds`: what it took. `detail`: what was found, or what is wrong and what to do."""

    check: CheckName
    result: Result
    seconds: float
    detail: str


class SiteTest(Struct, frozen=True, kw_only=True):
    """A test of what `path` names, by the name `test`. `doing`: what goes on, by queue. `left_out`: queues that are not
    tested because there are too many. A test that is not asked about for some time is stopped.
    """

    test: str
    path: str
    begun_at: float
    state: Literal["running", "stopping", "stopped", "finished"]
    queues: int
    left_out: int
    doing: dict[str, str]
    checks: list[SiteCheck]
