"""Kill, hold, release, reschedule and delete: of single jobs, slices and whole arrays.

Range operations: rows are moved one by one, members without a row by holes, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lodesman.errors import InvalidRequest, NotFound
from lodesman.jobs.states import ACTIVE, JobState, may_move
from lodesman.services.forgetting.forget import no_longer_known
from lodesman.services.live import Live
from lodesman.store import cohorts, jobs
from lodesman.store.journal import Transaction

SUBMISSIONS = """SELECT id, base, count, owner, grp, vo FROM submission
WHERE base <= ? AND base + count > ? ORDER BY base"""
LIVE_PILOT = "SELECT pilot_id FROM attempt WHERE id = ? AND ended_at IS NULL"

TARGET = {
    "kill": JobState.KILLED,
    "hold": JobState.HELD,
    "release": JobState.WAITING,
    "reschedule": JobState.WAITING,
    "delete": JobState.DELETED,
}
# From which states of members without a row each action takes; '' is waiting.
MEMBER_FROM = {
    "kill": frozenset({"", "Held"}),
    "hold": frozenset({""}),
    "release": frozenset({"Held"}),
    "reschedule": frozenset({"Killed"}),
    "delete": frozenset({"", "Held", "Killed"}),
}


@dataclass(slots=True)
class Outcome:
    """How many jobs an action changed, and which it did not, with the reason (the first few are named)."""

    changed: int = 0
    refused: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, job_id: int, why: str, *, count: int = 1) -> None:
        """Count jobs that the action does not apply to."""
        self.refused += count
        if len(self.examples) < 20:
            self.examples.append({"id": job_id, "reason": why})


@dataclass(slots=True)
class Control:
    """Apply one action to inclusive ranges of job ids. `may` decides on (owner, group, vo)."""

    live: Live
    action: str
    ranges: tuple[tuple[int, int], ...]
    reason: str
    may: Callable[[str, str, str], bool]

    def apply(self, tx: Transaction) -> Outcome:
        """Raises NotFound if a range holds no job that the caller may touch."""
        if self.action not in TARGET:
            raise InvalidRequest(
                f"There is no action {self.action!r}.", hint=f"Use one of {', '.join(TARGET)}."
            )
        self.live.claims.write_cursors(tx)
        targets = [(first, last, self._submissions(tx, first, last)) for first, last in self.ranges]
        out = Outcome()
        for first, last, submissions in targets:
            before = out.changed + out.refused
            for submission in submissions:
                self._in_submission(tx, out, submission, (first, last))
            if out.changed + out.refused == before:
                out.refuse(first, "it was forgotten", count=last - first + 1)
        return out

    def _submissions(self, tx: Transaction, first: int, last: int) -> list[Any]:
        known = tx.read(SUBMISSIONS, (last, first))
        found = [s for s in known if self.may(s[3], s[4], s[5])]
        if not found and not known and last < self.live.ids.next_job:
            raise no_longer_known(first, last)
        if not found:
            name = f"job {first}" if first == last else f"job from {first} to {last}"
            raise NotFound(f"There is no {name} that is yours.", first=first, last=last)
        return found

    def _in_submission(self, tx: Transaction, out: Outcome, submission: Any, ids: tuple[int, int]) -> None:
        number, base, count = submission[:3]
        first, last = max(ids[0], base), min(ids[1], base + count - 1)
        for row in jobs.rows_between(tx, first, last):
            self._row(tx, out, row)
        start, stop = first - base, last - base + 1
        for cohort in cohorts.overlapping(tx, number, start, stop):
            found = cohorts.holes(tx, cohort.id, start, stop)
            for hole in found:
                self._hole(tx, out, cohort, (hole, (start, stop)))
            for run in cohorts.waiting_runs(cohort, found, start, stop):
                self._waiting(tx, out, cohort, run)

    def _row(self, tx: Transaction, out: Outcome, row: jobs.JobRow) -> None:
        refusal = self._refusal(tx, row)
        if refusal:
            out.refuse(row.id, refusal)
            return
        out.changed += 1
        new = TARGET[self.action]
        if row.state in ACTIVE:
            self._stop_attempt(tx, row)
            if new is JobState.WAITING:
                return  # it goes back when its pilot says that the attempt has ended
        if row.state is JobState.WAITING:
            self.live.left(tx, row.tq_id, 1)
        jobs.move(tx, self.live.ids, row, new, reason=self.reason, by="user")
        if new is JobState.WAITING:
            self.live.came_back(tx, row.tq_id, row.id)

    def _refusal(self, tx: Transaction, row: jobs.JobRow) -> str:
        """Why the action does not apply to a row, '' if it does."""
        only = {"release": JobState.HELD, "hold": JobState.WAITING}.get(self.action, row.state)
        held_back = self.action == "reschedule" and row.state is JobState.HELD
        if row.state is not only or held_back or not may_move(row.state, TARGET[self.action]):
            return self._waits(row.tq_id) if row.state is JobState.WAITING else f"it is {row.state}"
        if row.state is JobState.KILLED and self.action == "reschedule" and self._live_pilots(tx, row):
            # Between attempts at most one runs: the next may not begin before this one is gone.
            return "its last attempt is still being stopped; try again in a moment"
        return ""

    def _stop_attempt(self, tx: Transaction, row: jobs.JobRow) -> None:
        for (pilot_id,) in self._live_pilots(tx, row):
            self.live.order_kills(tx, pilot_id, [(row.id, row.attempt)], self.reason or self.action)

    def _live_pilots(self, tx: Transaction, row: jobs.JobRow) -> list[tuple[int]]:
        return tx.read(LIVE_PILOT, (row.last_attempt,))

    def _hole(
        self,
        tx: Transaction,
        out: Outcome,
        cohort: cohorts.Cohort,
        part: tuple[cohorts.Hole, tuple[int, int]],
    ) -> None:
        hole, (start, stop) = part
        if hole.state == "Moved":
            return
        run = max(hole.start, start), min(hole.stop, stop)
        if hole.state not in MEMBER_FROM[self.action]:
            out.refuse(cohort.base + run[0], f"it is {hole.state}", count=run[1] - run[0])
            return
        new = TARGET[self.action]
        state = "Moved" if new is JobState.WAITING else new.value
        cohorts.change_hole(tx, cohort.id, hole, run=run, state=state, reason=self.reason)
        if new is JobState.WAITING:
            cohorts.new_run(tx, self.live.ids, cohort, run)
            self._runs_joined(tx, cohort.tq_id, run[1] - run[0])
        self._told(tx, out, cohort, run)

    def _waiting(self, tx: Transaction, out: Outcome, cohort: cohorts.Cohort, run: tuple[int, int]) -> None:
        if "" not in MEMBER_FROM[self.action]:
            out.refuse(cohort.base + run[0], self._waits(cohort.tq_id), count=run[1] - run[0])
            return
        cohorts.add_hole(tx, cohort.id, run, state=TARGET[self.action].value, reason=self.reason)
        self.live.left(tx, cohort.tq_id, run[1] - run[0])
        tx.undo.append(partial(self.live.fronts.forget, cohort.tq_id))
        self._told(tx, out, cohort, run)

    def _waits(self, tq_id: int) -> str:
        """How a job stands that nobody holds: Waiting, or Held with its whole task queue."""
        reason = self.live.held.get(tq_id)
        if reason is None:
            return "it is Waiting"
        return f"it is Held until a queue can run it, and will be released then: {reason}"

    def _runs_joined(self, tx: Transaction, tq_id: int, count: int) -> None:
        self.live.known_again(tx, tq_id)
        self.live.fronts.forget(tq_id)
        tx.undo.append(partial(self.live.fronts.forget, tq_id))
        self.live.joined(tx, tq_id, count)

    def _told(self, tx: Transaction, out: Outcome, cohort: cohorts.Cohort, run: tuple[int, int]) -> None:
        span = cohort.base + run[0], cohort.base + run[1] - 1
        data = {"reason": self.reason} if self.reason else {}
        jobs.add_range_event(tx, self.live.ids, span, TARGET[self.action].value, by="user", **data)
        out.changed += run[1] - run[0]
