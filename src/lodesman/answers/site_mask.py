"""Answers about what administrators closed."""

from __future__ import annotations

from lodesman.answers.places import Place


class Closing(Place):
    """A site, CE (`queue` is '') or queue that is closed: by whom, why, since when, and until when (None: until it is
    opened). `keep_pilots`: those that were there take jobs.
    """

    reason: str
    closed_by: str
    since: float
    until: float | None
    keep_pilots: bool


class ClosingThere(Closing):
    """One that closes so many of the eligible CE queues."""

    queues: int


class SiteClosed(ClosingThere):
    """What closing did to so many configured CE queues: `drained` pilots leave. `renewed`: it was closed already. A dry
    run did nothing.
    """

    drained: int
    renewed: bool
    dry_run: bool


class SiteOpened(ClosingThere):
    """What was opened, and what is closed around it or in it all the same."""

    still_closed: list[Closing]
