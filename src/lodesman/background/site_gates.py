"""What is said of the gate of a site: numbers, clauses, and the ads of the last day."""

from __future__ import annotations

from typing import Final

from lodesman.answers.site_ads import GateInFull
from lodesman.answers.vocabulary import GateMode
from lodesman.classad.clauses import written
from lodesman.commands.site_ads import gate_of, stored_ad
from lodesman.store import Reader
from lodesman.store.site_ads import ad_rows, ads_of_the_day, live_matches, newest_ad

MOST_ROOM: Final = 10_000


def gate_in_full(db: Reader, site: str, now: float, mode: GateMode = GateMode.LEDGER) -> GateInFull:
    """The gate of a site as one moment has it."""
    with db:
        gate = gate_of(db, site, stored_ad(db, site), now, mode=mode)
        newest = newest_ad(db, site)
        return GateInFull(
            site=site,
            mode=mode,
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
