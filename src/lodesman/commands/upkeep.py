"""Upkeep by the writer: what the reconciler doubts is looked at again by key and mended; idle queues are forgotten."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from lodesman.answers.service import Doubts
from lodesman.answers.vocabulary import JobState
from lodesman.commands.live import Live
from lodesman.commands.report import PAYLOAD_CAUSES
from lodesman.jobs.states import ACTIVE
from lodesman.store import doubts, jobs, task_queues
from lodesman.store.journal import Transaction

log = logging.getLogger(__name__)

GHOST = "it was active without a live attempt"


@dataclass(slots=True)
class Reconcile:
    """Mend what is wrong of that of which a reader doubts, and report it: no job waits without a task queue, none is
    active without a live attempt, counters are what they count.
    """

    live: Live
    doubts: Doubts

    def apply(self, tx: Transaction) -> dict[str, int]:
        """Returns how many of each fault were mended."""
        # Claims that are in the attempts alone so far: counters are compared after them.
        self.live.write_claims(tx)
        mended = {"waiting_without_queue": 0, "active_without_attempt": 0, "wrong_counters": 0}
        queues = set(self.doubts.queues)
        for job_id in self.doubts.jobs:
            row = jobs.read_row(tx, job_id)
            if row is None:
                continue
            if row.state is JobState.WAITING and tx.write(doubts.REQUEUE, (job_id,)):
                log.error(
                    "a waiting job was in no task queue", extra={"job": job_id, "task_queue": row.tq_id}
                )
                task_queues.row_came_back(tx, row.tq_id, job_id)
                queues.add(row.tq_id)
                mended["waiting_without_queue"] += 1
            elif row.state in ACTIVE:
                mended["active_without_attempt"] += self._revive(tx, row)
        mended["wrong_counters"] = sum(self._recount(tx, tq_id) for tq_id in sorted(queues))
        return mended

    def _revive(self, tx: Transaction, row: jobs.JobRow) -> bool:
        """An active job without a live attempt goes where the end of that attempt should have sent it."""
        found = tx.read(doubts.LAST_ATTEMPT, (row.last_attempt,))
        ended, outcome, cause = found[0] if found else (row.since, None, None)
        if ended is None:
            return False
        new = _after(row, outcome, cause)
        log.error(
            "a job was active without a live attempt",
            extra={"job": row.id, "was": row.state.value, "becomes": new.value, "attempt": row.attempt},
        )
        jobs.move(tx, self.live.ids, row, new, reason=GHOST, attempt=row.attempt, by="reconciler")
        if not found:
            tx.write(doubts.NO_ATTEMPT, (row.id,))
        if new is JobState.WAITING:
            self.live.came_back(tx, row.tq_id, row.id)
        return True

    def _recount(self, tx: Transaction, tq_id: int) -> bool:
        """Let counter, index and front of a task queue be what the jobs are."""
        wrong = doubts.wrong_count(tx, tq_id)
        if wrong is None:
            return False
        stored, counted = wrong
        log.error("a counter was wrong", extra={"task_queue": tq_id, "stored": stored, "counted": counted})
        self.live.known_again(tx, tq_id)
        difference = counted - self.live.matcher.index.waiting(tq_id)
        if difference > 0:
            self.live.joined(tx, tq_id, difference)
        elif difference < 0:
            self.live.left(tx, tq_id, -difference)
        self.live.set_waiting(tx, tq_id)
        self.live.fronts.forget(tq_id)
        return True


def _after(row: jobs.JobRow, outcome: str | None, cause: str | None) -> JobState:
    """The state that the recorded end of the last attempt leads to (`report`); without one, the job goes back."""
    if outcome == "Done":
        return JobState.DONE
    if cause in PAYLOAD_CAUSES or row.attempt >= row.max_attempts:
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
        self.live.write_claims(tx)
        tx.afterwards.append(partial(self._forget, tx.now))

    def _forget(self, now: float) -> None:
        for tq_id in self.live.matcher.index.forget_idle(now):
            self.live.fronts.forget(tq_id)
