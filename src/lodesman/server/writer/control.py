"""Kill, hold, release, reschedule and delete single jobs, slices and whole arrays.

Rows move one by one, other members by holes. One command reads a limited number of rows; the rest is for the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter

from msgspec.structs import replace

from lodesman.base.errors import InvalidRequest, counted
from lodesman.languages.jobs.spec import ACTIVE, TERMINAL, may_move
from lodesman.server.store import submit_pools, task_queues
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, cohorts, jobs
from lodesman.server.store.write.cohorts import CohortRow, Hole
from lodesman.server.store.write.jobs import IdBlock, JobRow
from lodesman.server.store.write.single_jobs import SingleJobs, single_jobs
from lodesman.server.writer.bound import unbind
from lodesman.server.writer.choice import MOST_ROWS, PASSED_OVER, Choice
from lodesman.server.writer.control_outcome import ControlOutcome, RangeOutcome
from lodesman.server.writer.live import WriterState
from lodesman.wire.vocabulary import JobState

# Ranges whose single jobs are read together.
_AT_ONCE = MOST_ROWS // 2

TARGET = {
    "kill": JobState.KILLED,
    "hold": JobState.HELD,
    "release": JobState.WAITING,
    "reschedule": JobState.WAITING,
    "delete": JobState.DELETED,
}
# The states of members without a row to which each action applies; '' is waiting.
_MEMBER_FROM = {
    "kill": frozenset({"", "Held"}),
    "hold": frozenset({""}),
    "release": frozenset({"Held"}),
    "reschedule": frozenset({"Killed"}),
    "delete": frozenset({"", "Held", "Killed"}),
}

# Actions that treat a bound job as one that waits.
_TAKE_BACK = frozenset({"kill", "hold", "delete"})

_KEPT = "an administrator held it, and only an administrator lets it run"


def join_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[range, ...]:
    """Sort ranges and join overlapping ones."""
    joined: list[range] = []
    for first, last in sorted(ranges):
        if joined and first < joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, last + 1))
        else:
            joined.append(range(first, last + 1))
    return tuple(joined)


@dataclass(slots=True)
class RangeAction:
    """An action on ranges that `join_ranges` gave, or another command left."""

    live: WriterState
    action: str
    ranges: tuple[range, ...]
    reason: str
    may: Callable[[str, str, str], bool]  # decides on (owner, group, VO)
    name: str = ""  # of the user, for events
    most: int = 0  # a limit of each owner, 0: none
    choice: Choice | None = None  # None: all jobs
    dry_run: bool = False  # only count
    _owner: str = field(init=False, default="")
    _singles: SingleJobs = field(init=False, default_factory=SingleJobs)

    def apply(self, tx: Transaction) -> ControlOutcome:
        """Change the jobs that the caller may touch, or refuse them."""
        began = perf_counter()
        self.live.queues.claims.write_cursors(tx)
        out, room = ControlOutcome(), float(MOST_ROWS)
        for at, ids in enumerate(self.ranges):
            if not at % _AT_ONCE and self.choice is None:
                portion = self.ranges[at : at + _AT_ONCE]
                # A range is read after the changes of the previous one.
                are_single = all(len(span) == 1 for span in portion)
                self._singles = single_jobs(tx, [span[0] for span in portion] if are_single else [])
            out.ranges.append(RangeOutcome(ids[0], ids[-1]))
            done, room = self._in_range(tx, out, ids, room)
            if done < ids.stop:
                out.rest = (range(done, ids.stop), *self.ranges[at + 1 :])
                break
        out.seconds = perf_counter() - began
        return out

    def _in_range(self, tx: Transaction, out: ControlOutcome, ids: range, room: float) -> tuple[int, float]:
        """The first id not done, and how many more rows may be read."""
        owner = self.choice.owner if self.choice is not None else ""
        for block in self._singles.blocks(tx, ids, owner):
            first, last = max(ids[0], block.base), min(ids[-1], block.base + block.count - 1)
            if room <= 0:
                return first, room
            meant = self.choice is None or self.choice.judge_block(block)
            if meant is None:
                return first, room
            if not meant or not self.may(block.owner, block.group, block.vo):
                room -= PASSED_OVER
                continue
            out.own.add(ids[-1])
            self._owner = block.owner
            rows = self._singles.rows(tx, range(first, last + 1), most=ceil(room))
            room -= 1 + len(rows)
            done = rows[-1].id if room < 0 else last
            done = self._in_block(tx, out, block, rows, range(first - block.base, done + 1 - block.base))
            if done < last:
                return done + 1, room
        return ids.stop, room

    def _in_block(
        self, tx: Transaction, out: ControlOutcome, block: IdBlock, rows: list[JobRow], run: range
    ) -> int:
        """The last id done."""
        touched = self._singles.cohorts(tx, block, run)
        if self.choice is not None:
            rows, touched, stop = self.choice.meant(block, rows, touched, run)
            run = range(run.start, stop)
        for row in rows:
            if self._means(row.state, row):
                self._row(tx, out, row)
        for cohort in touched:
            self._members(tx, out, cohort, run)
        return block.base + run.stop - 1

    def _members(self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range) -> None:
        holes = self._singles.holes(tx, cohort, run)
        for hole in holes:
            part = range(max(hole.start, run.start), min(hole.stop, run.stop))
            if self._means(hole.state, cohort):
                self._in_hole(tx, out, cohort, hole, part)
        for waiting in cohorts.waiting_runs(cohort, holes, run):
            if self._means(JobState.WAITING, cohort):
                self._waiting(tx, out, cohort, waiting)

    def _means(self, state: str, job: JobRow | CohortRow) -> bool:
        """Jobs that wait in a task queue that nothing can run are Held."""
        if self.choice is None or not self.choice.states:
            return True
        held = state == JobState.WAITING and job.tq_id in self.live.queues.held
        return (JobState.HELD if held else state) in self.choice.states

    @abstractmethod
    def _row(self, tx: Transaction, out: ControlOutcome, row: JobRow) -> None: ...

    @abstractmethod
    def _in_hole(
        self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, hole: Hole, run: range
    ) -> None:
        """Act on members held, killed or deleted."""

    @abstractmethod
    def _waiting(self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range) -> None: ...

    def _by(self) -> dict[str, str]:
        return {"by": "user", "name": self.name} if self.name else {"by": "user"}


@dataclass(slots=True)
class Control(RangeAction):
    """Kill, hold, release, reschedule or delete. `most`: of jobs that wait."""

    admin: bool = False  # what an administrator holds, only an administrator lets run again
    # The first job that came back to each task queue.
    _came_back: dict[int, int] = field(init=False, default_factory=dict)

    def apply(self, tx: Transaction) -> ControlOutcome:
        """Raises InvalidRequest for an unknown action."""
        if self.action not in TARGET:
            raise InvalidRequest(
                f"There is no action {self.action!r}.", hint=f"Use one of {', '.join(TARGET)}."
            )
        self._came_back.clear()  # a replay begins anew
        out = RangeAction.apply(self, tx)
        for tq_id, first in self._came_back.items():
            task_queues.row_came_back(tx, tq_id, first)
        return out

    def _row(self, tx: Transaction, out: ControlOutcome, row: JobRow) -> None:
        # A bound job that its pilot has not taken counts as waiting: it is taken back first.
        is_bound = self._is_bound(row)
        waits = is_bound and self.action in _TAKE_BACK
        refusal = self._refusal(tx, replace(row, state=JobState.WAITING) if waits else row) or self._too_many(
            1
        )
        if refusal:
            out.refuse(row.id, refusal)
            return
        out.change()
        if self.dry_run:
            return
        new = TARGET[self.action]
        if is_bound:
            unbind(tx, self.live, [row.pilot_id or 0], f"job {row.id}: {self.action}")
            if new is JobState.WAITING:
                return
            row = jobs.need_row(tx, row.id)
        if row.state in ACTIVE:
            self._stop_attempt(tx, row)
            if new is JobState.WAITING:
                return  # it goes back when its attempt has ended, however that ends (`report.end_attempt`)
        if row.state is JobState.WAITING:
            self.live.queues.left(tx, row.tq_id, 1)
        move = jobs.force_move if self._takes_over(row.state, row.admin_held) else jobs.move
        move(tx, self.live.ids, row, new, reason=self.reason, admin=self.admin, **self._by())
        if new is JobState.WAITING:
            self._let_judge(tx, row.tq_id)
            self._came_back.setdefault(row.tq_id, row.id)
            self.live.queues.run_came_back(tx, row.tq_id, 1)

    def _is_bound(self, row: JobRow) -> bool:
        return self.live.pilots.bound.get(row.pilot_id or 0) == (row.id, row.attempt)

    def _let_judge(self, tx: Transaction, tq_id: int) -> None:
        """Ended jobs come back to a task queue that no pass judged while it was empty."""
        empty = not self.live.queues.index.waiting(tq_id) and tq_id not in self.live.queues.held
        if empty and self.action == "reschedule":
            submit_pools.ask_for_pass(tx)

    def _refusal(self, tx: Transaction, row: JobRow) -> str:
        if self._is_kept(row.admin_held):
            return _KEPT
        if self._takes_over(row.state, row.admin_held):
            return ""
        only = {"release": JobState.HELD, "hold": JobState.WAITING}.get(self.action, row.state)
        held_back = self.action == "reschedule" and row.state is JobState.HELD
        if row.state is not only or held_back or not may_move(row.state, TARGET[self.action]):
            return self._waits(row.tq_id) if row.state is JobState.WAITING else f"it is {row.state}"
        if self.action != "reschedule":
            return ""
        # At most one attempt of a job runs: the next may not begin before this one is gone.
        attempt = attempts.last_attempt(tx, row)
        if attempt is None or attempt.ended_at is not None:
            return ""
        if row.state is JobState.KILLED:
            return "its last attempt is still being stopped; try again in a moment"
        if row.state in ACTIVE and attempt.stop_reason:
            return "it is being stopped already, and goes back to its task queue then"
        return ""

    def _too_many(self, more: int) -> str:
        if not self.most or TARGET[self.action] is not JobState.WAITING:
            return ""
        would = self.live.queues.index.load(self._owner).waiting + more
        if would <= self.most:
            return ""
        words = f"user {self._owner} would have {counted(would, 'waiting job')} and may have {self.most:,}"
        return f"{words}: do it when some have run"

    def _stop_attempt(self, tx: Transaction, row: JobRow) -> None:
        """Jobs that will go back have an event at once."""
        reason = self.reason or self.action
        if self.action == "reschedule":
            reason = f"rescheduled: {self.reason}" if self.reason else "rescheduled"
            data = {"attempt": row.attempt, **self._by()} | ({"reason": self.reason} if self.reason else {})
            jobs.note_event(tx, self.live.ids, row, "Rescheduled", **data)
        attempt = attempts.last_attempt(tx, row)
        if attempt is not None and attempt.ended_at is None:
            self.live.pilots.order_stop(
                tx, attempt.pilot_id, (row.id, row.attempt), attempt_id=attempt.id, reason=reason
            )

    def _in_hole(
        self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, hole: Hole, run: range
    ) -> None:
        if hole.state == "Moved":
            return
        takes_over = self._takes_over(hole.state, hole.admin_held)
        refusal = "" if takes_over or hole.state in _MEMBER_FROM[self.action] else f"it is {hole.state}"
        refusal = _KEPT if self._is_kept(hole.admin_held) else refusal
        refusal = refusal or self._too_many(len(run))
        if refusal:
            out.refuse(cohort.base + run.start, refusal, count=len(run))
            return
        if self.dry_run:
            out.change(len(run))
            return
        new = TARGET[self.action]
        held = {JobState.HELD: self.admin, JobState.WAITING: False}.get(new, bool(hole.admin_held))
        state = "Moved" if new is JobState.WAITING else new.value
        cohorts.change_hole(tx, cohort.id, hole, run, state=state, reason=self.reason, admin_held=held)
        if new is JobState.WAITING:
            self._let_judge(tx, cohort.tq_id)
            cohorts.insert_run(
                tx, self.live.ids, run, submission=cohort.submission_id, tq_id=cohort.tq_id, base=cohort.base,
                template=cohort.template_id,
            )  # fmt: skip
            self.live.queues.run_came_back(tx, cohort.tq_id, len(run))
        self._changed(tx, out, cohort, run, JobState(hole.state))

    def _waiting(self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range) -> None:
        if "" not in _MEMBER_FROM[self.action]:
            out.refuse(cohort.base + run.start, self._waits(cohort.tq_id), count=len(run))
            return
        if self.dry_run:
            out.change(len(run))
            return
        held, state = self.admin and self.action == "hold", TARGET[self.action].value
        cohorts.add_hole(tx, cohort.id, run, state=state, reason=self.reason, admin_held=held)
        self.live.queues.left(tx, cohort.tq_id, len(run))
        self._changed(tx, out, cohort, run, JobState.WAITING)

    def _is_kept(self, admin_held: int) -> bool:
        return bool(admin_held) and not self.admin and TARGET[self.action] is JobState.WAITING

    def _takes_over(self, state: str, admin_held: int) -> bool:
        return self.admin and self.action == "hold" and state == JobState.HELD and not admin_held

    def _waits(self, tq_id: int) -> str:
        reason = self.live.queues.held.get(tq_id)
        if reason is None:
            return "it is Waiting"
        return f"it is Held until a queue can run it, and will be released then: {reason}"

    def _changed(
        self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range, old: JobState
    ) -> None:
        ids = range(cohort.base + run.start, cohort.base + run.stop)
        data = {"reason": self.reason} if self.reason else {}
        if TARGET[self.action] in TERMINAL:
            tx.ended.append((cohort.submission_id, ids[0], ids[-1]))
        jobs.move_range(tx, self.live.ids, ids, old, TARGET[self.action], **self._by(), **data)
        out.change(len(ids))
