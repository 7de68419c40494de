"""Which waiting pilots to cancel, since demand fell or since they wait too long: slowly, and only what was seen twice.

A single odd snapshot must never empty the queues of a site; a pilot whose submission is under way is never cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lodesman.director.options import ExcessRules
from lodesman.director.supply import PilotStanding, Supply


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """cancel: pilots to cancel now; too_old are those of them that wait too long. suspects: spare pilots and when each
    was first seen so; the caller gives them back at the next iteration.
    """

    cancel: tuple[int, ...] = ()
    too_old: frozenset[int] = frozenset()
    suspects: Mapping[int, float]


def choose_excess(supply: Supply, *, suspects: Mapping[int, float], rules: ExcessRules, now: float) -> Excess:
    """Pilots to cancel among the spare and the aged ones. A pilot that had a use between two iterations starts anew."""
    waiting = [one for one in supply.spare if one.standing is PilotStanding.WAITING]
    stuck = [one for one in supply.aged if one.standing is PilotStanding.WAITING]
    seen = {one.pilot_id: min(suspects.get(one.pilot_id, now), now) for one in (*waiting, *stuck)}
    if not rules.enabled:
        return Excess(suspects=seen)
    tolerated = math.ceil(rules.tolerated_fraction * sum(supply.counted.values()))
    stuck.sort(key=lambda one: (one.submitted_at, one.pilot_id))
    waiting.sort(key=lambda one: (-one.submitted_at, -one.pilot_id))
    useless = [one for one in waiting if one.pilot_id in supply.useless]
    # The oldest surplus pilots stay: they are the nearest to starting.
    surplus = [one for one in waiting if one.pilot_id not in supply.useless]
    surplus = surplus[: max(0, len(surplus) - tolerated)]
    ripe = [
        one.pilot_id
        for one in (*stuck, *useless, *surplus)
        if one.pilot_id in suspects and now - seen[one.pilot_id] >= rules.confirm_s
    ]
    cancel = tuple(ripe[: rules.max_cancels])
    # Those stay suspects: if cancelling fails, the next iteration tries again at once.
    too_old = frozenset(cancel).intersection(one.pilot_id for one in stuck)
    return Excess(cancel=cancel, too_old=too_old, suspects=seen)
