"""What this pilot runs, and what waits for free capacity."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Callable

from lodesman.pilot import protocol
from lodesman.pilot.decisions import (
    AHEAD_S,
    HELD,
    MOST_AHEAD,
    NO_TIME,
    NODE,
    PILOT,
    SERVER,
    STOPPING,
    ClaimRequest,
    Load,
    Slot,
    Stop,
    fits,
    is_overdue,
    jobs_ahead,
    next_claim,
)
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.slots import Allowance, Promises
from lodesman.pilot.threads import PayloadThreads
from lodesman.pilot.usage import PendingWaste

# Processes are not looked for while no payload has run for this time.
_TOO_SHORT_S = 1.0
# The rate of payloads is counted anew after this time.
_COUNTED_FOR_S = 0.05


@dataclass(frozen=True)
class Standing:
    """What is published of a pilot."""

    payloads: Sequence[PayloadRun]
    pending_waste: float  # core-seconds of ended payloads that are not handed in yet
    causes: frozenset[str]


class Roster:
    """The payloads of a pilot. Any thread may call it.

    `on_change` is called without the lock when capacity is free, jobs came or a decision fell; with true if a job merely
    took the place of one that ended.
    """

    def __init__(
        self,
        slot: Slot,
        context: PayloadContext,
        *,
        on_change: Callable[[bool], None],
        promises: Promises | None = None,
    ) -> None:
        self.changed = threading.Condition()
        self.slot = slot
        self._context = context
        self._ticker = context.pilot.ticker
        self._on_change = on_change
        self._promises = promises or Promises()
        self._running: dict[protocol.AttemptKey, PayloadRun] = {}
        self._finishing: dict[protocol.AttemptKey, PayloadRun] = {}
        self._backlog: list[protocol.AssignedJob] = []
        self._came: dict[protocol.AttemptKey, float] = {}  # when the jobs of the backlog were claimed
        self._ends: deque[float] = deque(maxlen=MOST_AHEAD)  # when payloads ended
        self._ahead, self._counted_at = 0, -AHEAD_S  # how many jobs to have ahead, and when that was counted
        self._shared = -AHEAD_S  # when jobs were given back for others
        self._threads = PayloadThreads()
        self._waste = PendingWaste(lambda: {*self._finishing, *context.outbox.keys()})
        self._idle_since = self._ticker()
        self._no_job_fits = False
        self._causes: frozenset[str] = frozenset()
        self._stopping = False
        # What is wrong with the node, or with the pilot alone: no job starts any more.
        self.node_fault = self.pilot_fault = ""
        self.last_end = self._ticker()

    def load(self) -> Load:
        """What is in hand now."""
        with self.changed:
            jobs, now = [payload.job for payload in self._running.values()], self._ticker()
            ends = [payload.expected_end(now) for payload in self._running.values()]
            ends_known = [end for end in ends if end is not None]
            return Load(
                running=len(jobs),
                expected_end=max(ends_known) if ends_known and len(ends_known) == len(ends) else None,
                cores=sum(job.cores for job in jobs),
                memory_mb=sum(map(self.slot.memory_of, jobs)),
                backlog=len(self._backlog),
                ahead=self._count_ahead(now),
                unsent=len(self._finishing) + self._context.outbox.count(),
                held_up=self._context.outbox.held_up(),
                idle_since=self._idle_since,
                no_job_fits=self._no_job_fits,
                draining=bool(self._causes - {HELD}),
                held=HELD in self._causes,
                stopping=self._stopping,
            )

    def next_claim(self, idle_s: float) -> ClaimRequest | None:
        """What to ask the server for, if anything."""
        return next_claim(self.slot, self.load(), self._ticker(), idle_s=idle_s)

    def standing(self) -> Standing:
        """What is to be published."""
        with self.changed:
            causes = self._causes | {STOPPING} if self._stopping else self._causes
            return Standing(list(self._running.values()), self._waste.total(), causes)

    def payloads(self) -> list[PayloadRun]:
        """Those that hold their capacity."""
        with self.changed:
            return list(self._running.values())

    def unreported(self) -> dict[protocol.AttemptKey, bool]:
        """Attempts without capacity whose end the server does not know; true: being handed in."""
        with self.changed:
            ended = dict.fromkeys([*self._finishing, *self._context.outbox.keys()], True)
            return {**{job.key: False for job in self._backlog}, **ended}

    def admit(self, jobs: Sequence[protocol.AssignedJob]) -> None:
        """Start claimed jobs; those that do not fit wait, in order."""
        with self.changed:
            self._no_job_fits = not jobs
            self._backlog.extend(jobs)
            self._came.update(dict.fromkeys((job.key for job in jobs), self._ticker()))
            late = self._fill()
        self._give_back(late)
        self._on_change(False)

    def drain(self, cause: str, *, holds: bool = True, fault: str = "") -> None:
        """Ask for nothing more and leave when all is done; go on when no cause holds. `fault`: the node's, with PILOT the
        pilot's.
        """
        with self.changed:
            if cause == PILOT:
                self.pilot_fault = self.pilot_fault or fault
            else:
                self.node_fault = self.node_fault or fault
            before = self._causes
            others = before | {cause} if holds else before - {cause}
            others -= {HELD}
            held = not others and self._promises.is_firm(self._context.pilot.clock())
            self._causes = others | {HELD} if held else others
            late = self._fill()
            causes = self._causes
            late += self._cut_backlog(0) if causes & {SERVER, NODE, PILOT} else []
        self._give_back(late)
        if causes != before:
            self._context.pilot.log("draining", causes=sorted(causes))
        if late or causes != before:
            self._changed()

    def resize(self, slot: Slot) -> None:
        """The slot has changed."""
        with self.changed:
            self.slot = slot
            self._causes -= {NO_TIME}
            late = self._fill()
        self._give_back(late)
        self._changed()

    def stop_all(self, stop: Stop, *, grace_s: float) -> None:
        """End everything; jobs that wait never start."""
        with self.changed:
            self._stopping = True
            dropped = self._cut_backlog(0)
            payloads = list(self._running.values())
        for payload in payloads:
            payload.stop(stop, grace_s=grace_s)
        self._changed()
        self._give_back(dropped, stop.message)

    def share(self) -> None:
        """Others have nothing to do: hand back the later half of what waits, at most once in AHEAD_S."""
        now = self._ticker()
        with self.changed:
            if now - self._shared < AHEAD_S or len(self._backlog) < 2:
                return
            self._shared = now
            returned = self._cut_backlog(len(self._backlog) // 2)
        self._context.pilot.log("shared", jobs=len(returned))
        self._give_back(returned, "Others can run it earlier.")

    def return_overdue(self, now: float) -> None:
        """Hand back what should have started long ago."""
        with self.changed:
            is_held = HELD in self._causes
            returned = [job for job in self._backlog if not is_held and is_overdue(self._came[job.key], now)]
            self._drop_from_backlog(returned)
            if returned:
                self._ends.clear()
        self._give_back(returned, "Those before it took longer than expected.")

    def stop_one(self, key: protocol.AttemptKey, stop: Stop) -> None:
        """End one attempt; if it waits it never starts."""
        with self.changed:
            payload, finishing = self._running.get(key), self._finishing.get(key)
            waited = self._came.pop(key, None) is not None
            self._backlog = [job for job in self._backlog if job.key in self._came]
        if payload is not None:
            payload.stop(stop, grace_s=self._context.pilot.options.kill_grace_s)
        if finishing is not None:
            finishing.output_unwanted = True
        if waited:
            self.report_unstarted(key, stop.cause, stop.message)
        self._on_change(False)

    def report_unstarted(self, key: protocol.AttemptKey, cause: str, message: str) -> None:
        """Report an attempt that will never start."""
        self._context.outbox.put(protocol.report_end(key, cause, message, ended=self._context.pilot.clock()))

    def _give_back(
        self,
        jobs: Sequence[protocol.AssignedJob],
        message: str = "The slot is given back to the site before this job would end.",
    ) -> None:
        message = f"{self.pilot_fault}." if self.pilot_fault else message
        message = f"The node is of no use: {self.node_fault}." if self.node_fault else message
        for job in jobs:
            self.report_unstarted(job.key, protocol.RETURNED, message)

    def _cut_backlog(self, count: int) -> list[protocol.AssignedJob]:
        """All but the first `count`; with the lock held."""
        cut = self._backlog[count:]
        self._drop_from_backlog(cut)
        return cut

    def _drop_from_backlog(self, jobs: Sequence[protocol.AssignedJob]) -> None:
        """With the lock held."""
        for job in jobs:
            del self._came[job.key]
        if jobs:
            self._backlog = [job for job in self._backlog if job.key in self._came]

    def _run(self, payload: PayloadRun) -> None:
        following: PayloadRun | None = payload
        while following is not None:
            payload, following = following, None
            try:
                payload.run(self._free_capacity, self._done)
                # Whoever called this still knows the first: it would keep all that came after it in memory.
                following, payload.next = payload.next, None
            finally:
                if payload.next is not None:  # it has begun, and this thread dies
                    self._threads.run(str(payload.next.job.key), partial(self._run, payload.next))

    def _fill(self, after: PayloadRun | None = None) -> list[protocol.AssignedJob]:
        """In order, with the lock held; returns what is not to start here. After a payload that has just ended only the next
        jobs are examined.
        """
        late = [job for job in self._backlog if self._is_late(job)] if after is None else []
        self._drop_from_backlog(late)
        while self._backlog:
            job = self._backlog[0]
            if self._is_late(job):
                late.append(job)
            elif self._may_start(job):
                payload = self._running[job.key] = PayloadRun(job, self._context)
                if after is not None and after.leaves_nothing and not (after.next or job.inputs):
                    after.next = payload  # a thread that goes on is sooner there than one that is woken
                else:
                    self._threads.run(str(job.key), partial(self._run, payload))
            else:
                break
            del self._backlog[0], self._came[job.key]
        return late

    def _is_late(self, job: protocol.AssignedJob) -> bool:
        """With the lock held."""
        if self._causes & {NODE, PILOT}:
            return True
        if not self.slot.has_time_for(job, self._ticker()):
            # The server goes by less than this pilot knows: it would send the like again.
            self._causes |= {NO_TIME}
            return True
        return HELD not in self._causes and self._find_obstacle(job) == "promise"

    def _may_start(self, job: protocol.AssignedJob) -> bool:
        free = not self._stopping and HELD not in self._causes and fits(self.slot, self.load(), job)
        return free and self._find_obstacle(job) is None

    def _find_obstacle(self, job: protocol.AssignedJob) -> str | None:
        pilot, now = self._context.pilot, self._context.pilot.clock()
        if not self._promises.is_firm(now):
            return None
        allowance = Allowance(self.slot, pilot.options.kill_grace_s, self._ticker() - now)
        return self._promises.against(allowance.gone_by(job, now), now)

    def _free_capacity(self, payload: PayloadRun) -> bool:
        """Returns whether its report can wait for others."""
        with self.changed:
            del self._running[payload.job.key]
            self._finishing[payload.job.key] = payload
            self._waste.add(payload.job.key, payload.uncommitted)
            self._note_node(payload)
            self._idle_since = self.last_end = self._ticker()
            self._ends.append(self.last_end)
            self._no_job_fits = False
            late = self._fill(payload)
            goes_on = self._has_more()
        self._give_back(late)
        self._changed()
        return goes_on

    def _done(self, payload: PayloadRun) -> None:
        with self.changed:
            self._finishing.pop(payload.job.key, None)
            self._note_node(payload)
        self._changed()

    def _note_node(self, payload: PayloadRun) -> None:
        if payload.node_fault:
            self.node_fault = payload.node_fault
            self._causes |= {NODE}
        if payload.pilot_fault:
            self.pilot_fault = payload.pilot_fault
            self._causes |= {PILOT}

    def _changed(self) -> None:
        with self.changed:
            goes_on = self._has_more()
            if not goes_on or 2 * len(self._backlog) <= self._count_ahead(self._ticker()):
                self.changed.notify_all()
        self._on_change(goes_on)

    def _has_more(self) -> bool:
        return bool(self._backlog) and not (self._causes or self._stopping)

    def _count_ahead(self, now: float) -> int:
        """Half as many while others take what was given back; with the lock held."""
        if now - self._counted_at > _COUNTED_FOR_S:
            self._counted_at, self._ahead = now, jobs_ahead(self._ends, now)
        return self._ahead // 2 if now - self._shared < AHEAD_S else self._ahead
