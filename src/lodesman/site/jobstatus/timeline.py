"""When a pilot publishes what: a state machine with times as arguments. Pure.

    due = decide(said, facts, now)               what to publish now, if anything, and when to ask again
    said = after(said, due.publish, now)         once it was written; a write that failed is due again

Any event is published, no two within 5 s of each other; without one the values are written again each 240 s.

can_postpone_last_job False is a promise: last_max_job_end does not rise, and no payload starts that ends later than others.
True again is published alone; for 600 s (the hold) nothing else changes, no payload starts, and the promise still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .values import Status
from .waste import RunningPayload, publish

APART_SECONDS = 5
HEART_BEAT_SECONDS = 240
HOLD_SECONDS = 600
LEAST_CHANGE_SECONDS = 60
LEAST_CHANGE_SHARE = 0.05
"""An estimate that moves by no more than the larger of these two (of the time left) is not published for that."""


@dataclass(frozen=True)
class Facts:
    """What a pilot knows now, as in waste.publish."""

    allocated: int
    running: Sequence[RunningPayload] = ()
    pending_waste: float = 0
    slot_ends: float | None = None
    drain: frozenset[str] = frozenset()  # the causes for which it takes no more payloads
    priority: int = 0
    leaving: bool = False  # it is about to exit


@dataclass(frozen=True)
class LastStatus:
    """What was published last, and when."""

    status: Status | None = None
    at: float = 0
    held_until: float | None = None  # end of the hold
    promised_end: int | None = None  # when all payloads must have ended; None: nothing was promised


@dataclass(frozen=True)
class NextStatus:
    """What is to be done."""

    ask_again: float  # the latest time of the next question
    publish: Status | None = None  # the values to write now
    why: str = "nothing-new"  # the event


def decide(published: LastStatus, facts: Facts, now: float) -> NextStatus:
    """What to publish now, and when to ask again unless something happens before."""
    if published.status is None:
        return NextStatus(now + APART_SECONDS, _fresh(published, facts, now), "first")
    gone = published.status.used_cpu == 0 and published.status.can_postpone_last_job is False
    if facts.leaving and not gone:
        return NextStatus(now + APART_SECONDS, _fresh(published, facts, now), "leaving")
    status, why = _next(published, published.status, facts, now)
    quiet = now - published.at
    if why != "nothing-new" and not 0 <= quiet < APART_SECONDS:
        return NextStatus(now + APART_SECONDS, status, why)
    if not 0 <= quiet < HEART_BEAT_SECONDS:
        return NextStatus(now + APART_SECONDS, status, "heart-beat")
    if why != "nothing-new":
        return NextStatus(published.at + APART_SECONDS)
    return NextStatus(_ask_again(published, published.status, now))


def note_publication(published: LastStatus, status: Status, now: float) -> LastStatus:
    """The state once this was written."""
    held_until, promised = published.held_until, published.promised_end
    if status.can_postpone_last_job is False:
        promised, held_until = status.last_max_job_end, None
    elif published.status and published.status.can_postpone_last_job is False:
        held_until = now + HOLD_SECONDS
    elif held_until is not None and now >= held_until:
        promised, held_until = None, None
    return LastStatus(status, now, held_until, promised)


def no_start(published: LastStatus, ends: float, now: float) -> str | None:
    """Why a payload that ends then may not start: `hold` (last_job_start would be untrue), or `promise` (last_exp_job_end is
    firm).
    """
    if _is_held(published, now):
        return "hold"
    status = published.status
    if status is None or status.can_postpone_last_job is not False:
        return None
    last = status.last_exp_job_end
    return "promise" if last is not None and ends > last else None


def _is_held(published: LastStatus, now: float) -> bool:
    return published.held_until is not None and now < published.held_until


def _fresh(published: LastStatus, facts: Facts, now: float) -> Status:
    can_postpone = not (facts.drain or facts.leaving)
    promised = None if can_postpone else published.promised_end
    ends = [end for end in (facts.slot_ends, promised) if end is not None]
    status = publish(
        () if facts.leaving else facts.running,
        allocated=facts.allocated,
        pending_waste=facts.pending_waste,
        slot_ends=min(ends, default=None),
        can_postpone=can_postpone,
        priority=facts.priority,
        now=now,
    )
    if promised is None:
        return status
    names = ("first_exp_job_end", "last_exp_job_end", "last_max_job_end")
    return replace(status, **{name: min(getattr(status, name), promised) for name in names})


def _next(published: LastStatus, last: Status, facts: Facts, now: float) -> tuple[Status, str]:
    fresh = _fresh(published, facts, now)
    if last.can_postpone_last_job is False and fresh.can_postpone_last_job:
        return replace(last, can_postpone_last_job=True), "reverted"
    if _is_held(published, now) and fresh.can_postpone_last_job:
        return last, "nothing-new"
    if last.can_postpone_last_job and not fresh.can_postpone_last_job:
        return fresh, "drain"
    if published.held_until is not None:
        return fresh, "hold-over"
    if last.used_cpu == 0 == fresh.used_cpu:
        return _next_idle(last, fresh)
    return fresh, _event(last, fresh, facts.allocated, now)


def _next_idle(last: Status, fresh: Status) -> tuple[Status, str]:
    """Times are of the moment, unless last_max_job_end must not rise."""
    if fresh.can_postpone_last_job is False:
        fresh = replace(
            fresh,
            last_job_start=last.last_job_start,
            first_exp_job_end=last.first_exp_job_end,
            last_exp_job_end=last.last_exp_job_end,
            last_max_job_end=last.last_max_job_end,
        )
    same = (last.add_uncom_time, last.priority_factor) == (fresh.add_uncom_time, fresh.priority_factor)
    return fresh, "nothing-new" if same else "changed"


def _event(last: Status, fresh: Status, allocated: int, now: float) -> str:
    firm = ("used_cpu", "last_job_start", "last_max_job_end", "add_uncom_time", "priority_factor")
    if any(getattr(last, name) != getattr(fresh, name) for name in firm):
        return "changed"
    first, end, waste = last.first_exp_job_end, last.last_exp_job_end, last.add_final_exp_waste
    if first is not None and first <= now and first != fresh.first_exp_job_end:
        return "overdue"
    least = max(LEAST_CHANGE_SECONDS, LEAST_CHANGE_SHARE * ((end or 0) - now))
    moved = (
        _distance(first, fresh.first_exp_job_end),
        _distance(end, fresh.last_exp_job_end),
        _distance(waste, fresh.add_final_exp_waste) / max(1, allocated),
    )
    return "estimate" if max(moved) > least else "nothing-new"


def _distance(before: int | None, since: int | None) -> int:
    return abs((since or 0) - (before or 0))


def _ask_again(published: LastStatus, last: Status, now: float) -> float:
    times = [published.at + HEART_BEAT_SECONDS]
    if published.held_until is not None:
        times.append(published.held_until)
    elif last.used_cpu and last.first_exp_job_end is not None:
        times.append(last.first_exp_job_end)
    return min(time for time in times if time > now)
