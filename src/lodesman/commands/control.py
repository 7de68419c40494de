"""Kill, hold, release, reschedule and delete: of single jobs, slices and whole arrays.

Range operations: rows are moved one by one, members without a row by holes, however many they are. One command looks at
so many rows at most, so that nobody waits for long behind it; what it left is for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lodesman.answers.vocabulary import JobState
from lodesman.commands.forget import no_longer_known, unseen
from lodesman.commands.live import Live
from lodesman.errors import InvalidRequest
from lodesman.jobs.states import ACTIVE, may_move
from lodesman.store import cohorts, jobs, submit_pools
from lodesman.store.journal import Transaction

# Blocks of ids never overlap: of those that begin before the range only the last can reach into it.
SUBMISSIONS = """SELECT id, base, count, owner, grp, vo FROM submission
WHERE base >= coalesce((SELECT max(base) FROM submission WHERE base <= ?1), 0) AND base <= ?2 AND base + count > ?1
ORDER BY base"""
# In one command: tens of milliseconds of the writer's time.
MOST_ROWS = 1_000
LIVE_ATTEMPT = "SELECT pilot_id, stop_reason FROM attempt WHERE id = ? AND ended_at IS NULL"
SET_LAST_EVENT = "UPDATE job SET last_event = ? WHERE id = ?"

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

MOST_EXAMPLES = 20
Ranges = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Outcome:
    """How many jobs an action changed, and which it did not, with the reason (the first few are named).

    `rest`: the ranges that were not looked at, since there was too much in one command.
    """

    changed: int = 0
    refused: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    rest: Ranges = ()

    def refuse(self, job_id: int, why: str, *, count: int = 1) -> None:
        """Count jobs that the action does not apply to."""
        self.refused += count
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append({"id": job_id, "reason": why})

    def go_on(self, more: Outcome) -> None:
        """What the command did that took the rest."""
        self.changed += more.changed
        self.refused += more.refused
        self.examples += more.examples[: MOST_EXAMPLES - len(self.examples)]
        self.rest = more.rest


@dataclass(slots=True)
class Control:
    """Apply one action to inclusive ranges of job ids. `may` decides on (owner, group, vo).

    `goes_on`: the ranges are what another command left of them, the first one perhaps a part. `name`: whose action it is,
    for the events.
    """

    live: Live
    action: str
    ranges: Ranges
    reason: str
    may: Callable[[str, str, str], bool]
    goes_on: bool = False
    name: str = ""

    def apply(self, tx: Transaction) -> Outcome:
        """Raises NotFound if a range holds no job that the caller may touch."""
        if self.action not in TARGET:
            raise InvalidRequest(
                f"There is no action {self.action!r}.", hint=f"Use one of {', '.join(TARGET)}."
            )
        self.live.claims.write_cursors(tx)
        if not self.goes_on:
            for ids in self.ranges:
                self._need_some(tx, *ids)
        out = Outcome()
        room = MOST_ROWS
        for at, (first, last) in enumerate(self.ranges):
            before = out.changed + out.refused
            done, room = self._in_range(tx, out, (first, last), room)
            if done < last:
                out.rest = ((done + 1, last), *self.ranges[at + 1 :])
                break
            if out.changed + out.refused == before and (at or not self.goes_on):
                out.refuse(first, "it was forgotten", count=last - first + 1)
        return out

    def _need_some(self, tx: Transaction, first: int, last: int) -> None:
        if next(self._submissions(tx, (first, last)), None) is not None:
            return
        if not tx.read(SUBMISSIONS, (first, last)) and last < self.live.ids.next_job:
            raise no_longer_known(first, last)
        raise unseen(first, last)

    def _submissions(self, tx: Transaction, ids: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
        """The caller's in a range: (number, base, count). There may be many; few are looked at in one command."""
        tx.flush()
        return (s[:3] for s in tx.db.execute(SUBMISSIONS, ids) if self.may(s[3], s[4], s[5]))

    def _in_range(self, tx: Transaction, out: Outcome, ids: tuple[int, int], room: int) -> tuple[int, int]:
        """Returns up to which id all is done, and how many more rows may be looked at."""
        for number, base, count in self._submissions(tx, ids):
            first, last = max(ids[0], base), min(ids[1], base + count - 1)
            if room <= 0:
                return first - 1, room
            rows = jobs.rows_between(tx, first, last, most=room)
            room -= 1 + len(rows)
            done = rows[-1].id if room < 0 else last
            for row in rows:
                self._row(tx, out, row)
            self._members(tx, out, (number, base), (first, done))
            if done < last:
                return done, room
        return ids[1], room

    def _members(
        self, tx: Transaction, out: Outcome, submission: tuple[int, int], ids: tuple[int, int]
    ) -> None:
        """Those of a submission that have no row."""
        number, base = submission
        start, stop = ids[0] - base, ids[1] - base + 1
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
                return  # it goes back when its attempt has ended, however that ends (`report.end_attempt`)
        if row.state is JobState.WAITING:
            self.live.left(tx, row.tq_id, 1)
        jobs.move(tx, self.live.ids, row, new, reason=self.reason, **self._by())
        if new is JobState.WAITING:
            self._let_judge(tx, row.tq_id)
            self.live.came_back(tx, row.tq_id, row.id)

    def _let_judge(self, tx: Transaction, tq_id: int) -> None:
        """Jobs that had ended come back: whether their task queue is possible nobody asked while it was empty."""
        empty = not self.live.matcher.index.waiting(tq_id) and tq_id not in self.live.held
        if empty and self.action == "reschedule":
            submit_pools.ask_for_pass(tx)

    def _refusal(self, tx: Transaction, row: jobs.JobRow) -> str:
        """Why the action does not apply to a row, '' if it does."""
        only = {"release": JobState.HELD, "hold": JobState.WAITING}.get(self.action, row.state)
        held_back = self.action == "reschedule" and row.state is JobState.HELD
        if row.state is not only or held_back or not may_move(row.state, TARGET[self.action]):
            return self._waits(row.tq_id) if row.state is JobState.WAITING else f"it is {row.state}"
        return self._still_stopping(tx, row) if self.action == "reschedule" else ""

    def _still_stopping(self, tx: Transaction, row: jobs.JobRow) -> str:
        """Between attempts at most one runs: the next may not begin before this one is gone."""
        if row.state is JobState.KILLED and tx.read(LIVE_ATTEMPT, (row.last_attempt,)):
            return "its last attempt is still being stopped; try again in a moment"
        if row.state in ACTIVE and any(reason for _, reason in tx.read(LIVE_ATTEMPT, (row.last_attempt,))):
            return "it is being stopped already, and goes back to its task queue then"
        return ""

    def _stop_attempt(self, tx: Transaction, row: jobs.JobRow) -> None:
        """Order its pilot to stop a running job; that it will go back then is told in its events at once."""
        reason = self.reason or self.action
        if self.action == "reschedule":
            reason = f"rescheduled: {self.reason}" if self.reason else "rescheduled"
            data = {"attempt": row.attempt, **self._by()} | ({"reason": self.reason} if self.reason else {})
            event = jobs.add_event(tx, self.live.ids, row.id, "Rescheduled", previous=row.last_event, **data)
            tx.later(SET_LAST_EVENT, (event, row.id))
        assert row.last_attempt is not None  # noqa: S101 - it is active
        for pilot_id, _ in tx.read(LIVE_ATTEMPT, (row.last_attempt,)):
            self.live.order_stop(
                tx, pilot_id, (row.id, row.attempt), attempt_id=row.last_attempt, reason=reason
            )

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
            self._let_judge(tx, cohort.tq_id)
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

    def _by(self) -> dict[str, str]:
        """Who did it, as events tell."""
        return {"by": "user", "name": self.name} if self.name else {"by": "user"}

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
        jobs.add_range_event(tx, self.live.ids, span, TARGET[self.action].value, **self._by(), **data)
        out.changed += run[1] - run[0]
