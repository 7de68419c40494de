"""What jobs used: states, shares, times and failures of those that are there, and sums by day, in the reading process."""

from __future__ import annotations

from functools import partial

from lodesman.server.http.auth import may_touch, own_vo
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.loops.accounting import NEWEST, days_of, used_for
from lodesman.server.reads.usage import usage_for
from lodesman.server.store.accounting import usage_of_days
from lodesman.server.store.read.usage import pilot_hours, usage_facts
from lodesman.wire import calls
from lodesman.wire.call import Nothing
from lodesman.wire.server import Usage
from lodesman.wire.usage import DAY_SECONDS, HeldOfDays, PilotHoursQuery, UsageOfDays, UsageQuery


@serves(calls.USAGE)
async def _usage(side: ReadSide, request: Request[Nothing, Nothing]) -> Usage:
    may = may_touch(request.who, side.policy.sharing_groups(), for_vo_admins=True)
    vo = own_vo(request.who)
    facts = await side.costly.get(("usage", vo), partial(usage_facts, vo=vo))
    return usage_for(facts, side.policy, may, vo=vo)


@serves(calls.USED)
async def _used(side: ReadSide, request: Request[UsageQuery, Nothing]) -> UsageOfDays:
    asked, vo = request.query, own_vo(request.who)
    days = days_of(asked, side.clock())
    read = partial(usage_of_days, by=asked.by, days=days, vo=vo, newest=NEWEST)
    found = await side.costly.get(("used", asked.by, days, vo), read)
    return used_for(
        found, asked.by, days, may_touch(request.who, side.policy.sharing_groups(), for_vo_admins=True)
    )


@serves(calls.PILOT_HOURS)
async def _pilot_hours(side: ReadSide, request: Request[PilotHoursQuery, Nothing]) -> HeldOfDays:
    asked, vo, now = request.query, own_vo(request.who), side.clock()
    days = days_of(asked, now)
    since, until = days.first * DAY_SECONDS, (days.last + 1) * DAY_SECONDS
    read = partial(pilot_hours, by=asked.by, since=since, until=until, now=now, vo=vo)
    rows, purged = await side.costly.get(("pilot-hours", asked.by, days, vo), read)
    return HeldOfDays(by=asked.by, since=since, until=until, purged=purged, rows=rows)
