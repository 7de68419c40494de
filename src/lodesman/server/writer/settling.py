"""Jobs that wait for others no more: they join the task queue of equal jobs, free to run, held or killed (ADR 0070)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from lodesman.server.store import order, submit_pools, task_queues
from lodesman.server.store.read.jobs import stored_template
from lodesman.server.store.task_queues import key_and_requirements
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import cohorts, jobs
from lodesman.server.store.write.cohorts import CohortRow, Hole
from lodesman.server.store.write.jobs import JobRow, WaitingJob
from lodesman.server.writer.control import RangeAction
from lodesman.server.writer.control_outcome import ControlOutcome
from lodesman.wire.vocabulary import JobState

FREE: Final = "the jobs that it waited for have ended"


@dataclass(slots=True)
class Settle(RangeAction):
    """Waiting jobs become `new`. Runs of fewer than `few` members become rows: runs slow later searches."""

    new: JobState = field(kw_only=True)
    few: int = field(kw_only=True, default=0)
    _open: dict[int, int] = field(init=False, default_factory=dict)
    _cursors: dict[int, int] = field(init=False, default_factory=dict)

    def apply(self, tx: Transaction) -> ControlOutcome:
        """As `RangeAction`."""
        self._open.clear()  # a replay begins anew
        self._cursors.clear()
        return RangeAction.apply(self, tx)

    def _queue_of(self, tx: Transaction, tq_id: int) -> int:
        """The queue of equal jobs that wait for none; 0 if these wait for none."""
        open_id = self._open.get(tq_id)
        if open_id is None:
            queues = self.live.queues
            key, requirements = key_and_requirements(tx.reader(), tq_id)
            open_id = 0
            if key.waits_for_jobs:
                open_id = queues.queue_for(tx, replace(key, waits_for_jobs=False), requirements)
                if not queues.index.waiting(open_id) and open_id not in queues.held:
                    submit_pools.ask_for_pass(
                        tx
                    )  # while it was empty no pass has judged whether it is possible
            self._open[tq_id] = open_id
        return open_id

    def _row(self, tx: Transaction, out: ControlOutcome, row: JobRow) -> None:
        queues, tq_id = self.live.queues, self._queue_of(tx, row.tq_id)
        if not tq_id or row.state is JobState.DELETED:
            return
        waits = row.state is JobState.WAITING
        if waits:
            out.change()
            queues.left(tx, row.tq_id, 1)
        order.change_queue(tx, row, tq_id)
        if not waits:
            return
        if self.new is JobState.WAITING:
            jobs.note_event(tx, self.live.ids, row, self.new.value, reason=self.reason)
            queues.came_back(tx, tq_id, row.id)
        else:
            jobs.move(tx, self.live.ids, row, self.new, reason=self.reason)

    def _in_hole(
        self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, hole: Hole, run: range
    ) -> None:
        tq_id = self._queue_of(tx, cohort.tq_id) if hole.state in ("Held", "Killed") else 0
        if tq_id:
            number = self._insert_run(tx, cohort, run, tq_id)
            cohorts.change_hole(tx, cohort.id, hole, run, state="Moved", reason="")
            kept = hole.admin_held
            cohorts.add_hole(tx, number, run, state=hole.state, reason=hole.reason, admin_held=kept)

    def _waiting(self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range) -> None:
        queues, tq_id = self.live.queues, self._queue_of(tx, cohort.tq_id)
        if not tq_id:
            return
        out.change(len(run))
        queues.left(tx, cohort.tq_id, len(run))
        self._take_out(tx, cohort, run)
        ids = range(cohort.base + run.start, cohort.base + run.stop)
        if self.new is JobState.WAITING:
            jobs.add_range_event(tx, self.live.ids, ids, self.new.value, reason=self.reason)
        else:
            jobs.move_range(tx, self.live.ids, ids, JobState.WAITING, self.new, reason=self.reason)
        if len(run) < self.few:
            self._insert_rows(tx, cohort, ids, tq_id)
            return
        number = self._insert_run(tx, cohort, run, tq_id)
        if self.new is JobState.WAITING:
            queues.run_came_back(tx, tq_id, len(run))
        else:
            cohorts.add_hole(tx, number, run, state=self.new.value, reason=self.reason)
            self._ended(tx, cohort, ids)

    def _insert_run(self, tx: Transaction, cohort: CohortRow, run: range, tq_id: int) -> int:
        return cohorts.insert_run(
            tx, self.live.ids, run, submission=cohort.submission_id, tq_id=tq_id, base=cohort.base,
            template=cohort.template_id,
        )  # fmt: skip

    def _insert_rows(self, tx: Transaction, cohort: CohortRow, ids: range, tq_id: int) -> None:
        template = cohort.template_id
        most = stored_template(tx.reader(), template).max_attempts
        for job_id in ids:
            new = WaitingJob(job_id, cohort.submission_id, template, 0, None, None, most)
            jobs.insert_member(tx, tq_id, new, self.new, "" if self.new is JobState.WAITING else self.reason)
        if self.new is JobState.WAITING:
            task_queues.row_came_back(tx, tq_id, ids[0])
            self.live.queues.run_came_back(tx, tq_id, len(ids))
        else:
            self._ended(tx, cohort, ids)

    def _ended(self, tx: Transaction, cohort: CohortRow, ids: range) -> None:
        if self.new is JobState.KILLED:
            tx.ended.append((cohort.submission_id, ids[0], ids[-1]))

    def _take_out(self, tx: Transaction, cohort: CohortRow, run: range) -> None:
        """If the members are the first the cursor moves, so that holes stay few."""
        at = self._cursors.get(cohort.id, cohort.cursor)
        if run.start <= at:
            self._cursors[cohort.id] = order.move_cursor(tx, cohort, run.stop)
        else:
            cohorts.add_hole(tx, cohort.id, run, state="Moved", reason="")
