"""Jobs that pilots have ahead, which another pilot may be able to run now (ADR 0077)."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from lodesman.server.store.accounting import RETURNED
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, jobs
from lodesman.server.store.write.attempts import AttemptReport
from lodesman.server.writer.bookings import AHEAD, BEYOND, Attempt
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.report import BEYOND_SIZE, TAKEN_BACK, end_attempt

# What a pilot has not started for so long goes back while others wait; it gives it back itself long before.
_UNSTARTED_SECONDS: Final = 10.0
# After a gap, as of a server that was away, a pilot first reports what it did meanwhile.
_STEADY_SECONDS: Final = 60.0
# A running pilot names what it has several times in this time; if it never does, it is judged without.
_UNNAMED_SECONDS: Final = 60.0
# A pilot silent for so long is judged without its word on what it claimed last, while others wait.
_SILENT_SECONDS: Final = 120.0
# The most in one command; the rest follows soon.
_MOST_AT_ONCE: Final = 200


class HeardPilot(NamedTuple):
    """When a pilot was heard; times in UNIX seconds."""

    cores: int
    at: float  # when it was heard last
    steady_since: float  # since when it is heard without a gap
    memory_mb: float = 0  # 0: unknown
    excused_since: float = -inf  # the end of the gap before the last one
    named_at: float = inf  # when it last named what it has

    def excuses(self, claimed_at: float, now: float) -> bool:
        """Whether a pilot may have run this before a gap, and be about to report it. Only claims since the gap
        before are excused: else a word every half minute would excuse all.
        """
        return (
            self.excused_since <= claimed_at < self.steady_since and now - self.steady_since < _STEADY_SECONDS
        )


_NEVER_AWAY: Final = HeardPilot(0, inf, -inf)


def has_much_ahead(live: WriterState, pilot_id: int, cores: int) -> bool:
    """More than it could run at once, while claims wait. For any thread."""
    return bool(live.parked) and live.pilots.ahead_of(pilot_id) > cores


def may_hoard(live: WriterState, pilot_id: int, cores: int) -> bool:
    """Whether there may be something to take back. For any thread."""
    return has_much_ahead(live, pilot_id, cores) or (bool(live.parked) and live.pilots.runs_beyond(pilot_id))


def others_wait(_tx: Transaction, live: WriterState, pilot_id: int) -> bool:
    """Whether another claim fits a job that this pilot has ahead."""
    held = live.pilots.held.get(pilot_id, {}).values()
    keys = {id(hold[2]): hold[2] for hold in held if hold[0] == AHEAD}
    # One that waits itself has nothing to give.
    return live.parked.of_pilot(pilot_id) is None and live.parked.could_take(keys.values())


def take_back(
    tx: Transaction, live: WriterState, pilots: Mapping[int, HeardPilot]
) -> dict[int, list[Attempt]]:
    """Release unstarted jobs ahead if other claims wait, but for as many as a pilot has cores; and what runs beyond
    its size.
    """
    left, by_pilot = _MOST_AT_ONCE, dict[int, list[Attempt]]()
    for number, heard in pilots.items():
        if not left:
            break
        held = live.pilots.held.get(number, {})
        gone = by_pilot[number] = _hoarded(tx, live, number, heard)[:left]
        left -= len(gone)
        for job_id, attempt in gone:
            row = jobs.allow_another(tx, jobs.need_row(tx, job_id))
            why = BEYOND_SIZE if held[job_id, attempt][0] == BEYOND else TAKEN_BACK
            end = AttemptReport(id=job_id, attempt=attempt, state="Released", cause=RETURNED, message=why)
            end_attempt(live, tx, row, end, pilot_id=number)
    return {number: gone for number, gone in by_pilot.items() if gone}


def _hoarded(tx: Transaction, live: WriterState, pilot_id: int, heard: HeardPilot) -> list[Attempt]:
    """What it may have started unheard a pilot keeps for two minutes."""
    waits = live.parked.of_pilot(pilot_id) is not None
    if len(live.parked) <= waits:
        return []
    live.pilots.fit(tx, pilot_id, heard.cores, heard.memory_mb)
    held = live.pilots.held.get(pilot_id, {})
    # In the order of the claims.
    ahead = [attempt for attempt, hold in held.items() if hold[0] == AHEAD][heard.cores :]
    beyond = [attempt for attempt, hold in held.items() if hold[0] == BEYOND]
    before = max(min(tx.now, heard.at) - _UNSTARTED_SECONDS, tx.now - _SILENT_SECONDS)
    # What it ran may have ended: it names that as handed in.
    named = max(heard.named_at, heard.at - _UNNAMED_SECONDS) - _UNSTARTED_SECONDS
    gone = [
        *_claimed_before(tx, beyond, min(before, named), heard), *_claimed_before(tx, ahead, before, heard)
    ]  # fmt: skip
    return [attempt for attempt in gone if live.parked.could_take([held[attempt][2]])]


def _claimed_before(tx: Transaction, names: list[Attempt], before: float, heard: HeardPilot) -> list[Attempt]:
    if len(names) > 1 and not _claimed_before(tx, names[:1], before, _NEVER_AWAY):
        return []
    stored = attempts.jobs_with_attempts(tx, [job_id for job_id, _ in names])
    return [
        (job_id, number)
        for job_id, number in names
        if job_id in stored
        and (last := stored[job_id].attempt) is not None
        and (stored[job_id].row.attempt, last.ended_at) == (number, None)
        and last.claimed_at <= before
        and not heard.excuses(last.claimed_at, tx.now)
    ]
