"""A newer ad replaces a site's last one; and what processes know of the ads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import Final

from lodesman.base.errors import Conflict, LodesmanError
from lodesman.decide.broker.ad import AdVersion, SiteAd, read_site_ad, replaces
from lodesman.languages.classad import EMPTY, Run, evaluate
from lodesman.server.store import Reader
from lodesman.server.store.site_ads import ad_versions, newest_ad, put_ad
from lodesman.server.store.transaction import Transaction
from lodesman.wire.nodes import utc
from lodesman.wire.site_ads import AdEntry, AdNumbers

log = logging.getLogger(__name__)

_NUMBERS: Final = {
    "MaxJobs": "max_jobs", "MaxSubmittingJobs": "max_submitting_jobs", "MaxPendingJobs": "max_pending_jobs",
    "CurrentJobs": "current_jobs", "CurrentSubmittingJobs": "current_submitting_jobs",
    "CurrentPendingJobs": "current_pending_jobs",
}  # fmt: skip


def entry_of(ad: SiteAd) -> AdEntry:
    """An ad in short."""
    run = Run(now=ad.received_at)
    values = {member: evaluate(name, ad.ad, run=run) for name, member in _NUMBERS.items()}
    numbers = {
        member: value
        for member, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return AdEntry(
        received_at=ad.received_at,
        sequence=ad.sequence,
        incarnation=ad.incarnation,
        stamps=len(ad.stamps),
        numbers=AdNumbers(**numbers),
    )


def advertise(tx: Transaction, ad: SiteAd, entry: AdEntry, text: str) -> None:
    """Raises Conflict if the ad does not replace the stored one."""
    newest = newest_ad(tx.reader(), ad.site)
    old = newest[0] if newest else None
    if old is not None and not replaces(ad, old):
        raise _not_newer(ad, old)
    put_ad(tx, ad, entry, text)


def _not_newer(ad: SiteAd, old: AdVersion) -> Conflict:
    """Blames a wrong clock; a number counts no longer than its ad."""
    ahead, hint = old.ahead_s(ad), "Numbers must grow; with another Incarnation they may begin again."
    by_clock = f", by a clock that was {ahead:,.0f} s ahead" if ahead else ""
    if ahead:
        until = utc(old.good_until, "%Y-%m-%d %H:%M:%S")
        hint = f"Set the clock of the site. From {until} on any number is taken, and at once with another Incarnation."
    return Conflict(
        f"The ad of {ad.site} has the number {ad.sequence}, and one with the number {old.sequence} has come{by_clock}.",
        hint=hint, sequence=ad.sequence, stored=old.sequence,
    )  # fmt: skip


class KnownAds:
    """The stored ads, each read once. For any thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[AdVersion, SiteAd]] = {}
        self._reading = Lock()

    def look(self, db: Reader) -> Mapping[str, SiteAd]:
        """The newest ad of each site; the same object until there is another."""
        with self._reading:
            for site, version in ad_versions(db).items():
                if site not in self._known or self._known[site][0] != version:
                    newest = newest_ad(db, site)
                    if newest:
                        self._known[site] = newest[0], _read(site, *newest)
            return {site: ad for site, (_, ad) in self._known.items()}


def others_before(db: Reader, ad: SiteAd) -> int | None:
    """Jobs of others by the previous ad; None if that says nothing any more."""
    newest = newest_ad(db, ad.site)
    if newest is None or newest[0].incarnation != ad.incarnation or newest[0].is_too_old(ad.received_at):
        return None
    return newest[2]


def stored_ad(db: Reader, site: str) -> SiteAd | None:
    """None if the site never advertised."""
    newest = newest_ad(db, site)
    return None if newest is None else _read(site, *newest)


def _read(site: str, version: AdVersion, text: str, others: int | None) -> SiteAd:
    """An unreadable ad has no attributes, so the gate is shut."""
    try:
        ad = read_site_ad(text, site=site, now=version.received_at, lifetime_s=version.lifetime_s)
        return replace(ad, others=others)
    except LodesmanError as fault:
        log.warning("a stored ad cannot be read", extra={"site": site, "fault": fault.message})
        nothing: frozenset[str] = frozenset()
        return SiteAd(
            site=site, sequence=version.sequence, incarnation=version.incarnation, lifetime_s=version.lifetime_s,
            received_at=version.received_at, ad=EMPTY, stamps=nothing, stations=nothing,
        )  # fmt: skip
