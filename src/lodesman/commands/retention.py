"""Purging, as the writer does it: in small portions, each checked again (`background.retention` finds what is old).

Input files that no job names are marked first. A client asks whether a file is there, and submits a job that names it
later, maybe after uploading others for hours. From the mark on the file is not there for those who ask: they upload it
again, which takes the mark off. A time of grace later it is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from lodesman.answers.service import FileKey, Old, Purged, UnusedInputs
from lodesman.commands.live import Live
from lodesman.store import claim_log
from lodesman.store.journal import Transaction
from lodesman.store.write import retention, sandboxes, task_queues

# Rows of one table that the end of a submission deletes at once.
MOST_ROWS = 500


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
            retention.close_holes(tx, old.holes, old.before)
        if old.templates:
            retention.delete_templates(tx, old.templates)
        done = not old.submissions or retention.delete_submissions(tx, old.submissions, MOST_ROWS)
        if old.pilots:
            retention.delete_pilots(tx, old.pilots, old.before)
        queues = self._queues(tx) if old.queues else 0
        return Purged(jobs=jobs, queues=queues, more=not done)

    def _jobs(self, tx: Transaction) -> list[tuple[int, int]]:
        found = retention.old_jobs(tx, self.old.jobs, self.old.before)
        newest = max((job.last_attempt for job in found if job.last_attempt is not None), default=0)
        if newest > claim_log.claims_at(tx.reader()):
            # Counters and cursors follow from these attempts: write them while the attempts are there.
            self.live.queues.write_claims(tx)
        if found:
            retention.delete_jobs(tx, found)
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


@dataclass(slots=True)
class TidyInputs:
    """Mark and remove input files, each checked again; the files themselves go after the commit."""

    found: UnusedInputs

    def apply(self, tx: Transaction) -> list[FileKey]:
        """Returns the files that are not known any more."""
        found = self.found
        if found.done:
            sandboxes.drop_uses(tx, found.done, MOST_ROWS)
        for submission, files in found.some:
            sandboxes.drop_some_uses(tx, submission, files)
        if found.mark:
            sandboxes.mark_unused(tx, found.mark, found.before)
        if found.unmark:
            sandboxes.mark_used(tx, found.unmark)
        return sandboxes.remove_unused(tx, found.remove, found.before) if found.remove else []
