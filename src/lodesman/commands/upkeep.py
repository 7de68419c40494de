"""Upkeep by the writer: repair, purge, and free what is idle."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from lodesman.answers.service import Old, Purged, Repaired, Suspects
from lodesman.answers.vocabulary import JobState
from lodesman.commands.live import Live
from lodesman.commands.report import PAYLOAD_CAUSES
from lodesman.jobs.states import ACTIVE
from lodesman.store import claim_log
from lodesman.store.journal import Transaction
from lodesman.store.read.upkeep import wrong_counts
from lodesman.store.write import attempts, jobs, task_queues, upkeep
from lodesman.store.write.attempts import AttemptRow
from lodesman.store.write.jobs import JobRow

log = logging.getLogger(__name__)

_GHOST = "it was active without a live attempt"


@dataclass(slots=True)
class Reconcile:
    """Repair what is wrong with the suspects, and report it: no job waits without a task queue, none is
    active without a live attempt, counters are what they count.
    """

    live: Live
    suspects: Suspects

    def apply(self, tx: Transaction) -> Repaired:
        """Returns how many of each fault were repaired."""
        # Claims that are in the attempts alone so far: counters are compared after them.
        self.live.queues.write_claims(tx)
        repaired = Repaired()
        queues = set(self.suspects.queues)
        for job_id in self.suspects.jobs:
            row = jobs.row_by_id(tx, job_id)
            if row is None:
                continue
            if row.state is JobState.WAITING and jobs.requeue_row(tx, job_id):
                log.error(
                    "a waiting job was in no task queue", extra={"job": job_id, "task_queue": row.tq_id}
                )
                task_queues.row_came_back(tx, row.tq_id, job_id)
                queues.add(row.tq_id)
                repaired.waiting_without_queue += 1
            elif row.state in ACTIVE:
                repaired.active_without_attempt += self._revive(tx, row)
        repaired.wrong_counters = sum(self._recount(tx, tq_id) for tq_id in sorted(queues))
        return repaired

    def _revive(self, tx: Transaction, row: JobRow) -> bool:
        """An active job without a live attempt goes where the end of that attempt should have sent it."""
        attempt = attempts.last_attempt(tx, row)
        if attempt is not None and attempt.ended_at is None:
            return False
        new = _after(row, attempt)
        log.error(
            "a job was active without a live attempt",
            extra={"job": row.id, "was": row.state.value, "becomes": new.value, "attempt": row.attempt},
        )
        jobs.move(tx, self.live.ids, row, new, reason=_GHOST, attempt=row.attempt, by="reconciler")
        if attempt is None:
            jobs.clear_last_attempt(tx, row.id)
        if new is JobState.WAITING:
            self.live.queues.came_back(tx, row.tq_id, row.id)
        return True

    def _recount(self, tx: Transaction, tq_id: int) -> bool:
        """Let counter, index and front of a task queue be what the jobs are."""
        wrong = wrong_counts(tx.reader(), tq_id, tq_id)
        if not wrong:
            return False
        counted = wrong[0].counted
        log.error(
            "a counter was wrong", extra={"task_queue": tq_id, "stored": wrong[0].stored, "counted": counted}
        )
        self.live.queues.known_again(tx, tq_id)
        self.live.queues.correct_count(tx, tq_id, counted)
        return True


def _after(row: JobRow, attempt: AttemptRow | None) -> JobState:
    """The state that the recorded end of the last attempt leads to (`report`); without one, the job goes back."""
    if attempt is not None and attempt.outcome == "Done":
        return JobState.DONE
    if (attempt is not None and attempt.cause in PAYLOAD_CAUSES) or row.attempt >= row.max_attempts:
        return JobState.FAILED
    return JobState.WAITING


@dataclass(slots=True)
class ForgetIdleQueues:
    """Free the index slots of task queues that have been empty for long (their rows stay), and write down what follows
    from the last claims: since when they have been empty, too.
    """

    live: Live

    def apply(self, tx: Transaction) -> None:
        """Freed after the commit: until then a batch that fails must find every queue where it was."""
        self.live.queues.write_claims(tx)
        tx.afterwards.append(partial(self._forget, tx.now))

    def _forget(self, now: float) -> None:
        for tq_id in self.live.queues.index.forget_idle(now):
            self.live.queues.fronts.forget(tq_id)


# Rows of one table that the end of a submission deletes at once.
_MOST_ROWS = 500


@dataclass(slots=True)
class Purge:
    """Delete what is old. What is not old any more, or was not, stays."""

    live: Live
    old: Old

    def apply(self, tx: Transaction) -> Purged:
        """Files are removed by the caller, after the commit."""
        old = self.old
        jobs = self._jobs(tx) if old.jobs else []
        if old.holes:
            upkeep.close_holes(tx, old.holes, old.before)
        if old.templates:
            upkeep.delete_templates(tx, old.templates)
        done = not old.submissions or upkeep.delete_submissions(tx, old.submissions, _MOST_ROWS)
        if old.pilots:
            upkeep.delete_pilots(tx, old.pilots, old.before)
        queues = self._queues(tx) if old.queues else 0
        return Purged(jobs=jobs, queues=queues, more=not done)

    def _jobs(self, tx: Transaction) -> list[tuple[int, int]]:
        found = upkeep.old_jobs(tx, self.old.jobs, self.old.before)
        newest = max((job.last_attempt for job in found if job.last_attempt is not None), default=0)
        if newest > claim_log.claims_at(tx.reader()):
            # Counters and cursors follow from these attempts: write them while the attempts are there.
            self.live.queues.write_claims(tx)
        if found:
            upkeep.delete_jobs(tx, found)
        return [(job.id, job.attempts) for job in found]

    def _queues(self, tx: Transaction) -> int:
        live = self.live
        gone = [
            tq_id
            for tq_id, emptied_at in self.old.queues
            if not live.queues.index.has(tq_id) and task_queues.is_still_empty(tx, tq_id, emptied_at)
        ]
        for tq_id in gone:
            tx.drop(live.queues.held, tq_id)
            live.queues.fronts.forget(tq_id)
        task_queues.delete_queues(tx, gone)
        return len(gone)
