"""When a job starts: by the running jobs that make room for it; else by the rate of recent starts.

A job that runs longer than others took says that jobs take longer now. One that starts in a freed slot ends in its
turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import exp, log, sqrt
from typing import Final, NamedTuple

from lodesman.decide.explain.turns import SOON_SECONDS, Turn
from lodesman.wire.why_jobs import StartEstimate

_Z: Final = 1.75
"""Quantile of the normal distribution for 92 %; rough sums lose some of it."""
_Z90: Final = 1.645
_NEW, _ALL = 8.0, 48.0
"""A job's weight falls by e with each 8 later starts if jobs changed, else with each 48."""
_CHANGED: Final = 3.5
"""Jobs changed if quartiles of new ones and of all differ by more standard errors than this."""
_QUARTILES: Final = (0.25, 0.5, 0.75)
_UNSEEN: Final = 0.25
"""Weight of unseen jobs that last longer than all seen."""
_SMEARED: Final = 0.9
_ERROR: Final = 0.1
_POINTS, _POINTS_A_JOB = 96, 6
_LARGER: Final = 1.15
_MOST_POINTS: Final = 500
_MOST_SPREAD: Final = 2.0
_REGULAR, _IRREGULAR = 0.15, 0.5
"""The least relative variance of a number of starts: in slots, and under limits."""
_LEAST_SECONDS: Final = 0.5


class TimedJob(NamedTuple):
    """Running or ended."""

    begun: float  # UNIX seconds
    seconds: float  # that it took; so far, if it has not ended
    ended: bool = True


class Durations:
    """How long jobs take, by the estimate of Kaplan and Meier, newer jobs weighing more; new ones alone count if they
    differ from all.
    """

    __slots__ = ("_beyond", "_left", "_steps", "evidence", "mean", "spread")

    def __init__(self, jobs: Sequence[TimedJob]) -> None:
        newest_first = sorted(jobs, reverse=True)
        self._fit(newest_first, _NEW)
        new, evidence = [self.quantile(part) for part in _QUARTILES], max(1.0, self.evidence)
        self._fit(newest_first, _ALL)
        low, middle, high = (self.quantile(part) for part in _QUARTILES)
        wide = log(high / low) / 1.35
        error = 1.25 * sqrt((wide * wide + _ERROR**2) / evidence + _ERROR**2)
        if max(abs(log(a / b)) for a, b in zip(new, (low, middle, high), strict=True)) > _CHANGED * error:
            self._fit(newest_first, _NEW)

    def _fit(self, jobs: Sequence[TimedJob], memory: float) -> None:
        """`jobs`: the newest first."""
        ended = sorted(job.seconds for job in jobs if job.ended)
        usual = ended[len(ended) // 2] if ended else 0.0
        # Those that run for less say little yet: they make no other one older.
        tells = accumulate((job.ended or job.seconds > usual for job in jobs), initial=0)
        weighted = sorted(
            (job.seconds, not job.ended, exp(-n / memory)) for n, job in zip(tells, jobs, strict=False)
        )
        at_risk = sum(weight for *_, weight in weighted) + _UNSEEN
        left, last, ends, squares, area, moment = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
        self._steps, self._left = [0.0], [1.0]
        over, over_seconds = _UNSEEN, 0.0
        for seconds, runs, weight in weighted:
            if not runs:
                area, moment = area + left * (seconds - last), moment + left * (seconds**2 - last**2)
                left, last, over, over_seconds = left * (1.0 - weight / at_risk), seconds, _UNSEEN, 0.0
                if seconds > self._steps[-1]:
                    self._steps.append(seconds)
                    self._left.append(left)
                self._left[-1] = left
                ends, squares = ends + weight, squares + weight * weight
            else:
                over, over_seconds = over + weight, over_seconds + weight * seconds
            at_risk -= weight
        self._beyond = beyond = max(_LEAST_SECONDS / 10, (over_seconds + _UNSEEN * last) / over)
        seen = left * (1.0 - _UNSEEN / over)  # of what lasts longer, those that run: for as long again
        area += left * (beyond - last) + seen * beyond
        moment += left * (beyond**2 - last**2) + 3.0 * seen * beyond**2
        self.mean = max(area, _LEAST_SECONDS / 10)
        self.spread = min(_MOST_SPREAD, sqrt(max(0.0, moment - area * area)) / self.mean)
        self.evidence = ends * ends / squares if squares else 0.0

    @property
    def unknown(self) -> float:
        """The part of the jobs that outlasts all that ended."""
        return self._left[-1]

    @property
    def error(self) -> float:
        """The relative error of the mean."""
        by_ends = (self.spread**2 + _ERROR**2) / max(1.0, self.evidence)
        return sqrt(by_ends + (0.8 * self.unknown) ** 2)

    def quantile(self, part: float) -> float:
        """The seconds after which that part of the jobs has ended."""
        for seconds, left in zip(self._steps, self._left, strict=True):
            if left <= 1.0 - part:
                return max(seconds, _LEAST_SECONDS / 10)
        return self._beyond * self.unknown / (1.0 - part)

    def lasting(self, seconds: float) -> float:
        """The part of the jobs that takes longer."""
        last = self._steps[-1]
        return self._until(seconds) if seconds < last else self.unknown * min(1.0, self._beyond / seconds)

    def going_on(self, age: float, seconds: float) -> float:
        """The part of jobs of this `age` that runs these seconds more. What outlived all others runs as long again in
        half of the cases.
        """
        last, end = self._steps[-1], age + seconds
        if age >= last:
            return age / end if age > 0.0 else 0.0
        left = self._until(end) if end < last else self.unknown * last / end
        return min(1.0, left / self._until(age))

    def _until(self, seconds: float) -> float:
        """Each end is smeared over the tenth of the time before it."""
        n = bisect_right(self._steps, seconds)
        before, at = self._steps[n - 1], self._steps[n]
        first = max(before, at * _SMEARED)
        if seconds <= first:
            return self._left[n - 1]
        passed = (seconds - first) / (at - first)
        return self._left[n - 1] + (self._left[n] - self._left[n - 1]) * passed


class RunningKind(NamedTuple):
    """Running jobs of one kind."""

    begun: Sequence[float]  # UNIX seconds
    durations: Durations
    room: float = 1.0  # how many jobs may start where one of them ends


class JobsInPilots(NamedTuple):
    """What runs in some pilots."""

    pilots: int  # a number that stands for these pilots
    # (task queue, cores of its jobs) -> when each began, UNIX seconds.
    begun: Mapping[tuple[int, int], Sequence[float]]


class _Point(NamedTuple):
    seconds: float
    starts: float = 0.0
    variance: float = 0.0  # of those that the jobs which run now make room for
    later: float = 0.0  # those of the starts that follow other starts


class FreedSlots:
    """What becomes free from now on: by running jobs, in slots free or expected soon."""

    def __init__(
        self,
        running: Sequence[RunningKind],
        *,
        now: float,  # UNIX seconds
        free: float = 0.0,  # slots
        soon: float = 0.0,  # slots, within a minute
        usual: Durations | None = None,  # of jobs that start in slots where none runs
        limited: bool = False,  # jobs make room for their kind alone, not at once
        used: float | None = None,  # slots that these had lately, on average
    ) -> None:
        self._running, self._now, self._free, self._soon = running, now, free, soon
        kinds = [(len(kind.begun) * kind.room, kind.durations) for kind in running]
        self.jobs = max(1, round(sum(count for count, _ in kinds))) if kinds else 0
        """How many run and make room."""
        if usual is not None and free + soon > 0:
            kinds.append((free + soon, usual))
        self._kinds = kinds
        self._count = sum(count for count, _ in kinds)
        self._scale = 1.0 if used is None or not self._count else used / self._count
        self._least = _IRREGULAR if limited else _REGULAR

    @cached_property
    def job_seconds(self) -> float:
        """The mean that gives as many ends as all kinds, each at its own rate."""
        return self._count / sum(count / durations.mean for count, durations in self._kinds)

    def _mean(self, values: Sequence[float]) -> float:
        return sum(count * value for (count, _), value in zip(self._kinds, values, strict=True)) / self._count

    @cached_property
    def _spread(self) -> float:
        return min(_MOST_SPREAD, self._mean([durations.spread**2 for _, durations in self._kinds]))

    @cached_property
    def _error(self) -> float:
        return self._mean([durations.error for _, durations in self._kinds])

    @property
    def _step(self) -> float:
        return self.job_seconds / _POINTS_A_JOB

    @cached_property
    def _curve(self) -> list[_Point]:
        """Ends of what runs now, and of what starts when others end, by a renewal equation."""
        step, kinds = self._step, self._kinds
        left = [1.0] + [
            self._mean([durations.lasting(n * step) for _, durations in kinds]) for n in range(1, _POINTS + 1)
        ]
        ends = [before - after for before, after in pairwise(left)]
        # Two that end within a step each end after one step more, on average.
        after = [ends[0] / 2, *((end + other) / 2 for end, other in pairwise(ends))]
        rates, starts, points, first = list[float](), 0.0, [_Point(0.0)], 0.0
        for n in range(1, _POINTS + 1):
            now, variance = self._first(n * step)
            more = (
                now - first + sum(rate * part for rate, part in zip(rates, reversed(after[1:n]), strict=True))
            )
            first, starts = now, starts + more / (1.0 - after[0]) * self._scale
            rates.append(more / (1.0 - after[0]))
            points.append(_Point(n * step, starts, variance, max(0.0, starts - first)))
        return points

    def _first(self, seconds: float) -> tuple[float, float]:
        """Mean and variance of the starts in free slots and where running jobs end."""
        count, variance = self._free + self._soon * min(1.0, seconds / SOON_SECONDS), 0.0
        for begun, durations, room in self._running:
            for at in begun:
                over = 1.0 - durations.going_on(max(0.0, self._now - at), seconds)
                count, variance = count + room * over, variance + room * min(1.0, room) * over * (1.0 - over)
        return count, variance

    def _point(self, n: int) -> _Point:
        """Points after the last of the curve are ever farther apart."""
        if n < len(self._curve):
            return self._curve[n]
        last = self._curve[-1]
        seconds = last.seconds * _LARGER ** (n - len(self._curve) + 1)
        more = self._scale * self._count / self.job_seconds * (seconds - last.seconds)
        return _Point(seconds, last.starts + more, last.variance, last.later + more)

    def start(self, jobs: float, *, part: float = 1.0, others: int = 0) -> tuple[float, float] | None:
        """The seconds in which `jobs` of a task queue start, in 90 % of cases, with that part of the starts, and all
        once `others` have started. None if nothing runs, or nothing ended lately.
        """
        if part <= 0.0 or not any(durations.evidence for _, durations in self._kinds):
            return None
        times, before = [-1.0, -1.0, -1.0], (0.0, 0.0, 0.0, 0.0)
        for n in range(1, _MOST_POINTS):
            seconds, *counts = at = self._counts(self._point(n), part, others)
            for i, (count, last) in enumerate(zip(counts, before[1:], strict=True)):
                if times[i] < 0.0 and count >= jobs - 0.5:
                    passed = max(0.0, jobs - 0.5 - last) / max(1e-9, count - last)
                    times[i] = before[0] + (seconds - before[0]) * passed
            before = at
            if min(times) >= 0.0:
                break
        if min(times) < 0.0:
            return None
        low, middle, high = (max(1e-6, seconds) for seconds in times)
        error = (_Z * self._error) ** 2 + 0.0025
        more = _LEAST_SECONDS + self._step / 2
        first = middle * exp(-sqrt(log(middle / low) ** 2 + error))
        return max(0.0, first - more), middle * exp(sqrt(log(high / middle) ** 2 + error)) + more

    def _counts(self, point: _Point, part: float, others: int) -> tuple[float, float, float, float]:
        """The time, and how many have started by then: at most, on average, at least."""
        variance = point.variance + self._spread * point.later + self._least * point.starts
        mean = part * point.starts
        if point.starts - others > mean:
            mean = point.starts - others
        else:
            variance = part * part * variance + part * (1.0 - part) * point.starts
        deviation = _Z * sqrt(max(0.0, variance))
        return point.seconds, mean + deviation, mean, mean - deviation


class StartRate(NamedTuple):
    """Starts that followed a first one."""

    starts: int
    seconds: float  # since the first one
    silent: float = 0.0  # since the last one

    @property
    def is_over(self) -> bool:
        """Whether no job has started for longer than starts were seen before."""
        return self.starts > 0 and self.silent > self.seconds - self.silent


def estimate(jobs: float, seen: StartRate) -> StartEstimate | None:
    """The seconds in which these jobs start, in 90 % of cases; None if no starts go on.

    Starts are a Poisson stream whose rate has a Gamma distribution of `starts` + 1/2 in `seconds`: the time to the
    k-th start is k times the mean distance, times a number with the distribution F.
    """
    if seen.starts <= 0 or seen.seconds <= 0.0 or seen.is_over:
        return None
    shape = seen.starts + 0.5
    middle = jobs * seen.seconds / shape
    low, high = (middle * _f_quantile(z, 2.0 * jobs, 2.0 * shape) for z in (-_Z90, _Z90))
    return StartEstimate(low_seconds=low, high_seconds=high, starts=seen.starts, seconds=seen.seconds)


def _f_quantile(z: float, up: float, down: float) -> float:
    """By Paulson's approximation; `down` is 3 or more."""
    a, b = 2.0 / (9.0 * up), 2.0 / (9.0 * down)
    x, y = 1.0 - a, 1.0 - b
    square = y * y - z * z * b
    root = (x * y + z * sqrt(a * y * y + b * x * x - z * z * a * b)) / square
    return max(0.0, root) ** 3


class StartHistory(NamedTuple):
    """The starts of a task queue's jobs."""

    own: StartRate  # its starts lately
    group: StartRate  # those of its group
    part: float  # of those of its group, for the task queue
    slots: FreedSlots  # what becomes free in the pilots that may take its jobs
    limited: FreedSlots  # what becomes free where its own jobs run

    def estimate(self, turn: Turn, *, limited: bool) -> StartEstimate | None:
        """When a job starts that waits for its turn or, `limited`, for others of its task queue; None if unknown."""
        jobs, slots = turn.ahead + 1, self.limited if limited else self.slots
        part, others = (1.0, 0) if limited else (turn.part, turn.others)
        span = slots.start(jobs, part=part, others=others) if slots.jobs else None
        if span is not None:
            return StartEstimate(
                *span,
                max(0, self.own.starts),
                self.own.seconds,
                running=slots.jobs,
                job_seconds=slots.job_seconds,
            )
        by_group = estimate(jobs / self.part, self.group) if self.part > 0 and not limited else None
        return estimate(jobs, self.own) or by_group
