"""What is said of the gate of a site: numbers, clauses, and the ads of the last day."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec import Struct

from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.director.budgets import gate_limit
from lodesman.decide.director.limits import Limit
from lodesman.decide.resources import ResourceTree, gate_modes
from lodesman.languages.classad.clauses import written
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.store import Reader
from lodesman.server.store.site_ads import ad_rows, ads_of_the_day, ended_matches, live_matches, newest_ad
from lodesman.server.writer.site_ads import stored_ad
from lodesman.wire.site_ads import GateInFull

MOST_ROOM: Final = 10_000


class GateReader(Struct, frozen=True, kw_only=True):
    """Reads gates of sites of this configuration."""

    db: Reader
    tree: ResourceTree
    options: GateOptions

    def gate_of(self, site: str, ad: SiteAd | None, now: float) -> SiteGate:
        """The gate of a site with its ad, by the pilots that are stored."""
        return self.options.gate(
            site, ad, mode=gate_modes(self.tree).get(site), live=live_matches(self.db, site).get(site, ()),
            ended=partial(ended_matches, self.db), now=now,
        )  # fmt: skip

    def limit(self, site: str, now: float) -> Limit | None:
        """What the gate of a site lets through now; None if that is all."""
        with self.db:
            return gate_limit(self.gate_of(site, stored_ad(self.db, site), now), MOST_ROOM)


def gate_in_full(reader: GateReader, site: str, now: float) -> GateInFull:
    """The gate of a site as one moment has it."""
    with (db := reader.db):
        gate = reader.gate_of(site, stored_ad(db, site), now)
        newest = newest_ad(db, site)
        return GateInFull(
            site=site,
            mode=gate.mode,
            at=now,
            ad=next(iter(ad_rows(db, now, site)), None),
            text=newest[1] if newest else "",
            shut=gate.shut,
            notice=gate.notice,
            room=gate.room(MOST_ROOM),
            matched=gate.matched,
            pilots=len(live_matches(db, site).get(site, ())),
            values=written(gate.values().items()),
            clauses=[one.row for one in gate.clauses()],
            day=ads_of_the_day(db, site, now),
        )
