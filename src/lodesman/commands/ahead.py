"""What pilots have ahead: jobs to run later, which another pilot may be able to run now (ADR 0077)."""

from __future__ import annotations

from lodesman.commands.bookings import AHEAD
from lodesman.commands.live import Live
from lodesman.store.transaction import Transaction


def has_much_ahead(live: Live, pilot_id: int, cores: int) -> bool:
    """Whether a pilot has more attempts ahead than it could run at once, while claims wait. Any thread may ask."""
    return bool(live.parked) and live.pilots.ahead_of(pilot_id) > cores


def others_wait(_tx: Transaction, live: Live, pilot_id: int) -> bool:
    """Whether the claim of another pilot waits that fits a job which this one has ahead."""
    held = live.pilots.held.get(pilot_id, {}).values()
    keys = {id(one[2]): one[2] for one in held if one[0] == AHEAD}
    # One that waits itself has nothing to give.
    return live.parked.of_pilot(pilot_id) is None and live.parked.could_take(keys.values())
