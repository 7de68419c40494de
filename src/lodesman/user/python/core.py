"""What the API asks of a server, by the ids of jobs; any thread may ask."""

from __future__ import annotations

import re
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

from lodesman.base.errors import Conflict, Forbidden, InvalidRequest, LodesmanError, Unavailable, counted
from lodesman.languages.jobs import read_description
from lodesman.user.access.caller import Caller
from lodesman.user.access.outputs import download, lacks_output, wrote_nothing
from lodesman.user.python.functions import RESULT, is_call, read_result
from lodesman.user.python.progress import TELL_SECONDS, Progress, told
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
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


class JobFailed(LodesmanError, code="job-failed"):
    """A job that did not end well. data: `job`, `state`, `cause`, `exit_code`, `signal` as far as they are known; `log` is
    the end of what it wrote.
    """

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
        return f"{self.message}\n{tail}" if tail else self.message


class ServerCore:
    """The connections to a server, one for each thread that asks, and what is asked. All raise LodesmanError."""

    def __init__(self, named: Caller) -> None:
        self._named = named
        self._mine = threading.local()
        self._callers: list[Caller] = []
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []

    # --- waiting --------------------------------------------------------------------------------------------------------

    def wait(self, jobs: Iterable[int], timeout: float | None, progress: Progress = False) -> bool:
        """Wait until all have ended, `timeout` seconds at most; returns whether they have."""
        every, until, pause = set(jobs), _deadline(timeout), 0  # the first line comes at once
        left, part = set(every), ranges_of(every)
        is_whole = sum(map(len, _parts(part))) == len(every) if every else True
        with told(progress) as tell:
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

    def as_completed(self, jobs: Iterable[int], timeout: float | None) -> Iterator[int]:
        """The jobs as they end. Raises TimeoutError after `timeout` seconds in all."""
        left, until = set(jobs), _deadline(timeout)
        while left:
            answer = self._patiently(partial(ended_of, self.caller, left, seconds=_seconds(until)))
            if answer is not None and answer.over:
                # Jobs that were purged have ended, and nothing more is known of them.
                ended = [one.id for one in answer.jobs] or [next(iter(left))]
                left.difference_update(ended)
                yield from ended
            elif _is_over(until):
                raise TimeoutError(
                    f"{counted(len(left), 'job')} {'has' if len(left) == 1 else 'have'} not ended."
                )

    def result(self, job: int, timeout: float | None, *, returns: bool | None) -> Any:
        """What a job's function returned; of a command (not `returns`) None. `returns` None: the server knows what it is.
        Raises TimeoutError, JobFailed, Forbidden if it is another's, and what the function raised.
        """
        if not self.wait([job], timeout):
            raise TimeoutError(f"Job {job} has not ended.")
        return self.result_of(job, returns=returns)

    def result_of(self, job: int, *, returns: bool | None) -> Any:
        """The same of a job that has ended."""
        found = self.status(job)
        if found.output_sha256 and (self._is_own_call(found) if returns is None else returns):
            with tempfile.TemporaryDirectory(prefix="lode-") as scratch:
                target = Path(scratch) / "output"
                download(self.caller, found, target, most_bytes=_MOST_BYTES)
                if (target / RESULT).is_file():
                    return read_result(target / RESULT)
        if found.state != JobState.DONE:
            at = found.ended_at or found.since
            ended = EndedJob(job, found.state, at, found.exit_code, found.signal, found.cause)
            raise JobFailed.of(ended, self.logs(job))
        return None

    def _is_own_call(self, job: JobInFull) -> bool:
        """Whether it is a function's, by its description at the server. Raises Forbidden if it is not the caller's."""
        if job.owner != self.caller.call(calls.ME).name:
            raise Forbidden(
                f"Job {job.id} belongs to {job.owner}: to read its result would carry out here what that says.",
                hint=f"Results are read of your own functions only; lode output {job.id} fetches the files.",
            )
        described = self.caller.call(calls.JOB_DESCRIPTION, JobInForm(job.id, form="json"))
        return is_call(read_description(described.text, form="json").record)

    def watcher(self) -> Watcher:
        """A watcher with a connection of its own; it ends with this client."""
        made = Watcher(copy(self._named))
        with self._lock:
            self._watchers.append(made)
        return made

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def find(self, which: str, **filters: Any) -> list[int]:
        """The ids that the server knows of `which` ("12-511,600"; '': of the caller's own jobs), ascending. Filters: as in
        lists. Raises InvalidRequest.
        """
        found: set[int] = set()
        for first, last in _ranges(which) or [(1, MOST_ID)]:
            query = JobsQuery(first, last, all=bool(which), **filters)
            while True:
                page = self.caller.call(calls.JOBS, query)
                found.update(job.id for job in page.jobs)
                if not page.more:
                    break
                query = replace(query, after=page.cursor)
        return sorted(found)

    def ready(self) -> None:
        """Returns if the server answers, both of its processes."""
        self.caller.call(calls.ME)

    def status(self, job: int) -> JobInFull:
        """All that is known of a job now."""
        return self.caller.call(calls.JOB, JobAt(job))

    def states(self, jobs: Iterable[int]) -> dict[JobState, int]:
        """How many are in which state now."""
        found: Counter[JobState] = Counter()
        for part in _portions(jobs):
            found.update(self.caller.call(calls.WAIT, WaitQuery(jobs=part, seconds=0, limit=0)).states)
        return dict(found)

    def logs(self, job: int) -> str:
        """The last 64 kB that a job wrote."""
        return self.caller.call(calls.JOB_LOGS, JobAt(job)).tail

    def why(self, job: int) -> JobWaits | JobWaitsNot:
        """Why a job waits."""
        return self.caller.call(calls.JOB_WHY, JobInQueue(job))

    def output(self, job: int, directory: str | Path) -> Path:
        """Fetch what a job wrote into directory/ID. Raises FileExistsError."""
        target = Path(directory) / str(job)
        if target.exists():
            raise FileExistsError(f"{target} is there already.")
        target.parent.mkdir(parents=True, exist_ok=True)
        found = self.status(job)
        if not (found.output_sha256 or wrote_nothing(found)):
            raise Conflict(lacks_output(found), job=job)
        download(self.caller, found, target, most_bytes=_MOST_BYTES)
        return target

    def change(self, job: int, attributes: Mapping[str, Any]) -> bool:
        """Give a job other values while it waits; returns whether it did."""
        body = ChangeBody(ranges=[(job, job)], attributes=dict(attributes))
        return self.caller.call(calls.CHANGE_JOBS, body=body).changed > 0

    def cancel(self, jobs: Iterable[int], reason: str) -> int:
        """Kill those that have not ended; returns their number."""
        count = 0
        for part in _portions(jobs):
            ranges = [(ids[0], ids[-1]) for ids in _parts(part)]
            while ranges:
                body = ControlBody(ranges=ranges, action="kill", reason=reason)
                answer = self.caller.call(calls.CONTROL, body=body)
                count, ranges = count + answer.changed, answer.rest or []
        return count

    # --- the way to the server ------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The server's."""
        return self._named.address

    @property
    def caller(self) -> Caller:
        """The connection of this thread."""
        found: Caller | None = getattr(self._mine, "caller", None)
        if found is None:
            found = self._mine.caller = copy(self._named)
            with self._lock:
                self._callers.append(found)
        return found

    def _patiently(self, ask: Callable[[], Waited]) -> Waited | None:
        """An answer; None while no server answers. Raises LodesmanError."""
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


def _ranges(which: str) -> list[tuple[int, int]]:
    found = []
    for part in which.split(",") if which else ():
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(
                f"{part.strip()[:60]!r} is not a job.", hint='Give ids as text: "12-511,600".'
            )
        found.append((int(match[1]), int(match[2] or match[1])))
    return found


def _portions(jobs: Iterable[int]) -> Iterator[str]:
    """All ids, in as many texts as the server wants."""
    left = set(jobs)
    while left:
        part = ranges_of(left)
        left.difference_update(*_parts(part))
        yield part


def _parts(text: str) -> Iterator[range]:
    for word in text.split(","):
        first, _, last = word.partition("-")
        yield range(int(first), int(last or first) + 1)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _seconds(until: float | None) -> int:
    """For one question of the server."""
    left = LONGEST_WAIT if until is None else until - time.monotonic()
    return max(0, min(LONGEST_WAIT, ceil(left)))


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until
