"""Upkeep by the writer: leases that ended, counters that must equal what they count."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from lodesman.services.live import Live
from lodesman.store import task_queues
from lodesman.store.journal import Transaction

log = logging.getLogger(__name__)

WAITING_WITHOUT_QUEUE = """UPDATE job SET queued = 1 WHERE state = 'Waiting' AND queued IS NULL"""
MATCHED_WITHOUT_ATTEMPT = """SELECT j.id FROM job j LEFT JOIN attempt a ON a.id = j.last_attempt
WHERE j.state IN ('Matched', 'Running', 'Stalled') AND (a.id IS NULL OR a.ended_at IS NOT NULL)"""


@dataclass(slots=True)
class Reconcile:
    """Prove that no job waits without a task queue and that counters are true; mend and report what is not."""

    live: Live

    def apply(self, tx: Transaction) -> dict[str, int]:
        """Returns how many of each fault were found (all zero when the house is in order)."""
        self.live.write_claims(tx)
        lost = tx.write(WAITING_WITHOUT_QUEUE)
        ghosts = len(tx.read(MATCHED_WITHOUT_ATTEMPT))
        wrong = task_queues.wrong_counts(tx)
        for tq_id, stored, counted in wrong:
            log.error(
                "a counter was wrong", extra={"task_queue": tq_id, "stored": stored, "counted": counted}
            )
            self.live.known_again(tx, tq_id)
            index = self.live.matcher.index
            difference = counted - index.waiting(tq_id)
            if difference > 0:
                self.live.joined(tx, tq_id, difference)
            elif difference < 0:
                self.live.left(tx, tq_id, -difference)
            self.live.set_waiting(tx, tq_id)
            self.live.fronts.forget(tq_id)
        return {"waiting_without_queue": lost, "active_without_attempt": ghosts, "wrong_counters": len(wrong)}


@dataclass(slots=True)
class ForgetIdleQueues:
    """Free the index slots of task queues that have been empty for long (their rows stay)."""

    live: Live

    def apply(self, tx: Transaction) -> None:
        """Freed after the commit: until then a batch that fails must find every queue where it was."""
        tx.afterwards.append(partial(self._forget, tx.now))

    def _forget(self, now: float) -> None:
        for tq_id in self.live.matcher.index.forget_idle(now):
            self.live.fronts.forget(tq_id)
