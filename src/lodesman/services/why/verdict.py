"""never, not now or now: one judgement for a job and for its task queue. Pure.

never: as things are configured no queue can run it. now: a queue that can, and a live pilot there or room for a new
one, exist, with no reason against any of them. not now: everything between; a pilot that is busy may be so for days.
What is unknown opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lodesman.answers.vocabulary import MainReason
from lodesman.services.why.pilot_book import Usable

NEVER, NOT_NOW, NOW = "never", "not now", "now"


VERDICTS: Final = {
    MainReason.IMPOSSIBLE: NEVER,
    MainReason.CLOSED: NOT_NOW,
    MainReason.NOT_DECIDED: NOT_NOW,
    MainReason.DIRECTOR_OFF: NOT_NOW,
    MainReason.NO_SUBMISSION_POOL: NOT_NOW,
    MainReason.NO_ROOM: NOT_NOW,
    MainReason.HELD: NOT_NOW,
    MainReason.PILOT_EXPECTED: NOW,
    MainReason.PILOT_COMING: NOW,
    MainReason.PILOTS_BUSY: NOT_NOW,
    MainReason.NEXT: NOW,
}
WHO: Final = {
    MainReason.IMPOSSIBLE: "you, by changing the job; or who configures the sites",
    MainReason.CLOSED: "an administrator: lode site open",
    MainReason.NOT_DECIDED: "the server, at its next iteration",
    MainReason.DIRECTOR_OFF: "who configures the director: pilotsPerIteration; or time, if targetRunningJobs jobs run",
    MainReason.NO_SUBMISSION_POOL: "time, as submissions end; or who configures the submission pools",
    MainReason.NO_ROOM: "time, as pilots there start or end; or who configures the sites",
    MainReason.HELD: "you or whoever may control the job: lode release",
    MainReason.PILOT_EXPECTED: "nobody need do anything",
    MainReason.PILOT_COMING: "nobody need do anything",
    MainReason.PILOTS_BUSY: "time, as the jobs of running pilots end",
    MainReason.NEXT: "nobody need do anything",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the judgement needs. `eligible` and `open` are masks of queues; `open` is None if nobody knows. `refused`: no
    submission pool takes pilots for these jobs; `sends`: the director sends pilots at all. `closed`: the queues that an
    administrator has closed, whatever the director knew when it decided.
    """

    eligible: int
    open: int | None
    usable: Usable
    refused: bool = False
    sends: bool = True
    closed: int = 0


def judge(facts: Facts) -> MainReason:
    """The main reason of jobs that wait."""
    usable = facts.usable
    if not facts.eligible:
        return MainReason.IMPOSSIBLE
    if usable.idle:
        return MainReason.NEXT
    if usable.coming:
        return MainReason.PILOT_COMING
    may_be_sent = facts.sends and not facts.refused
    if may_be_sent and facts.open is not None and facts.eligible & facts.open & ~facts.closed:
        return MainReason.PILOT_EXPECTED
    return MainReason.PILOTS_BUSY if usable.busy else _why_none_is_sent(facts)


def _why_none_is_sent(facts: Facts) -> MainReason:
    if not facts.eligible & ~facts.closed:
        return MainReason.CLOSED
    if facts.open is None:
        return MainReason.NOT_DECIDED
    if not facts.sends:
        return MainReason.DIRECTOR_OFF
    return MainReason.NO_SUBMISSION_POOL if facts.refused else MainReason.NO_ROOM
