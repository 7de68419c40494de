"""What sites advertised: newest ads, those of the last day in short, and pilots there."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from lodesman.decide.broker.ad import MOST_LIFETIME_S, AdVersion, SiteAd
from lodesman.decide.broker.gate import SiteMatch
from lodesman.server.store import Reader, readable
from lodesman.server.store.dialect import by_index
from lodesman.server.store.statement import ANY, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.site_ads import AdEntry, SiteAdRow

KEPT_S: Final = 86_400.0
_MOST_AT_ONCE: Final = 5_000
_MOST_SHOWN: Final = 1_000
_VERSION = "sequence, incarnation, lifetime, received_at"
_ROWS = "SELECT site, lifetime, received_at, entry FROM site_ad WHERE ? IN ('', site) ORDER BY site"
_DAY = """SELECT id, entry FROM site_ad_entry WHERE site = ? AND received_at > ?
ORDER BY received_at DESC, id DESC LIMIT ?"""
# A pilot of a forwarding node runs elsewhere than it was sent.
_LIVE = f"""SELECT stamp, site, sent_to, created_at, coalesce(submitted_at, joined_at), joined_at IS NOT NULL
FROM pilot {by_index("pilot_live")} WHERE ended_at IS NULL AND (sent_to <> '' OR ? IN ('', site))"""
_ENDED = f"""SELECT stamp, created_at FROM pilot {by_index("pilot_site")}
WHERE site = ? AND created_at >= ? AND ended_at IS NOT NULL"""
_PUT = """INSERT INTO site_ad (site, sequence, incarnation, lifetime, received_at, entry, text) VALUES (?,?,?,?,?,?,?)
ON CONFLICT (site) DO UPDATE SET sequence = excluded.sequence, incarnation = excluded.incarnation,
lifetime = excluded.lifetime, received_at = excluded.received_at, entry = excluded.entry, text = excluded.text"""
_INSERT_ENTRY = Statement(sql="INSERT INTO site_ad_entry (site, received_at, entry) VALUES (?,?,?)")
_FORGET = """DELETE FROM site_ad_entry WHERE id IN
(SELECT id FROM site_ad_entry WHERE received_at < ? ORDER BY received_at LIMIT ?)"""

_ENTRY: Final = msgspec.json.Decoder(AdEntry)


def ad_versions(db: Reader) -> dict[str, AdVersion]:
    """The newest ad of each site."""
    return {site: _version(*rest) for site, *rest in db.execute(f"SELECT site, {_VERSION} FROM site_ad")}


def newest_ad(db: Reader, site: str) -> tuple[AdVersion, str, int | None] | None:
    """Version, text ('' if damaged), jobs of others; None if the site never advertised."""
    row = db.execute(f"SELECT site, entry, text, {_VERSION} FROM site_ad WHERE site = ?", (site,)).fetchone()
    if row is None:
        return None
    _, _, text, *version = row
    entry = next(readable(lambda _site, entry, *_: _ENTRY.decode(entry), [row], "the ad of"), None)
    return (_version(*version), "", None) if entry is None else (_version(*version), text, entry.others)


def _version(sequence: int, incarnation: str, *times: Any) -> AdVersion:
    """A damaged time counts as long past."""
    is_whole = all(isinstance(time, (int, float)) for time in times)
    lifetime_s, received_at = times if is_whole else (0.0, 0.0)
    return AdVersion(
        sequence=sequence, incarnation=incarnation, lifetime_s=lifetime_s, received_at=received_at
    )


def ad_rows(db: Reader, now: float, site: str = "") -> list[SiteAdRow]:
    """The newest ads in short, of all sites or of one."""

    def row(name: str, lifetime: float, at: float, entry: str) -> SiteAdRow:
        return SiteAdRow(
            **asdict(_ENTRY.decode(entry)),
            site=name,
            lifetime_seconds=lifetime,
            is_too_old=now - at > min(lifetime, MOST_LIFETIME_S),
        )

    return list(readable(row, db.execute(_ROWS, (site,)), "the ad of"))


def ads_of_the_day(db: Reader, site: str, now: float) -> list[AdEntry]:
    """Newest first, at most a thousand."""
    rows = db.execute(_DAY, (site, now - KEPT_S, _MOST_SHOWN))
    return list(readable(lambda _number, text: _ENTRY.decode(text), rows, "ad"))


def live_matches(db: Reader, site: str = "") -> dict[str, list[SiteMatch]]:
    """Live pilots sent to each site, or to one."""
    by_site: dict[str, list[SiteMatch]] = {}
    for name, match in readable(_match, db.execute(_LIVE, (site,)), "pilot"):
        if site in ("", name):
            by_site.setdefault(name, []).append(match)
    return by_site


def _match(stamp: str, runs_at: str, sent_to: str, *rest: Any) -> tuple[str, SiteMatch]:
    at, submitted_at, joined = rest
    name = msgspec.json.decode(sent_to, type=tuple[str, str, str])[0] if sent_to else runs_at
    return name, SiteMatch(stamp=stamp, matched_at=at, submitted_at=submitted_at, joined=bool(joined))


def ended_matches(db: Reader, site: str, since: float) -> list[SiteMatch]:
    """Pilots placed at a site since then that have ended."""
    rows = db.execute(_ENDED, (site, since))
    return [SiteMatch(stamp=stamp, matched_at=at, ended=True) for stamp, at in rows]


def put_ad(tx: Transaction, ad: SiteAd, entry: AdEntry, text: str) -> None:
    """Replace a site's ad, and keep it in short for a day."""
    short = msgspec.json.encode(entry).decode()
    version = (ad.sequence, ad.incarnation, ad.lifetime_s, ad.received_at)
    tx.write(_PUT, (ad.site, *version, short, text), rows=ONE)
    tx.later(_INSERT_ENTRY, (ad.site, ad.received_at, short))


def forget_old_ads(tx: Transaction) -> None:
    """Forget a portion of what is older than a day."""
    tx.write(_FORGET, (tx.now - KEPT_S, _MOST_AT_ONCE), rows=ANY)
