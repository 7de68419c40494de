"""Answers about jobs that do not exist, are hidden from the caller, or were purged."""

from __future__ import annotations

from lodesman.base.errors import NotFound
from lodesman.server.store import Reader
from lodesman.server.store.read.jobs import has_submission, was_given_out
from lodesman.server.writer.control_outcome import ControlOutcome


def name_missing(db: Reader, out: ControlOutcome) -> None:
    """In ranges without a job that the caller may touch. Raises NotFound if all are such."""
    faults = []
    for outcome in out.ranges:
        if not outcome.changed + outcome.refused:
            if outcome.last in out.own:
                out.refuse(outcome.first, "it was purged", count=outcome.last - outcome.first + 1, of=outcome)
                continue
            is_unseen = has_submission(db, outcome.first, outcome.last) or not was_given_out(db, outcome.last)
            faults.append(
                unseen_jobs(outcome.first, outcome.last)
                if is_unseen
                else no_longer_known(outcome.first, outcome.last)
            )
            outcome.reason = faults[-1].message
    if len(faults) == len(out.ranges):
        raise faults[0]


def no_longer_known(first: int, last: int | None = None) -> NotFound:
    """Ids that were given out, and that nothing has."""
    last = first if last is None else last
    which = f"Job {first} is" if first == last else f"The jobs from {first} to {last} are"
    return NotFound(
        f"{which} no longer known.",
        hint="The server purges jobs some time after they have ended (keep_days in its configuration); or its database was "
        "restored from an older backup.",
        first=first,
        last=last,
    )


def unseen_jobs(first: int, last: int) -> NotFound:
    """The refusal for missing or hidden jobs."""
    which = f"Job {first} was" if first == last else f"Jobs {first}-{last} were"
    return NotFound(
        f"{which} not found, or you may not see {'it' if first == last else 'them'}.", first=first, last=last
    )
