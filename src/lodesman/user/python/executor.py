"""A `concurrent.futures.Executor` whose calls are jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lodesman.base.errors import LodesmanError
from lodesman.user.python.jobs import Job, Jobs

if TYPE_CHECKING:
    from lodesman.user.python.core import ServerCore
    from lodesman.user.python.watcher import Ended

P = ParamSpec("P")
R = TypeVar("R")


class JobFuture(Future[R]):
    """The future of a job, which `cancel` kills."""

    job: Job[R]

    def cancel(self) -> bool:
        """Kill the job; returns whether the future is cancelled."""
        if not super().cancel():
            return False
        self.job.cancel("its future was cancelled")
        return True


class JobExecutor(Executor):
    """`client.using(cores=2).executor()`: each call is a job, each `map` one submission."""

    def __init__(
        self, core: ServerCore, submit: Callable[..., Job[Any]], spread: Callable[..., Jobs[Any]]
    ) -> None:
        self._core, self._submit, self._map = core, submit, spread
        self._watcher = core.watcher()
        self._futures: set[JobFuture[Any]] = set()
        self._shut = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Raises RuntimeError after `shutdown`, LodesmanError."""
        self._check()
        return self._future(self._submit(fn, *args, **kwargs))

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[R]:
        """As `Executor.map`; all items are one submission. `chunksize` has no meaning."""
        del chunksize
        self._check()
        futures = [self._future(job) for job in self._map(fn, *iterables)]
        return (future.result(timeout) for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those that there are, or kill them."""
        self._shut = True
        for future in list(self._futures):
            if cancel_futures:
                future.cancel()
        if wait:
            for future in list(self._futures):
                if not future.cancelled():
                    future.exception()
            self._watcher.close()

    def _check(self) -> None:
        if self._shut:
            raise RuntimeError("The executor was shut down.")

    def _future(self, job: Job[R]) -> JobFuture[R]:
        future: JobFuture[R] = JobFuture()
        future.job = job
        self._futures.add(future)
        future.add_done_callback(lambda _: self._futures.discard(future))

        def end(ended: Ended) -> None:
            """On the thread of the watcher."""
            if not future.set_running_or_notify_cancel():
                return
            try:
                if isinstance(ended, LodesmanError):
                    raise ended
                value = self._core.result_of(job.id, returns=True)
            except BaseException as fault:
                future.set_exception(fault)
            else:
                future.set_result(value)

        self._watcher.when_ended(job.id, end)
        return future
