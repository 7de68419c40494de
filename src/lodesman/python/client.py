"""The client of the Python API: what users say becomes calls of the server; any thread may use it."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from lodesman.access.caller import Caller
from lodesman.access.files import Taken, packed
from lodesman.access.outputs import download
from lodesman.access.uploads import measure, upload
from lodesman.answers import calls
from lodesman.answers.job_queries import ControlBody
from lodesman.answers.jobs import JobInFull, Submission
from lodesman.answers.requests import JobAt, JobInQueue, SubmitBody
from lodesman.answers.vocabulary import JobState
from lodesman.answers.waiting import LONGEST_WAIT, EndedJob, Waited, WaitQuery
from lodesman.errors import Conflict, InvalidRequest, Unavailable
from lodesman.jobs import write_description
from lodesman.python.drafts import Draft, Options, checked, draft_of
from lodesman.python.functions import (
    CALL,
    LIBRARY,
    RESULT,
    RUNNER,
    Call,
    pack_calls,
    read_result,
    record_of_call,
)
from lodesman.python.jobs import Job, JobFailed, Jobs
from lodesman.python.watcher import Watcher, ended_of, ranges_of

if TYPE_CHECKING:
    from lodesman.answers.why_jobs import JobWaits, JobWaitsNot
    from lodesman.python.executor import JobExecutor

P = ParamSpec("P")
R = TypeVar("R")
_MOST_BYTES = 20 << 30
# A server that restarts is waited for; who waits for jobs has time.
_AWAY_S = 2.0


class Client:
    """Submits jobs, waits for them and fetches what they made.

    server, token, token_file and ca_file are found as `lode` finds them if they are not given. Close it, or use it by
    `with`: jobs go on. Raises LodesmanError (subclasses by code) for what the server refuses.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str = "",
        token_file: str | Path | None = None,
        ca_file: str | None = None,
    ) -> None:
        server = server or os.environ.get("LODE_SERVER")
        token_file = token_file or os.environ.get("LODE_TOKEN_FILE")
        ca_file = ca_file or os.environ.get("LODE_CA_FILE")
        file = None if token_file is None else Path(token_file)
        self._named = Caller(server, file, ca_file, token=token)
        self._mine = threading.local()
        self._callers: list[Caller] = []
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._options = Options()

    # --- submitting -----------------------------------------------------------------------------------------------------

    def using(self, **options: Any) -> Client:
        """The same client with options for what it submits: cores, memory ("4G"), time, cpu_time ("1h"), site, tags, name,
        environment, keep (files kept as output), files (taken along), group, python (on the node, for functions), and any
        attribute of a description by its name (`Requirements={...}`). Raises InvalidRequest.
        """
        made = copy(self)
        made._options = self._options.more(options)  # noqa: SLF001 - a copy of this one
        return made

    @overload
    def submit(self, what: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def submit(self, what: str | Path | Mapping[str, Any] | Sequence[str]) -> Jobs[None]: ...
    def submit(self, what: Any, *args: Any, **kwargs: Any) -> Job[Any] | Jobs[None]:
        """Submit a function with its arguments (one job); or a command as a list of words, or a description as text, file or
        dict (as many jobs as it says). Raises LodesmanError.
        """
        if callable(what):
            return self._functions(what, [(args, kwargs)])[0]
        if args or kwargs:
            hint = "Options stand before: client.using(cores=2).submit(...)."
            raise InvalidRequest("Only a function has arguments.", hint=hint)
        draft = draft_of(what, self._options)
        return Jobs(self, self._send(draft))

    def map(self, function: Callable[..., R], *iterables: Iterable[Any]) -> Jobs[R]:
        """One job for each item (or for each tuple of items, as `map`), as one submission. Raises LodesmanError."""
        return self._functions(function, [(items, {}) for items in zip(*iterables, strict=False)])

    def executor(self) -> JobExecutor:
        """A `concurrent.futures.Executor` whose calls are jobs with the options of this client."""
        from lodesman.python.executor import JobExecutor  # noqa: PLC0415 - it needs this module

        return JobExecutor(self)

    def _functions(self, function: Callable[..., R], made: Sequence[Call]) -> Jobs[R]:
        if not made:
            raise InvalidRequest("There is nothing to do: no items.")
        with tempfile.TemporaryDirectory(prefix="lode-") as name:
            folder = Path(name)
            count = pack_calls(function, made, folder)
            record = record_of_call(function, self._options.python)
            if count > 1:
                record |= {"Parameters": count, "ParameterStart": 0, "ParameterStep": 1}
            kept = self._options.attributes.get("OutputSandbox", [])
            options = self._options.more({"keep": [RESULT, *([kept] if isinstance(kept, str) else kept)]})
            taken: dict[str, Taken] = {one: folder / one for one in (CALL, RUNNER, LIBRARY)}
            ids = self._send(checked(record, options, Path(), taken))
        return Jobs(self, ids, returns=True)

    def _send(self, draft: Draft) -> range:
        """The ids that a draft gets. A lost answer is asked for again, by the id of the request."""
        with tempfile.TemporaryDirectory(prefix="lode-") as scratch:
            paths = packed(draft.inputs, Path(scratch))
            files = measure(paths.values())
            upload(self.caller, files)
            body = SubmitBody(
                text=write_description(draft.record, "json"), form="json", group=self._options.group,
                hold_if_impossible=self._options.hold_if_impossible,
                sandboxes={name: files[path] for name, path in paths.items()}, request_id=str(uuid.uuid4()),
            )  # fmt: skip
            answer = self.caller.call(calls.SUBMIT, body=body)
        assert isinstance(answer, Submission)  # noqa: S101 - it was no dry run
        return range(answer.first, answer.first + answer.count)

    # --- waiting --------------------------------------------------------------------------------------------------------

    def wait(self, jobs: Iterable[Job[Any]], timeout: float | None = None) -> bool:
        """Wait until all have ended, `timeout` seconds at most; returns whether they have. Raises LodesmanError."""
        left, until = {job.id for job in jobs}, _deadline(timeout)
        while left:
            part = ranges_of(left)
            query = WaitQuery(jobs=part, seconds=_seconds(until), limit=0)
            answer = self._patiently(partial(self.caller.call, calls.WAIT, query))
            if answer is not None and answer.over:
                left -= set(_ids(part))
            elif _is_over(until):
                return False
        return True

    def as_completed(self, jobs: Iterable[Job[R]], timeout: float | None = None) -> Iterator[Job[R]]:
        """The jobs as they end. Raises LodesmanError, and TimeoutError after `timeout` seconds in all."""
        left, until = {job.id: job for job in jobs}, _deadline(timeout)
        while left:
            answer = self._patiently(partial(ended_of, self.caller, left, seconds=_seconds(until)))
            if answer is not None and answer.over:
                # Jobs that were purged have ended, and nothing more is known of them.
                yield from [left.pop(one.id) for one in answer.jobs] or [left.pop(next(iter(left)))]
            elif _is_over(until):
                raise TimeoutError(f"{len(left)} of the jobs have not ended.")

    def result(self, job: Job[R], timeout: float | None = None) -> R:
        """What a job's function returned, None of a command. Raises as `Job.result`."""
        if not self.wait([job], timeout):
            raise TimeoutError(f"Job {job.id} has not ended.")
        return self.result_of(job, self.status(job))

    def result_of(self, job: Job[R], found: JobInFull) -> R:
        """The same of a job that has ended."""
        if job.returns and found.output_sha256:
            with tempfile.TemporaryDirectory(prefix="lode-") as scratch:
                target = Path(scratch) / "output"
                download(self.caller, found, target, most_bytes=_MOST_BYTES)
                if (target / RESULT).is_file():
                    value: R = read_result(target / RESULT)
                    return value
        if found.state != JobState.DONE:
            ended = EndedJob(
                found.id,
                found.state,
                found.ended_at or found.since,
                found.exit_code,
                found.signal,
                found.cause,
            )
            raise JobFailed.of(ended, self.logs(job))
        return cast("R", None)

    def watcher(self) -> Watcher:
        """A watcher with a connection of its own; it ends with this client."""
        made = Watcher(copy(self._named))
        with self._lock:
            self._watchers.append(made)
        return made

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Returns if the server answers, both of its processes. Raises LodesmanError."""
        self.caller.call(calls.ME)

    def job(self, number: int) -> Job[Any]:
        """A job that was submitted before, perhaps by another program."""
        return Job(self, number, returns=True)

    def status(self, job: Job[Any]) -> JobInFull:
        """As `Job.status`."""
        return self.caller.call(calls.JOB, JobAt(job.id))

    def states(self, jobs: Iterable[Job[Any]]) -> dict[JobState, int]:
        """How many are in which state now. Raises LodesmanError."""
        query = WaitQuery(jobs=ranges_of(job.id for job in jobs), seconds=0, limit=0)
        return self.caller.call(calls.WAIT, query).states

    def logs(self, job: Job[Any]) -> str:
        """As `Job.logs`."""
        found = self.caller.call(calls.JOB_LOGS, JobAt(job.id))
        return found.tail

    def why(self, job: Job[Any]) -> JobWaits | JobWaitsNot:
        """As `Job.why`."""
        return self.caller.call(calls.JOB_WHY, JobInQueue(job.id))

    def output(self, job: Job[Any], directory: str | Path) -> Path:
        """As `Job.output`."""
        target = Path(directory) / str(job.id)
        if target.exists():
            raise FileExistsError(f"{target} is there already.")
        target.parent.mkdir(parents=True, exist_ok=True)
        found = self.status(job)
        if not found.output_sha256:
            raise Conflict(f"Job {job.id} has no output: it is {found.state}.", job=job.id)
        download(self.caller, found, target, most_bytes=_MOST_BYTES)
        return target

    def cancel(self, jobs: Iterable[Job[Any]], reason: str = "") -> int:
        """Kill those that have not ended; returns their number. Raises LodesmanError."""
        text = ranges_of(job.id for job in jobs)
        ranges = [(part[0], part[-1]) for part in _parts(text)]
        body = ControlBody(ranges=ranges, action="kill", reason=reason)
        return self.caller.call(calls.CONTROL, body=body).changed

    # --- the way to the server ------------------------------------------------------------------------------------------

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _parts(text: str) -> Iterator[range]:
    for word in text.split(","):
        first, _, last = word.partition("-")
        yield range(int(first), int(last or first) + 1)


def _ids(text: str) -> Iterator[int]:
    for part in _parts(text):
        yield from part


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _seconds(until: float | None) -> int:
    """For one question of the server."""
    left = LONGEST_WAIT if until is None else until - time.monotonic()
    return max(0, min(LONGEST_WAIT, ceil(left)))


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until
