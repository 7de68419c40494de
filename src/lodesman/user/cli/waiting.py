"""The wait until jobs have ended, and its exit code."""

from __future__ import annotations

import math
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import click

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.user.cli.arguments import Range, total
from lodesman.user.cli.faults import FAILED, INTERRUPTED
from lodesman.user.cli.job_columns import bar, job_remark
from lodesman.user.cli.progress import Pace
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import is_terminal, note
from lodesman.user.cli.words import counted, span, states
from lodesman.wire import job_calls
from lodesman.wire.job_queries import JobsQuery
from lodesman.wire.jobs import Job
from lodesman.wire.requests import JobAt
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import LONGEST_WAIT, MOST_ENDED, EndedJob, Waited, WaitQuery

TIMED_OUT, STUCK = 124, 125
"""The exit code of timeout(1), and that of jobs of which only Held ones are left."""

_SHOWN_SECONDS = 3
_AWAY_SECONDS = 30.0
_LONGEST_REST = 10.0
_BAR, _FEW = 20, 3
# Of more Held jobs in a range it is not asked why.
_MOST_HELD = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOptions:
    """What a wait is for."""

    first: bool = False  # until the first ends, not all
    timeout: float | None = None  # seconds
    held: Literal["wait", "stop"] = "wait"  # whether only Held jobs end it
    answered: bool = False  # the server has answered before: it is asked again also if it is away at first


def wait_for(session: Session, ranges: tuple[Range, ...], until: WaitOptions) -> tuple[Waited, int]:
    """Returns the last answer and the exit code. Raises LodesmanError, Exit."""
    waiting = _Waiting(session, ranges, until)
    try:
        answer = waiting.last_answer()
    except KeyboardInterrupt:
        waiting.bar.clear()
        note(f"Interrupted. The jobs go on; this ends them: lode kill {_ids_text(ranges, _FEW)}")
        raise click.exceptions.Exit(INTERRUPTED) from None
    waiting.bar.clear()
    note(_last_words(answer, ranges, until))
    if answer.failed is not None:
        _show_failure(session, answer.failed)
    if waiting.stuck:
        note(_how_on(waiting.stuck, answer, ranges))
    return answer, exit_code_of(answer, first=until.first)


def exit_code_of(answer: Waited, *, first: bool = False) -> int:
    """For all jobs, or for those that ended `first`."""
    if not answer.over:
        return TIMED_OUT
    if answer.failed is not None:
        return code_of(answer.failed)
    ended = _size(answer) - answer.left
    if answer.left and not (first and ended):
        return STUCK
    well = 0 < ended == answer.states.get(JobState.DONE, 0)
    return 0 if well and (first or not answer.left) else FAILED


def code_of(job: EndedJob) -> int:
    """Of a Failed job, for a shell."""
    if job.exit_code and 0 < job.exit_code < 256:
        return job.exit_code
    return 128 + job.signal if job.signal and 0 < job.signal < 128 else FAILED


def ending(job: EndedJob) -> str:
    """How a job ended, as a sentence."""
    return f"Job {job.id} is {job.state}{_why(job)}."


def _why(job: EndedJob) -> str:
    words = job.cause if job.cause not in (None, "ok", "exit", "signal") else ""
    words = f"exit code {job.exit_code}" if job.exit_code else f"signal {job.signal}" if job.signal else words
    return f" ({words})" if words else ""


def _show_failure(session: Session, job: EndedJob) -> None:
    if job.exit_code or job.signal:
        note(f"What job {job.id} wrote last: lode logs {job.id}")
        return
    with suppress(LodesmanError):  # how the wait ended is known in any case
        note(f"Job {job.id}: {job_remark(session.call(job_calls.JOB, JobAt(job.id)))}")


class Outage:
    """A time without a usable answer, as of a server that restarts."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._rest, self._said = 1.0, False

    def over(self) -> None:
        """The server answers."""
        if self._said:
            note("The server answers again.")
        self._since, self._rest, self._said = None, 1.0, False

    def rest(self, fault: Unavailable, most: float) -> None:
        """Sleep `most` seconds at most; say so once the outage is long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._said and now - self._since > _AWAY_SECONDS:
            note(f"{fault.message} Asking again until it answers.")
            self._said = True
        time.sleep(max(0.0, min(max(self._rest, float(fault.data.get("retry_after", 0.0))), most)))
        self._rest = min(2 * self._rest, _LONGEST_REST)


@dataclass(slots=True)
class _Waiting:
    session: Session
    ranges: tuple[Range, ...]
    until: WaitOptions
    bar: _Bar = field(init=False)
    stuck: Job | None = None  # a Held job that nothing but a user lets go on
    _held: int = 0

    def __post_init__(self) -> None:
        self.bar = _Bar(shown=is_terminal(sys.stderr), silent=self.session.as_json)

    def last_answer(self) -> Waited:
        """A server that goes away is asked again once it has said something."""
        end = math.inf if self.until.timeout is None else time.monotonic() + self.until.timeout
        answer, outage, left = None, Outage(), math.inf
        while answer is None or (not answer.over and (left := end - time.monotonic()) > 0):
            try:
                answer = self._ask(0 if answer is None else math.ceil(min(left, self.bar.longest())))
            except Unavailable as fault:
                if answer is None and not (self.until.answered or "status" in fault.data):
                    raise
                outage.rest(fault, max(0.0, min(left, end - time.monotonic())))
                if answer is None and time.monotonic() >= end:
                    note(f"After {span(self.until.timeout)} there was no answer: {fault.message}")
                    raise click.exceptions.Exit(TIMED_OUT) from None
            else:
                outage.over()
        return answer

    def _ask(self, seconds: int) -> Waited:
        answer = self._ask_server(seconds, held=self.until.held == "stop")
        now_held = answer.states.get(JobState.HELD, 0)
        if now_held > self._held and not answer.over:
            self.stuck = self._never_released() if now_held == answer.left else None
            if self.stuck:
                return self._ask_server(0, held=True)
            self.bar.clear()
            is_single = now_held == 1
            which = f"lode status {_ids_text(self.ranges, _FEW)} --state Held"
            note(f"{counted(now_held, 'job')} {'is' if is_single else 'are'} Held, and will not end before "
                 f"{'it is' if is_single else 'they are'} released: {which}")  # fmt: skip
        self._held = now_held
        self.bar.show(answer)
        return answer

    def _ask_server(self, seconds: int, *, held: bool) -> Waited:
        limit = MOST_ENDED if self.session.as_json else 1
        query = WaitQuery(_ids_text(self.ranges), self.until.first, held, seconds, limit)
        return self.session.call(job_calls.WAIT, query)

    def _never_released(self) -> Job | None:
        """The first Held job, if all are Held by a failed parent: a user has to decide then."""
        from lodesman.languages.jobs.parents import names_failed_parent

        first = None
        for ids in self.ranges:
            query = JobsQuery(*ids, limit=_MOST_HELD, all=True, state=JobState.HELD.value)
            for job in islice(self.session.jobs(query), _MOST_HELD):
                if not names_failed_parent(job.reason):
                    return None
                first = first or job
        return first


class _Bar:
    """Drawn again if `shown` on a terminal, else a line now and then."""

    def __init__(self, *, shown: bool, silent: bool) -> None:
        self._shown, self._silent = shown and not silent, silent
        self._pace = Pace(time.monotonic())
        self._first: tuple[float, int] | None = None
        self._drawn = False

    def longest(self) -> float:
        left = 0.0 if self._silent else self._pace.seconds_left(time.monotonic())
        return _SHOWN_SECONDS if self._shown else min(max(1.0, left), LONGEST_WAIT) if left else LONGEST_WAIT

    def show(self, answer: Waited) -> None:
        if self._silent or answer.over:
            return
        now, ended = time.monotonic(), _size(answer) - answer.left
        self._first = self._first or (now, ended)
        begun, before = self._first
        left = time_left(now - begun, ended - before, answer.left)
        if not self._shown:
            if self._pace.is_due(now, _states(answer)):
                note(f"{_ended(answer, left)}.")
            return
        line = progress_line(answer, left)[: shutil.get_terminal_size().columns - 1]
        click.echo(f"\r\x1b[2K{line}", nl=False, err=True)
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            click.echo("\r\x1b[2K", nl=False, err=True)
        self._drawn = False


def time_left(seconds: float, ended: int, left: int) -> float | None:
    """At the pace so far, for those left; None: too early to say."""
    return seconds / ended * left if ended >= 3 and seconds >= 5.0 else None


def progress_line(answer: Waited, left: float | None) -> str:
    """A bar and `_ended`; the end may be cut."""
    return f"[{bar(answer.states, _BAR).text}] {_ended(answer, left)}"


def _ended(answer: Waited, left: float | None) -> str:
    """`40 of 100 ended, about 5 min left: 38 Done, ...`."""
    size = _size(answer)
    about = "" if left is None else f", about {span(left)} left"
    return f"{size - answer.left:,} of {size:,} ended{about}: {_states(answer)}"


def _states(answer: Waited) -> str:
    return states({state.value: count for state, count in answer.states.items()})


def _size(answer: Waited) -> int:
    return sum(answer.states.values()) + answer.unknown


def _ids_text(ranges: tuple[Range, ...], most: int | None = None) -> str:
    return ",".join(map(str, ranges[:most])) + ("..." if most is not None and len(ranges) > most else "")


def _last_words(answer: Waited, ranges: tuple[Range, ...], until: WaitOptions) -> str:
    size, ended = _size(answer), _size(answer) - answer.left
    unknown = f", {answer.unknown:,} purged (how they ended is not known)" if answer.unknown else ""
    words = _states(answer) + unknown
    if not answer.over:
        return (
            f"After {span(until.timeout)} {answer.left:,} of {counted(size, 'job')} had not ended: {words}."
        )
    if ended == 1 and answer.jobs:
        rest = f" In all: {words}." if size > 1 else ""
        return f"{ending(answer.jobs[0])}{rest}"
    failed = "" if answer.failed is None else f" First Failed: job {answer.failed.id}{_why(answer.failed)}."
    if answer.left and until.first and ended:
        return (
            f"{ended:,} of {counted(size, 'job')} {'has' if ended == 1 else 'have'} ended: {words}.{failed}"
        )
    if answer.left:
        return f"Only Held jobs are left: {words}.{failed}"
    which = "The job has" if total(ranges) == 1 else f"All {size:,} jobs have"
    return f"{which} ended: {words}.{failed}"


def _how_on(stuck: Job, answer: Waited, ranges: tuple[Range, ...]) -> str:
    is_single = answer.left == 1
    it, which = (
        "it" if is_single else "them",
        str(stuck.id) if is_single else f"{_ids_text(ranges)} --state Held",
    )
    others = "" if is_single else f" {'The others' if answer.left > 2 else 'The other'} likewise."
    return (
        f"Job {stuck.id} is Held: {stuck.reason.rstrip('.')}.{others} "
        f"To let {it} run: lode release {which}. To end {it}: lode kill {which}."
    )
