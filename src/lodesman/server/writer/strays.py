"""Attempts whose pilot is gone; and strays, which live while their job names another attempt, or none.

Only an old data folder should have strays. Their numbers are never reused, and no payload runs twice unless a user
says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from lodesman.languages.jobs.spec import ACTIVE, IDLE
from lodesman.server.store.read.upkeep import wrong_counts
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, jobs
from lodesman.server.store.write.attempts import AttemptReport, Stray
from lodesman.server.store.write.jobs import JobRow
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.report import LOST, end_attempt, never_started, take_back
from lodesman.wire.service import RepairCounts
from lodesman.wire.vocabulary import JobState

log = logging.getLogger(__name__)

_ENDED: Final = "that pilot had ended"
_HELD: Final = "a fault of the server lost the result of attempt {}, and its pilot has ended; release it to run it once more"


def end_all_attempts(live: WriterState, tx: Transaction, pilot_id: int, cause: str, *, why: str = "") -> int:
    """End the attempts of a gone pilot; jobs go back. `why`: for its bound job, if not taken. Returns how many."""
    pilot_attempts = attempts.live_attempts_of(tx, pilot_id)
    jobs_by_id = attempts.jobs_with_attempts(tx, [attempt.job_id for attempt in pilot_attempts])
    for attempt in pilot_attempts:
        job = jobs_by_id.get(attempt.job_id)
        if job is None or job.row.last_attempt != attempt.id:
            live.note_repaired(tx, mend_strays(tx, live, [attempt.id]))
        else:
            _end(tx, live, pilot_id, job.row, cause, why=why)
    live.pilots.ended(tx, pilot_id)
    return len(pilot_attempts)


def mend_strays(tx: Transaction, live: WriterState, attempt_ids: Iterable[int]) -> RepairCounts:
    """Give them back to their jobs, or end them; returns how many.

    A waiting job goes on with a live pilot's attempt; otherwise it is Held: its payload may have run.
    """
    changed, without_job, not_named, of_ended = set[int](), 0, 0, 0
    for stray in attempts.live_strays(tx, attempt_ids):
        row = jobs.row_by_id(tx, stray.job_id)
        details = {"job": stray.job_id, "attempt": stray.number, "pilot": stray.pilot_id}
        if row is None:
            _forget(tx, live, stray)
            log.error("an attempt lived without its job", extra=details)
            without_job += 1
        elif row.last_attempt != stray.id or row.state in IDLE:
            new = _name(tx, live, stray, row)
            log.error("an attempt lived that its job did not name", extra={**details, "becomes": new.value})
            not_named += 1
            if row.state is JobState.WAITING:
                changed.add(row.tq_id)
        elif not stray.pilot_lives:
            _end(tx, live, stray.pilot_id, row, LOST, why=_ENDED)
            log.error("an attempt of a pilot that has ended lived", extra=details)
            of_ended += 1
    if changed:
        _recount(tx, live, sorted(changed))
    return RepairCounts(
        attempts_without_job=without_job, attempts_not_named=not_named, attempts_of_ended_pilots=of_ended
    )


def _end(tx: Transaction, live: WriterState, pilot_id: int, row: JobRow, cause: str, *, why: str) -> None:
    if live.pilots.bound.get(pilot_id) == (row.id, row.attempt):
        take_back(live, tx, pilot_id, why or cause)
        return
    end = AttemptReport(id=row.id, attempt=row.attempt, state="Released", cause=cause)
    end_attempt(live, tx, never_started(tx, row), end, pilot_id=pilot_id)


def _forget(tx: Transaction, live: WriterState, stray: Stray) -> None:
    _let_go(tx, live, stray)
    attempts.delete_attempt(tx, stray.id)


def _name(tx: Transaction, live: WriterState, stray: Stray, row: JobRow) -> JobState:
    """Unless it had a later one; returns the job's state."""
    is_last = row.last_attempt == stray.id or (stray.number > row.attempt and row.state not in ACTIVE)
    if is_last:
        row = jobs.name_attempt(tx, row, stray.number, stray.id)
    if is_last and stray.pilot_lives and row.state is JobState.WAITING:
        new = JobState.RUNNING if stray.started else JobState.MATCHED
        jobs.adopt(tx, live.ids, row, new, pilot_id=stray.pilot_id)
    else:
        _let_go(tx, live, stray)
        attempts.end_attempt(
            tx, stray.id, AttemptReport(id=row.id, attempt=stray.number, state="Released", cause=LOST)
        )
        new = row.state
        if is_last and row.state is JobState.WAITING:
            new, row = JobState.HELD, jobs.allow_another(tx, row)
            reason = _HELD.format(stray.number)
            jobs.move(tx, live.ids, row, new, reason=reason, attempt=stray.number, by="reconciler")
    return new


def _recount(tx: Transaction, live: WriterState, queues: Iterable[int]) -> None:
    """Whether jobs were counted as waiting is unknown."""
    live.queues.write_claims(tx)
    for tq_id in queues:
        live.queues.forget_front(tx, tq_id)
        for _, _, counted in wrong_counts(tx.reader(), tq_id, tq_id):
            live.queues.known_again(tx, tq_id)
            live.queues.correct_count(tx, tq_id, counted)


def _let_go(tx: Transaction, live: WriterState, stray: Stray) -> None:
    live.bookings.ended(tx, stray.pilot_id, (stray.job_id, stray.number))
    live.pilots.stopped(tx, stray.pilot_id, (stray.job_id, stray.number))
