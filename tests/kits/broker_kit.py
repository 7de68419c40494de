"""Ads of a site for tests: the numbers of SAM-Grid's text, changed and added to."""

from __future__ import annotations

from lodesman.decide.broker.ad import SiteAd, read_site_ad
from lodesman.decide.broker.gate import SiteGate, SiteMatch
from lodesman.wire.vocabulary import GateMode

SEED = {
    "MaxJobs": 100,
    "MaxSubmittingJobs": 10,
    "CurrentJobs": 40,
    "CurrentSubmittingJobs": 3,
    "CurMatches": "CurrentJobs",
    "JobsMatchedSinceLastAdvertisement": "CurMatches - CurrentJobs",
    "Requirements": "(CurMatches < MaxJobs) && "
    "(JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs) < MaxSubmittingJobs",
}
"""What a site publishes according to the seed, as expressions."""


def ad_text(site: str = "FNAL", *, sequence: object = 1, **changes: object) -> str:
    """The text of an ad with what the seed says; None leaves an attribute out."""
    head = {"Name": f'"{site}"', "UpdateSequenceNumber": sequence}
    pairs = {**head, **SEED, **changes}
    return "\n".join(f"{name} = {value}" for name, value in pairs.items() if value is not None)


def site_ad(site: str = "FNAL", *, at: float = 0.0, **changes: object) -> SiteAd:
    """The same as it was received."""
    return read_site_ad(ad_text(site, **changes), site=site, now=at)


def strict(ad: SiteAd | None, *matches: SiteMatch, now: float = 0.0) -> SiteGate:
    return SiteGate("FNAL", ad, mode=GateMode.STRICT, matches=matches, now=now)


def ledger(ad: SiteAd | None, *matches: SiteMatch, now: float = 0.0) -> SiteGate:
    return SiteGate("FNAL", ad, mode=GateMode.LEDGER, matches=matches, now=now)


def match(stamp: str, at: float = 1.0, *, ended: bool = False) -> SiteMatch:
    """A pilot that was submitted when it was matched."""
    return SiteMatch(stamp=stamp, matched_at=at, submitted_at=at, ended=ended)


def filled(gate: SiteGate, most: int = 1_000) -> int:
    """Match until the gate is shut; how many matches that were."""
    count = 0
    while count < most and gate.admits():
        gate.take()
        count += 1
    return count
