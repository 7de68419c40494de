"""Upkeep by the writer: repair, purge, and free what is idle."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from lodesman.languages.jobs.retries import PAYLOAD_CAUSES
from lodesman.languages.jobs.spec import ACTIVE
from lodesman.server.store import claim_log, sandboxes, task_queues
from lodesman.server.store.accounting import RETURNED
from lodesman.server.store.read.upkeep import wrong_counts
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, jobs, upkeep
from lodesman.server.store.write.attempts import AttemptRow
from lodesman.server.store.write.jobs import JobRow
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.order import free_forgotten
from lodesman.server.writer.report import NOT_TAKEN
from lodesman.server.writer.strays import mend_strays
from lodesman.wire.service import PurgeOrder, PurgeResult, RepairCounts, Suspects
from lodesman.wire.vocabulary import JobState

log = logging.getLogger(__name__)

_GHOST = "it was active without a live attempt"


def reconcile(tx: Transaction, live: WriterState, suspects: Suspects) -> RepairCounts:
    """Repair suspects; returns how many of each fault.

    No job waits without a task queue or is active without a live attempt, counters are right, no attempt lives that
    its job does not name, or whose pilot has ended.
    """
    # Counters are compared after claims that are only in the attempts so far.
    live.queues.write_claims(tx)
    strays, queues = mend_strays(tx, live, suspects.attempts), set(suspects.queues)
    came_back = revived = corrected = 0
    for job_id in suspects.jobs:
        row = jobs.row_by_id(tx, job_id)
        if row is None:
            continue
        if row.state is JobState.WAITING and jobs.requeue_row(tx, job_id):
            log.error("a waiting job was in no task queue", extra={"job": job_id, "task_queue": row.tq_id})
            task_queues.row_came_back(tx, row.tq_id, job_id)
            queues.add(row.tq_id)
            came_back += 1
        elif row.state in ACTIVE:
            revived += _revive(tx, live, row)
    for tq_id in sorted(queues):
        for _, stored, counted in wrong_counts(tx.reader(), tq_id, tq_id):
            details = {"task_queue": tq_id, "stored": stored, "counted": counted}
            log.error("a counter was wrong", extra=details)
            live.queues.known_again(tx, tq_id)
            live.queues.correct_count(tx, tq_id, counted)
            corrected += 1
    outputs, usage = _correct_sizes(tx, suspects)
    repaired = replace(
        strays, waiting_without_queue=came_back, active_without_attempt=revived, wrong_counters=corrected,
        wrong_outputs=outputs, wrong_usage=usage,
    )  # fmt: skip
    live.note_repaired(tx, repaired)
    return repaired


def _correct_sizes(tx: Transaction, suspects: Suspects) -> tuple[int, int]:
    """Sizes that changed since they were counted wait. Returns wrong outputs and users."""
    outputs = usage = 0
    for attempt, stored, size in suspects.outputs:
        if attempts.correct_output(tx, attempt, stored, size):
            log.error(
                "the size of an output was wrong",
                extra={"attempt_id": attempt, "stored": stored, "counted": size},
            )
            outputs += 1
    for owner, before, counted in suspects.usage:
        if sandboxes.correct_usage(tx, owner, before, counted):
            log.error(
                "what the files of a user take was wrong",
                extra={"owner": owner, "stored": before, "counted": counted},
            )
            usage += 1
    return outputs, usage


def _revive(tx: Transaction, live: WriterState, row: JobRow) -> bool:
    """Move a job to where the end of its attempt should have sent it."""
    attempt = attempts.last_attempt(tx, row)
    if attempt is not None and attempt.ended_at is None:
        return False
    new = _after(row, attempt)
    log.error(
        "a job was active without a live attempt",
        extra={"job": row.id, "was": row.state.value, "becomes": new.value, "attempt": row.attempt},
    )
    jobs.move(tx, live.ids, row, new, reason=_GHOST, attempt=row.attempt, by="reconciler")
    if attempt is None:
        jobs.clear_last_attempt(tx, row.id)
    if new is JobState.WAITING:
        live.queues.came_back(tx, row.tq_id, row.id)
    return True


def _after(row: JobRow, attempt: AttemptRow | None) -> JobState:
    """By the recorded end of the last attempt; without one, the job goes back."""
    if attempt is not None and attempt.outcome == "Done":
        return JobState.DONE
    if attempt is not None and attempt.cause in (NOT_TAKEN, RETURNED):
        return JobState.WAITING  # it was allowed another one when that ended
    if (attempt is not None and attempt.cause in PAYLOAD_CAUSES) or row.attempt >= row.max_attempts:
        return JobState.FAILED
    return JobState.WAITING


def forget_idle_queues(tx: Transaction, live: WriterState) -> None:
    """Free index slots of long empty task queues (rows stay), write what follows from claims, and free jobs that
    wait for none.
    """

    def forget() -> None:
        for tq_id in live.queues.index.forget_idle(tx.now):
            live.queues.fronts.forget(tq_id)

    live.queues.write_claims(tx)
    free_forgotten(tx, live)
    # After the commit: until then a batch that fails must find every queue where it was.
    tx.afterwards.append(forget)


# The most rows of a table that one command deletes of submissions.
_MOST_ROWS = 500


def purge(tx: Transaction, live: WriterState, old: PurgeOrder) -> PurgeResult:
    """Delete what is still old. The caller removes files after the commit."""
    ended = upkeep.old_jobs(tx, old.jobs, old.before) if old.jobs else []
    if ended:
        newest = max((job.last_attempt for job in ended if job.last_attempt is not None), default=0)
        if newest > claim_log.claims_at(tx.reader()):
            # Counters and cursors follow from these attempts: write them while the attempts are there.
            live.queues.write_claims(tx)
        upkeep.delete_jobs(tx, ended)
    upkeep.delete_left(tx, old)
    done = not old.submissions or upkeep.delete_submissions(tx, old.submissions, _MOST_ROWS)
    if old.submissions and done:
        live.order.forget(tx, upkeep.those_gone(tx, old.submissions))
    gone = [
        tq_id
        for tq_id, emptied_at in old.queues
        if not live.queues.index.has(tq_id) and task_queues.is_still_empty(tx, tq_id, emptied_at)
    ]
    for tq_id in gone:
        tx.drop(live.queues.held, tq_id)
        live.queues.fronts.forget(tq_id)
    if gone:
        task_queues.delete_queues(tx, gone)
    return PurgeResult(jobs=[(job.id, job.attempts) for job in ended], queues=len(gone), more=not done)
