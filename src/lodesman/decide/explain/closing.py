"""What closings, of now and announced, keep a job from, and what can still start before one begins. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Final

from msgspec.structs import asdict

from lodesman.decide.explain.verdict import counted
from lodesman.wire.nodes import ClosedQueues, Closing
from lodesman.wire.why_jobs import JobPilots, JobStep

_SHOWN: Final = 5
_MINUTE: Final = 60


def longest_minutes(asked: int, takes: Callable[[int], bool]) -> int:
    """The most minutes of CPUTime below the `asked` seconds of a job like it that a pilot `takes`; 0 if it takes none."""
    low, high = 0, max(0, (asked - 1) // _MINUTE)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if takes(middle * _MINUTE) else (low, middle - 1)
    return low


def closings_text(found: Iterable[Closing], minutes: int, now: float) -> str:
    """Why no pilot takes a job of queues that are all closed, or are to be; `minutes`: of the longest job that one takes."""
    closings = list(found)
    names = closings_named(closings, now)
    ahead = sum(one.is_ahead(now) for one in closings)
    if not ahead:
        return f"no pilot is there and all of them are closed: {names}"
    which = "are to be closed" if ahead == len(closings) else "are closed, or are to be"
    pilots = "its CPUTime is longer than the time left" if minutes else "no pilot is there that could run it"
    return f"{pilots}, no pilot is sent that could still run then, and all of them {which}: {names}{_still(minutes)}"


def kept_slots_text(keeping: Iterable[Closing], pilots: JobPilots, now: float) -> str:
    """Why a job waits beside free slots to which no pilot is sent since these closings are announced."""
    busy, coming = counted(pilots.usable_busy, "running pilot"), counted(pilots.usable_waiting, "pilot")
    last = f"{busy} may take it, if a job there ends in time"
    if not pilots.usable_busy:
        last = f"{coming} on the way may take it, if in time"
    return f"no pilot is free, and none is sent to the slots that are: {closings_named(keeping, now)}; {last}"


def closings_named(found: Iterable[Closing], now: float) -> str:
    """The first closings, with who ordered them and why."""
    return "; ".join(f"{one.node} is {one.text_at(now)}" for one in [*found][:2])


def _still(minutes: int) -> str:
    return f"; jobs that ask for at most {minutes} min of CPUTime still start" if minutes else ""


def who_shortens(minutes: int, opens: str) -> str:
    """Who can have a job start before a closing begins; `minutes`: of the longest job like it that a pilot takes; `opens`:
    who can open what is closed.
    """
    command = f"lode change JOBS CPUTime={minutes * _MINUTE}"
    asks = f"you, by asking for at most {minutes} min of CPUTime: {command}; or " if minutes else ""
    return f"{asks}{opens}; or the site administrator, by a WallTime with which new pilots end before"


def closings_step(
    found: Sequence[tuple[Closing, int]], eligible: int, *, may_run: bool, now: float, minutes: int = 0
) -> JobStep:
    """How many of the eligible queues are closed, or to be, by whom, why and since when. `may_run`: a pilot there can;
    `minutes`: of the longest job like it that one takes.
    """
    count, total = reduce(or_, (mask for _, mask in found), 0).bit_count(), eligible.bit_count()
    shown, more = found[:_SHOWN], max(0, len(found) - _SHOWN)
    parts = [
        f"{one.node} is {one.text_at(now)} ({counted(mask.bit_count(), 'queue')})" for one, mask in shown
    ]
    parts += [f"and {more} more"] if more else []
    to_be = " or to be closed" if any(one.is_ahead(now) for one, _ in found) else ""
    text = f"{count} of {counted(total, 'eligible queue')} closed{to_be} by administrators"
    return JobStep(
        "site_mask",
        may_run or not total or count < total,
        f"{text}: {'; '.join(parts)}{_still(minutes)}" if parts else text,
        0.0,
        queues=count,
        closings=[ClosedQueues(**asdict(one), queues=mask.bit_count()) for one, mask in shown],
        more=more,
    )
