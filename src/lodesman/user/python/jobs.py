"""Jobs as values: one, or all of a submission."""

from __future__ import annotations

import html
import inspect
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from lodesman.base.errors import LodesmanError, Unauthorized, Unavailable, plain
from lodesman.user.python.watcher import ranges_of
from lodesman.wire.vocabulary import JobState

if TYPE_CHECKING:
    from lodesman.user.python.core import ServerCore, Timeout
    from lodesman.user.python.progress import Progress
    from lodesman.wire.jobs import JobInFull
    from lodesman.wire.why_jobs import JobWaits, JobWaitsNot

R = TypeVar("R")
_COLOURS = {
    JobState.DONE: "#2e7d32", JobState.FAILED: "#c62828", JobState.KILLED: "#c62828", JobState.RUNNING: "#f9a825",
    JobState.WAITING: "#1565c0", JobState.HELD: "#6a1b9a",
}  # fmt: skip


class Job(Generic[R]):
    """One job. R: what its function returns; None of a command.

    `returns`: whether it is a function's; None if only the server knows.
    """

    def __init__(self, core: ServerCore, number: int, *, returns: bool | None = False) -> None:
        self.core = core
        self.id = number
        self.returns = returns

    def status(self) -> JobInFull:
        """All that is known of it now, with attempts and events. Raises LodesmanError."""
        return self.core.status(self.id)

    @property
    def state(self) -> JobState:
        """Its state now."""
        return self.status().state

    def wait(self, timeout: Timeout = None, *, progress: Progress = False) -> bool:
        """Wait until it has ended, `timeout` at most (seconds, or a text as "10m"); returns whether it has. `progress`: as
        of `Jobs.wait`. Raises LodesmanError.
        """
        return self.core.wait([self.id], timeout, progress)

    def result(self, timeout: Timeout = None) -> R:
        """What its function returned, once it has ended. Raises what the function raised; JobFailed; TimeoutError."""
        return cast("R", self.core.result(self.id, timeout, returns=self.returns))

    def output(self, directory: str | Path) -> Path:
        """Fetch what it wrote into directory/ID, and return that. Raises LodesmanError, FileExistsError, OSError."""
        return self.core.output(self.id, directory)

    def logs(self) -> str:
        """The last 64 kB of its standard output and error, also while it runs. Raises LodesmanError."""
        return self.core.logs(self.id)

    def why(self) -> JobWaits | JobWaitsNot:
        """Why it waits, and what would let it run: `summary`, `verdict`, `chain` ... Raises LodesmanError."""
        return self.core.why(self.id)

    def change(self, **attributes: Any) -> bool:
        """Give it other values while it waits, as in `job.change(Memory=2000, JobClass="app.long")`; None takes one away.
        Returns whether it waited. Raises LodesmanError.
        """
        return self.core.change(self.id, attributes)

    def cancel(self, reason: str = "") -> bool:
        """Kill it; returns whether it had not ended. Raises LodesmanError."""
        return bool(self.core.cancel([self.id], reason))

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def _repr_html_(self) -> str:
        job = self.status()
        fields = {
            "job": job.id, "name": job.name, "state": job.state, "site": job.site, "attempt": job.attempt,
            "reason": job.reason or job.message,
        }  # fmt: skip
        rows = (
            f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in fields.items()
            if value not in (None, "")
        )
        return f"<table>{''.join(rows)}</table>"


class SubmissionWarning(UserWarning):
    """Something odd in what was submitted, which did not stop it."""


class Jobs(Sequence[Job[R]]):
    """Jobs by their ids, ascending: of one submission these follow one another. `returns`: as of a job. `notices`: what
    was odd about them when they were submitted.
    """

    def __init__(
        self, core: ServerCore, ids: Sequence[int], *, returns: bool | None = False, notices: Sequence[str] = ()
    ) -> None:  # fmt: skip
        self.core = core
        self.ids = ids
        self.returns = returns
        self.notices = tuple(notices)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Job[R]: ...
    @overload
    def __getitem__(self, index: slice) -> Jobs[R]: ...
    def __getitem__(self, index: int | slice) -> Job[R] | Jobs[R]:
        if isinstance(index, slice):
            return Jobs(self.core, self.ids[index], returns=self.returns)
        return Job(self.core, self.ids[index], returns=self.returns)

    def wait(self, timeout: Timeout = None, *, progress: Progress = False) -> bool:
        """Wait until all have ended, `timeout` at most, as of a job; returns whether they have. `progress`: True shows a
        line on standard error; a function is called with the number of jobs in each state, first and whenever they change.
        Raises LodesmanError, and what that function raises.
        """
        return self.core.wait(self.ids, timeout, progress)

    def states(self) -> dict[JobState, int]:
        """How many are in which state now. Raises LodesmanError."""
        return self.core.states(self.ids)

    def results(self, timeout: Timeout = None) -> Iterator[R]:
        """What their functions returned, in the order of the jobs, each as soon as those before it are there. Raises as
        `Job.result`.
        """
        for job in self:
            yield job.result(timeout)

    def as_completed(self, timeout: Timeout = None) -> Iterator[Job[R]]:
        """The jobs as they end. Raises LodesmanError, TimeoutError."""
        return (
            Job(self.core, number, returns=self.returns)
            for number in self.core.as_completed(self.ids, timeout)
        )

    def output(self, directory: str | Path) -> list[Path]:
        """Fetch what they wrote into directory/ID. A job whose output is at fault does not stop the others: the first fault
        is raised after the last job. Raises as `Job.output`.
        """
        made: list[Path] = []
        first: LodesmanError | None = None
        for job in self.ids:
            try:
                made.append(self.core.output(job, directory))
            except (Unauthorized, Unavailable):
                raise
            except LodesmanError as fault:
                if first is None:
                    first = fault
                fault.add_note(f"It is job {job}.")
        if first is not None:
            raise first
        return made

    def cancel(self, reason: str = "") -> int:
        """Kill those that have not ended; returns their number. Raises LodesmanError."""
        return self.core.cancel(self.ids, reason)

    def __repr__(self) -> str:
        if not self.ids:
            return "<no jobs>"
        first, last = self.ids[0], self.ids[-1]
        if last - first == len(self) - 1:
            return f"<{len(self)} jobs {first}-{last}>" if len(self) > 1 else f"<1 job {first}>"
        return f"<{len(self)} jobs {textwrap.shorten(ranges_of(self.ids).replace(',', ', '), 60)}>"

    def _repr_html_(self) -> str:
        counts = self.states()
        parts = "".join(
            f'<div title="{state}: {count}" style="flex:{count};background:{_COLOURS.get(state, "#90a4ae")}"></div>'
            for state, count in counts.items()
            if count
        )
        words = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
        name = html.escape(repr(self))
        return f'{name}<div style="display:flex;height:1em;max-width:40em">{parts}</div>{words}'


def warn_of(jobs: Jobs[Any]) -> None:
    """A SubmissionWarning for each notice, at the line of the user. If warnings are errors the jobs are submitted all the
    same, and the error says which they are.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("lodesman."):
        level, frame = level + 1, frame.f_back
    for text in dict.fromkeys(jobs.notices):
        try:
            warnings.warn(plain(text), SubmissionWarning, stacklevel=level)
        except SubmissionWarning as error:
            error.add_note(f"They are submitted: {jobs!r}")
            raise
