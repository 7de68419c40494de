"""What holds of every writer, over the log of all that it published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lodesman.site.jobstatus.values import Status

Log = Sequence[tuple[float, Status]]
"""When each status was published, in order."""

HOLD, APART, FRESH = 600, 5, 600


def faults(log: Log, *, apart: float = APART) -> list[str]:
    """Every rule that a publication breaks, with its place. apart: least seconds between two, but for leaving."""
    found = [f"{place} {fault}" for place, (at, status) in enumerate(log) for fault in _of_one(at, status)]
    held_until, promise = 0.0, None
    for place in range(1, len(log)):
        (before, old), (at, new) = log[place - 1], log[place]
        leaving = new.used_cpu == 0 and new.can_postpone_last_job is False
        if old.can_postpone_last_job is False:
            promise = old.last_max_job_end
            held_until = at + HOLD if new.can_postpone_last_job else 0.0
        held = at < held_until
        found += [f"{place} {fault}" for fault in _of_two(old, new, held=held and not leaving)]
        bound = new.can_postpone_last_job is False and (old.can_postpone_last_job is False or held)
        if bound and promise is not None and _later(new.last_max_job_end, promise):
            found.append(f"{place} enforced end rises")
        if new.can_postpone_last_job is False:
            held_until = 0.0
        if at - before < apart and not leaving:
            found.append(f"{place} too soon")
        if at - before > FRESH:
            found.append(f"{place} too late")
        if new.used_cpu and not _repeats(old, new) and _past(at, new) and not _promised(new):
            found.append(f"{place} end in the past")
    return found


def _of_one(at, status):
    if None in (status.used_cpu, status.last_job_start, status.add_uncom_time, status.add_final_exp_waste):
        yield "incomplete"
        return
    ends = [status.first_exp_job_end, status.last_exp_job_end, status.last_max_job_end]
    known = [end for end in ends if end is not None]
    if known != sorted(known):
        yield "ends out of order"
    if status.last_job_start > at + 5:
        yield "start in the future"
    if min(status.used_cpu, status.add_uncom_time, status.add_final_exp_waste) < 0:
        yield "negative"
    if status.used_cpu == 0 and status.add_final_exp_waste:
        yield "waste of an idle pilot"


def _of_two(old, new, *, held):
    if old.can_postpone_last_job is False:
        if new.can_postpone_last_job and replace(old, can_postpone_last_job=True) != new:
            yield "changed with the return to True"
    elif held and new.can_postpone_last_job and new != old:
        yield "changed in the hold"


def _later(end: int | None, promise: int) -> bool:
    return end is None or end > promise


def _repeats(old: Status, new: Status) -> bool:
    return replace(old, can_postpone_last_job=new.can_postpone_last_job) == new


def _past(at: float, status: Status) -> bool:
    return status.first_exp_job_end is not None and status.first_exp_job_end < at


def _promised(status: Status) -> bool:
    """An end that has passed stays, where it was promised that it does not rise."""
    return status.can_postpone_last_job is False and status.first_exp_job_end == status.last_max_job_end
