"""The client of the Python API; any thread may use it."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Never, ParamSpec, Self, TypeVar, overload

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs import write_description
from lodesman.user.access.caller import Caller
from lodesman.user.access.files import Taken, measure_files, upload_files
from lodesman.user.access.packing import pack_inputs
from lodesman.user.access.selecting import id_of, state_of
from lodesman.user.python.core import ServerCore, Timeout, Which
from lodesman.user.python.drafts import Draft, Options, checked, draft_of
from lodesman.user.python.executor import JobExecutor
from lodesman.user.python.functions import CALL, LIBRARY, RESULT, RUNNER, Call, pack_calls, record_of_call
from lodesman.user.python.jobs import Job, Jobs, warn_of
from lodesman.user.python.progress import Progress
from lodesman.wire import job_calls
from lodesman.wire.jobs import Submission
from lodesman.wire.requests import SubmitBody
from lodesman.wire.vocabulary import JobState

P = ParamSpec("P")
R = TypeVar("R")


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
        token_file = token_file or os.environ.get("LODE_TOKEN_FILE") or None  # set to nothing is not set
        ca_file = ca_file or os.environ.get("LODE_CA_FILE") or None
        file = None if token_file is None else Path(token_file)
        self.core = ServerCore(Caller(server, file, ca_file, token=token))
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
        dict (as many jobs as it says). What is odd about it is a SubmissionWarning. Raises LodesmanError.
        """
        if callable(what):
            return self._functions(what, [(args, kwargs)])[0]
        if args or kwargs:
            hint = "Options stand before: client.using(cores=2).submit(...)."
            raise InvalidRequest("Only a function has arguments.", hint=hint)
        return self._send(draft_of(what, self._options))

    def map(self, function: Callable[..., R], *iterables: Iterable[Any], **options: Never) -> Jobs[R]:
        """One job for each item (or for each tuple of items, as `map`), as one submission. Raises LodesmanError;
        InvalidRequest for options, which stand in `using`.
        """
        if options:
            name = next(iter(options))
            hint = f"Options stand before: client.using({name}=...).map(...). Arguments of the function: functools.partial."
            raise InvalidRequest(f"map takes no {name!r}.", hint=hint)
        return self._functions(function, [(items, {}) for items in zip(*iterables, strict=False)])

    def executor(self) -> JobExecutor:
        """A `concurrent.futures.Executor` whose calls are jobs with the options of this client."""
        return JobExecutor(self.core, self.submit, self.map)

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
            inputs: dict[str, Taken] = {name: folder / name for name in (CALL, RUNNER, LIBRARY)}
            return self._send(checked(record, options, Path(), inputs, usual_name=True), returns=True)

    def _send(self, draft: Draft, *, returns: bool = False) -> Jobs[Any]:
        """A lost answer is asked for again, by the id of the request."""
        with tempfile.TemporaryDirectory(prefix="lode-") as scratch:
            paths = pack_inputs(draft.inputs, Path(scratch))
            files = measure_files(paths.values())
            upload_files(self.core.caller, files)
            body = SubmitBody(
                text=write_description(draft.record, "json"), form="json", group=self._options.group,
                hold=self._options.hold, hold_if_impossible=self._options.hold_if_impossible,
                sandboxes={name: files[path] for name, path in paths.items()}, request_id=str(uuid.uuid4()),
                usual_name=draft.usual_name,
            )  # fmt: skip
            answer = self.core.caller.call(job_calls.SUBMIT, body=body)
        assert isinstance(answer, Submission)  # noqa: S101 - it was no dry run
        notices = (*draft.notices, *(notice.message for notice in answer.notices))
        made: Jobs[Any] = Jobs(
            self.core, range(answer.first, answer.first + answer.count), returns=returns, notices=notices
        )
        warn_of(made)
        return made

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def job(self, number: int) -> Job[Any]:
        """A job that was submitted before, perhaps by another program. Its result is read if it is a function of yours.
        Raises InvalidRequest for what is no id.
        """
        return Job(self.core, id_of(number), returns=None)

    def jobs(
        self, which: Which | None = None, *, name: str | None = None, submission: int | None = None,
        group: str | None = None, job_group: str | None = None, job_class: str | None = None,
        state: str | Iterable[str] | None = None, where: Mapping[str, Any] | None = None,
    ) -> Jobs[Any]:  # fmt: skip
        """Jobs that were submitted before: `which` ("12-511,600", 12 or [12, 15]), or, without it, all of yours; those with
        this `name`, `job_group` or `job_class` (`*` stands for any text, `?` for any letter), of this `submission` or
        `group`, in a `state` ("Failed,Killed"), with all attributes of `where` ({"CPUTime": "1h", "Tag": ["GPU", "SSD"]}).
        Raises LodesmanError; NotFound for a job that is named and not there, or a range without any; InvalidRequest for
        what is empty, as a variable may be by mistake.
        """
        filters = {
            "name": name,
            "submission": submission,
            "group": group,
            "job_group": job_group,
            "job_class": job_class,
            "where": None
            if where is None
            else [f"{name}={_attribute_text(value)}" for name, value in where.items()],
            "state": None if state is None else _states(state),
        }
        conditions = {key: value for key, value in filters.items() if value is not None}
        for key, value in conditions.items():
            if not (value.strip() if isinstance(value, str) else value):
                raise InvalidRequest(f"{key} is empty.", hint="Leave it out for jobs of any.")
        return Jobs(self.core, self.core.find(which, **conditions), returns=None)

    def wait(self, jobs: Iterable[Job[Any]], timeout: Timeout = None, *, progress: Progress = False) -> bool:
        """As `Jobs.wait`. Raises LodesmanError."""
        return self.core.wait((job.id for job in jobs), timeout, progress)

    def as_completed(self, jobs: Iterable[Job[R]], timeout: Timeout = None) -> Iterator[Job[R]]:
        """The jobs as they end. Raises LodesmanError, and TimeoutError after `timeout` in all."""
        by_id = {job.id: job for job in jobs}
        return (by_id[number] for number in self.core.as_completed(by_id, timeout))

    def states(self, jobs: Iterable[Job[Any]]) -> dict[JobState, int]:
        """How many are in which state now. Raises LodesmanError."""
        return self.core.states(job.id for job in jobs)

    def cancel(self, jobs: Iterable[Job[Any]], reason: str = "") -> int:
        """Kill those that have not ended; returns their number. Raises LodesmanError."""
        return self.core.cancel((job.id for job in jobs), reason)

    def close(self) -> None:
        """End the connections. Jobs go on."""
        self.core.close()

    def __repr__(self) -> str:
        return f"<Client of {self.core.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _states(given: str | Iterable[str]) -> str:
    words = given.split(",") if isinstance(given, str) and given.strip() else given
    return ",".join(map(state_of, words))


def _attribute_text(value: Any) -> str:
    if value is None:
        raise InvalidRequest("where: a value is None.", hint='"" finds jobs without one.')
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)
