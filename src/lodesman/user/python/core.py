"""What the API asks of a server, by ids of jobs."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lodesman.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    LodesmanError,
    Unavailable,
    counted,
    plain,
)
from lodesman.languages.jobs import read_description
from lodesman.user.access.caller import Caller
from lodesman.user.access.outputs import download, lacks_output, wrote_nothing
from lodesman.user.access.selecting import Range, id_of, parse_ranges, seconds_of
from lodesman.user.python.functions import RESULT, is_call, read_result
from lodesman.user.python.progress import TELL_SECONDS, Progress, progress_teller
from lodesman.user.python.watcher import Watcher, ended_of, ranges_of
from lodesman.wire import calls
from lodesman.wire.job_queries import ControlBody, JobsQuery
from lodesman.wire.jobs import ChangeBody, JobInFull
from lodesman.wire.requests import MOST_ID, JobAt, JobInForm, JobInQueue
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import LONGEST_WAIT, EndedJob, Waited, WaitQuery

if TYPE_CHECKING:
    from lodesman.wire.why_jobs import JobWaits, JobWaitsNot

_MOST_BYTES = 20 << 30
# A server that restarts is waited for; who waits for jobs has time.
_AWAY_S = 2.0
Which = str | int | Iterable[int]
Timeout = float | str | None


class JobFailed(LodesmanError, code="job-failed"):
    """A job that did not end well. data: `job`, `state`, `cause`, `exit_code`, `signal`; `log`: the end of what it wrote."""

    log: str = ""

    @classmethod
    def of(cls, ended: EndedJob, log: str = "") -> JobFailed:
        """For a job that ended so."""
        how = ", ".join(
            part
            for part in (
                ended.cause or "",
                "" if ended.exit_code is None else f"exit code {ended.exit_code}",
                "" if ended.signal is None else f"signal {ended.signal}",
            )
            if part
        )
        data: dict[str, Any] = {
            "state": str(ended.state), "cause": ended.cause, "exit_code": ended.exit_code, "signal": ended.signal,
        }  # fmt: skip
        made = cls(f"Job {ended.id} is {ended.state}{f' ({how})' if how else ''}.", job=ended.id, **data)
        made.log = log
        return made

    def __str__(self) -> str:
        tail = "\n".join(self.log.splitlines()[-20:])
        return plain(f"{self.message}\n{tail}" if tail else self.message, keep="\n\t")


class ServerCore:
    """The connections of all threads, and what is asked. All raise LodesmanError."""

    def __init__(self, named: Caller) -> None:
        self._named = named
        self._mine = threading.local()
        self._callers: list[Caller] = []
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []

    # --- waiting --------------------------------------------------------------------------------------------------------

    def wait(self, jobs: Iterable[int], timeout: Timeout, progress: Progress = False) -> bool:
        """Returns whether all ended within `timeout` seconds."""
        every, until, pause = set(jobs), _deadline(timeout), 0  # the first line comes at once
        left, part = set(every), ranges_of(every)
        is_whole = sum(map(len, _parts(part))) == len(every) if every else True
        with progress_teller(progress) as tell:
            while left:
                seconds = _seconds(until) if tell is None else min(pause, _seconds(until))
                query, pause = WaitQuery(jobs=part, seconds=seconds, limit=0), TELL_SECONDS
                answer = self._patiently(partial(self.caller.call, calls.WAIT, query))
                if answer is not None and tell is not None:
                    tell(answer.states if is_whole else self.states(every))
                if answer is not None and answer.over:
                    left.difference_update(*_parts(part))
                    part = ranges_of(left)
                elif _is_over(until):
                    return False
        return True

    def as_completed(self, jobs: Iterable[int], timeout: Timeout) -> Iterator[int]:
        """The jobs as they end. Raises TimeoutError."""
        left, until = set(jobs), _deadline(timeout)
        while left:
            answer = self._patiently(partial(ended_of, self.caller, left, seconds=_seconds(until)))
            if answer is not None and answer.over:
                # Jobs that were purged have ended, and nothing more is known of them.
                ended = [job.id for job in answer.jobs] or [next(iter(left))]
                left.difference_update(ended)
                yield from ended
            elif _is_over(until):
                raise TimeoutError(
                    f"{counted(len(left), 'job')} {'has' if len(left) == 1 else 'have'} not ended."
                )

    def result(self, job: int, timeout: Timeout, *, returns: bool | None) -> Any:
        """The value of a job's function; None of a command. `returns` None: the server knows which it is.

        Raises TimeoutError, JobFailed, Forbidden if it is another's, and what the function raised.
        """
        if not self.wait([job], timeout):
            raise TimeoutError(f"Job {job} has not ended.")
        return self.result_of(job, returns=returns)

    def result_of(self, job: int, *, returns: bool | None) -> Any:
        """As `result`, of a job that has ended."""
        status = self.status(job)
        if status.output_sha256 and (self._is_own_call(status) if returns is None else returns):
            with tempfile.TemporaryDirectory(prefix="lode-") as scratch:
                target = Path(scratch) / "output"
                download(self.caller, status, target, most_bytes=_MOST_BYTES)
                if (target / RESULT).is_file():
                    return read_result(target / RESULT)
        if status.state != JobState.DONE:
            at = status.ended_at or status.since
            ended = EndedJob(job, status.state, at, status.exit_code, status.signal, status.cause)
            raise JobFailed.of(ended, self.logs(job))
        return None

    def _is_own_call(self, job: JobInFull) -> bool:
        """Raises Forbidden if it is another's."""
        if job.owner != self.caller.call(calls.ME).name:
            raise Forbidden(
                f"Job {job.id} belongs to {job.owner}: to read its result would carry out here what that says.",
                hint=f"Results are read of your own functions only; lode output {job.id} fetches the files.",
            )
        described = self.caller.call(calls.JOB_DESCRIPTION, JobInForm(job.id, form="json"))
        return is_call(read_description(described.text, form="json").record)

    def watcher(self) -> Watcher:
        """With its own connection, until this client ends."""
        made = Watcher(copy(self._named))
        with self._lock:
            self._watchers.append(made)
        return made

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def find(self, which: Which | None, **filters: Any) -> list[int]:
        """The known ids of `which` (None: all of one's own), ascending. Raises InvalidRequest, NotFound."""
        if which is None:
            return sorted(self._list_ids(JobsQuery(**filters)))
        ids: set[int] = set()
        for span, each in _named_ranges(which):
            query = JobsQuery(span.first, span.last, all=True)
            part = self._list_ids(replace(query, **filters))
            lacking = _find_missing(span, part, each=each)
            if lacking and filters:
                some = query if each else replace(query, limit=1)
                lacking = _find_missing(span, self._list_ids(some, whole=each), each=each)
            if lacking:
                self.caller.refuse_missing(lacking)
            ids |= part
        return sorted(ids)

    def _list_ids(self, query: JobsQuery, *, whole: bool = True) -> set[int]:
        """Not `whole`: in its first page."""
        page = self.caller.call(calls.JOBS, query)
        ids = {job.id for job in page.jobs}
        while page.more and whole:
            page = self.caller.call(calls.JOBS, replace(query, after=page.cursor))
            ids.update(job.id for job in page.jobs)
        return ids

    def ready(self) -> None:
        """Returns if both processes of the server answer."""
        self.caller.call(calls.ME)

    def status(self, job: int) -> JobInFull:
        """All that is known of a job now."""
        return self.caller.call(calls.JOB, JobAt(job))

    def states(self, jobs: Iterable[int]) -> dict[JobState, int]:
        """How many are in which state now."""
        counts: Counter[JobState] = Counter()
        for part in _portions(jobs):
            counts.update(self.caller.call(calls.WAIT, WaitQuery(jobs=part, seconds=0, limit=0)).states)
        return dict(counts)

    def logs(self, job: int) -> str:
        """The last 64 kB that a job wrote."""
        return self.caller.call(calls.JOB_LOGS, JobAt(job)).tail

    def why(self, job: int) -> JobWaits | JobWaitsNot:
        """Why a job waits."""
        return self.caller.call(calls.JOB_WHY, JobInQueue(job))

    def output(self, job: int, directory: str | Path) -> Path:
        """Fetch into directory/ID. Raises FileExistsError."""
        target = Path(directory) / str(job)
        if target.exists():
            raise FileExistsError(f"{target} is there already.")
        target.parent.mkdir(parents=True, exist_ok=True)
        status = self.status(job)
        if not (status.output_sha256 or wrote_nothing(status)):
            raise Conflict(lacks_output(status), job=job)
        download(self.caller, status, target, most_bytes=_MOST_BYTES)
        return target

    def change(self, job: int, attributes: Mapping[str, Any]) -> bool:
        """Returns whether the job still waited."""
        body = ChangeBody(ranges=[(job, job)], attributes=dict(attributes))
        return self.caller.call(calls.CHANGE_JOBS, body=body).changed > 0

    def cancel(self, jobs: Iterable[int], reason: str) -> int:
        """Kill those that have not ended; returns their number."""
        count = 0
        for part in _portions(jobs):
            ranges = [(ids[0], ids[-1]) for ids in _parts(part)]
            count += self.caller.control(ControlBody(ranges=ranges, action="kill", reason=reason)).changed
        return count

    # --- the way to the server ------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The server's."""
        return self._named.address

    @property
    def caller(self) -> Caller:
        """The connection of this thread."""
        caller: Caller | None = getattr(self._mine, "caller", None)
        if caller is None:
            caller = self._mine.caller = copy(self._named)
            with self._lock:
                self._callers.append(caller)
        return caller

    def _patiently(self, ask: Callable[[], Waited]) -> Waited | None:
        """None while no server answers. Raises LodesmanError."""
        try:
            return ask()
        except Unavailable:
            threading.Event().wait(_AWAY_S)
            return None

    def close(self) -> None:
        """End the connections. Jobs go on."""
        with self._lock:
            callers, self._callers[:] = list(self._callers), []
            watchers, self._watchers[:] = list(self._watchers), []
        for watcher in watchers:
            watcher.close()
        for caller in callers:
            caller.close()
        self._mine.__dict__.clear()


def _named_ranges(which: Which) -> Iterator[tuple[Range, bool]]:
    """Whether each job is named by itself; neighbours are asked for at once."""
    if isinstance(which, str):
        ranges = parse_ranges([which], most=MOST_ID)
        yield from ((span, False) for span in ranges if span.size > 1)
        ids = {span.first for span in ranges if span.size == 1}
    elif isinstance(which, Iterable) and not isinstance(which, bytes):
        ids = set(map(id_of, which))
        if not ids:
            raise InvalidRequest("No job is named.", hint="Leave the list out for all of your jobs.")
    else:
        ids = {id_of(which)}
    for text in _portions(ids):
        yield from ((Range(part[0], part[-1]), True) for part in _parts(text))


def _find_missing(span: Range, known_ids: set[int], *, each: bool) -> Range | None:
    """The first job of those named each, else the range, if it is not there."""
    if not each:
        return None if known_ids else span
    ids = range(span.first, span.last + 1)
    first = next((number for number in ids if number not in known_ids), None)
    return None if first is None else Range(first, first)


def _portions(jobs: Iterable[int]) -> Iterator[str]:
    left = set(jobs)
    while left:
        part = ranges_of(left)
        left.difference_update(*_parts(part))
        yield part


def _parts(text: str) -> Iterator[range]:
    for word in text.split(","):
        first, _, last = word.partition("-")
        yield range(int(first), int(last or first) + 1)


def _deadline(timeout: Timeout) -> float | None:
    return None if timeout is None else time.monotonic() + seconds_of(timeout)


def _seconds(until: float | None) -> int:
    left = LONGEST_WAIT if until is None else until - time.monotonic()
    return max(0, ceil(min(LONGEST_WAIT, left)))


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until
