"""The slot as known now: its end may move, and what was published binds the pilot. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from lodesman.pilot.decisions import Slot, reserve_s
from lodesman.pilot.features import Features
from lodesman.pilot.protocol import AssignedJob
from lodesman.site.jobstatus.timeline import LastStatus, no_start

# Clocks drift: an end that moved by less is the same.
_SAME_S = 1.0
# A limit is noticed that much later.
_NOTICED_S = 1.0
# Slurm looks once in half a minute which jobs end soon, and gives a notice up to a minute too early.
_EARLY_S = 90.0


@dataclass(frozen=True)
class SlotHabits:
    """What the pilot's options say of ends, in seconds."""

    life_seconds: float  # 0: no limit
    retire_s: float  # before an announced end
    grace_s: float
    flush_s: float


class KnownSlot:
    """Follows the end of one slot.

    An end known at the start is a limit like any other. A later or nearer one asks the pilot to leave: for this job
    (shutdowntime_job) at once; for the machine `retire_s` before it, or the site's grace if shorter.
    """

    def __init__(
        self, slot: Slot, habits: SlotHabits, features: Features, *, clock: float, tick: float
    ) -> None:
        """`slot`: without its end. The rest: at the pilot's start; `clock` in UNIX seconds, `tick` monotonic."""
        self._habits = habits
        self._first = features
        self._clock, self._tick = clock, tick
        self._noticed: float | None = None
        self._announced_at = tick
        self.slot = slot
        self.follow(features, clock=clock, tick=tick)

    def follow(self, features: Features, *, clock: float, tick: float) -> bool:
        """Whether the slot has changed."""
        if self._is_explained(features, tick - clock):
            self._noticed = None
        if self._noticed is not None:
            features = replace(features, shutdowntime_job=int(self._noticed))
        slot = self._describe_slot(features, tick - clock, tick)
        same = all(
            _same(getattr(slot, end), getattr(self.slot, end)) for end in ("ends", "shutdown", "retires")
        )
        if not same:
            self.slot = slot
        return not same

    def notice(self, seconds: float, clock: float) -> None:
        """The batch system ends the slot then or a little later. Unless a known end explains it, `follow` takes it as
        announced for this job.
        """
        self._noticed = clock + seconds

    def _is_explained(self, features: Features, ahead: float) -> bool:
        end = self._end(features, ahead)
        return self._noticed is not None and end is not None and end - ahead <= self._noticed + _EARLY_S

    def _end(self, features: Features, ahead: float) -> float | None:
        """`ahead`: monotonic seconds less UNIX seconds."""
        ends, at = [], features.slot_ends(self._clock)
        if self._habits.life_seconds:
            ends.append(self._tick + self._habits.life_seconds)
        if at is not None:
            ends.append(at + ahead)
        return min(ends, default=None)

    def _describe_slot(self, features: Features, ahead: float, tick: float) -> Slot:
        habits, end = self._habits, self._end(features, ahead)
        if end is None:
            return replace(self.slot, ends=None, reserve_s=0.0, shutdown=None, retires=None)
        reserve, shutdown = reserve_s(end - self._tick), self._announced_end(features)
        if shutdown is None:
            return replace(self.slot, ends=end, reserve_s=reserve, shutdown=None, retires=None)
        if _same(end, shutdown + ahead):
            # No one reckoned with it: what runs is ended, and handed in, before it. The shorter the notice, the less of
            # it is kept back: what ends in time shall go on.
            if not _same(self.slot.shutdown, end):
                self._announced_at = tick
            reserve = habits.grace_s + max(reserve_s(end - self._announced_at), habits.flush_s)
        retires = self._retires(features, shutdown)
        return replace(
            self.slot, ends=end, reserve_s=reserve, shutdown=shutdown + ahead, retires=retires + ahead
        )

    def _announced_end(self, features: Features) -> float | None:
        at, first = features.shutdown(self._clock), self._first.shutdown(self._clock)
        return at if at is not None and (first is None or at < first) else None

    def _retires(self, features: Features, shutdown: float) -> float:
        job, first = features.shutdowntime_job, self._first.shutdowntime_job
        if job is not None and job >= self._clock and (first is None or job < first):
            return self._clock
        graces = (features.grace_secs_job, features.grace_secs, self._habits.retire_s)
        return shutdown - min(grace for grace in graces if grace is not None)


class Promises:
    """What was published about payloads to come; the roster asks before each start."""

    def __init__(self) -> None:
        self.said = LastStatus()

    def against(self, ends: float, now: float) -> str | None:
        """Why a payload that ends then at the latest may not start (`hold`, `promise`)."""
        return no_start(self.said, ends, now)

    def gone_by(self) -> float | None:
        """When all payloads must be gone, in UNIX seconds."""
        status = self.said.status
        return None if status is None or status.can_postpone_last_job else self.said.promised_end

    def is_firm(self, now: float) -> bool:
        """Whether a pilot that does not drain must wait before it starts payloads."""
        status, held_until = self.said.status, self.said.held_until
        no_more = status is not None and status.can_postpone_last_job is False
        return no_more or (held_until is not None and now < held_until)


@dataclass(frozen=True)
class Allowance:
    """How long payloads may run."""

    slot: Slot
    grace_s: float
    ahead: float  # monotonic seconds less UNIX seconds

    @property
    def slot_ends(self) -> float | None:
        """In UNIX seconds."""
        return None if self.slot.ends is None else self.slot.ends - self.ahead

    def latest_end(self, job: AssignedJob, started: float) -> float | None:
        """When its own limit ends it, if it has one."""
        wall_s = job.limits.wall_seconds
        return started + wall_s + self.grace_s + _NOTICED_S if wall_s else None

    def gone_by(self, job: AssignedJob, now: float) -> float:
        """The latest end of a job that starts now; may be infinite."""
        ends = (self.latest_end(job, now), self.slot_ends)
        return min((end for end in ends if end is not None), default=inf)


def _same(before: float | None, other: float | None) -> bool:
    if before is None or other is None:
        return before is other
    return abs(before - other) < _SAME_S
