"""What the director left behind and goes by: its last iteration, and what administrators closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lodesman.director.site_mask import Closing, SiteMask
from lodesman.store import Reader

_LAST = "SELECT at, plan FROM director_iteration ORDER BY id DESC LIMIT 1"
_CLOSINGS = "SELECT site, ce, queue, reason, closed_by, since, until, keep_pilots FROM site_mask"


def last_iteration(db: Reader) -> tuple[float, str] | None:
    """When the director last decided, and what, as JSON; None if it never did."""
    row = db.execute(_LAST).fetchone()
    return None if row is None else (row[0], row[1])


def closings(db: Reader) -> SiteMask:
    """All sites, CEs and queues that are closed."""
    return _mask(db.execute(_CLOSINGS))


def closings_of_site(db: Reader, site: str) -> SiteMask:
    """What is closed of a site."""
    return _mask(db.execute(f"{_CLOSINGS} WHERE site = ?", (site,)))


def closings_version(db: Reader) -> int:
    """Changes whenever something is closed or opened."""
    return int(db.only("SELECT version FROM site_mask_state")[0])


def _mask(rows: Iterable[Any]) -> SiteMask:
    return SiteMask(
        Closing(
            site=site, ce=ce, queue=queue, reason=reason, closed_by=by, since=since, until=until,
            keep_pilots=bool(keep),
        )
        for site, ce, queue, reason, by, since, until, keep in rows
    )  # fmt: skip
