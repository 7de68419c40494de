"""How a live pilot stands, and what it would present."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from lodesman.decide.director.site_mask import NOTHING_CLOSED, SiteMask
from lodesman.decide.director.supply import PilotStanding, PilotView
from lodesman.decide.resources import LOCAL, MANUAL
from lodesman.server.loops.left_out import Item, StepPass
from lodesman.server.store.read.pilots import LivePilot
from lodesman.server.writer.sessions import presented_by, takes_jobs

# Of pilots that take no jobs, now or later.
AWAY: Final = frozenset({PilotStanding.SILENT, PilotStanding.DRAINING, PilotStanding.BOUND})


def standing_of(pilot: LivePilot, now: float) -> PilotStanding:
    """Whether a live pilot takes jobs now or later."""
    if pilot.bound_job is not None and not pilot.drain and pilot.joined_at is None:
        return PilotStanding.BOUND
    if not takes_jobs(pilot, now):
        leaves = pilot.drain or pilot.bound_job is not None
        return PilotStanding.DRAINING if leaves else PilotStanding.SILENT
    if pilot.is_shut:
        return PilotStanding.SHUT
    if pilot.backend == MANUAL and pilot.joined_at is None:  # a file is no promise
        return PilotStanding.UNSTARTED
    if pilot.state != "Running":
        return PilotStanding.SUBMITTING if pilot.state == "Prepared" else PilotStanding.WAITING
    return PilotStanding.BUSY if pilot.is_busy else PilotStanding.IDLE


def pilot_view(
    pilot: LivePilot, now: float, barred: frozenset[int] = frozenset(), mask: SiteMask = NOTHING_CLOSED
) -> PilotView:
    """A pilot as it would claim now. `barred`: task queues that limits keep from it; `mask`: what is going to be closed."""
    end = mask.end_of_jobs(pilot.queue_id, now)
    return PilotView(
        pilot_id=pilot.id,
        standing=standing_of(pilot, now),
        request=presented_by(
            pilot.request, pilot.node, pilot.queue_id, joined_at=pilot.joined_at, now=now, end_of_jobs=end
        ),
        submitted_at=pilot.submitted_at or pilot.created_at,
        tq_id=pilot.tq_id,
        barred=barred,
    )


def mark_shut(rows: Sequence[LivePilot], sites: Collection[str]) -> Sequence[LivePilot]:
    """The pilots, where local ones on their way to these sites start on a host that gets no jobs."""
    if not sites:
        return rows
    return [
        replace(row, is_shut=1)
        if row.backend == LOCAL and row.queue_id.site in sites and not row.joined_at
        else row
        for row in rows
    ]


def is_whole(pilot: LivePilot, left: StepPass) -> bool:
    """Whether its times and numbers are numbers; if not, it is left out."""
    times = (pilot.created_at, pilot.submitted_at, pilot.joined_at, pilot.last_seen, pilot.native_seen)
    odd = {str, bytes}.intersection(map(type, (*times, pilot.tq_id, pilot.drain, pilot.bound_job)))
    if odd:
        left.leave_out(Item("pilot", pilot.id), ValueError("one of its times or numbers is none"))
    return not odd
