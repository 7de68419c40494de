"""The client for asyncio: the same calls in threads, all waiting in one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar, overload

from lodesman.base.errors import LodesmanError
from lodesman.user.python.client import Client
from lodesman.user.python.jobs import Job, Jobs
from lodesman.user.python.progress import TELL_SECONDS, Progress, progress_teller
from lodesman.wire.vocabulary import JobState

if TYPE_CHECKING:
    from lodesman.user.python.core import Which
    from lodesman.user.python.watcher import Ended, Watcher
    from lodesman.wire.jobs import JobInFull
    from lodesman.wire.why_jobs import JobWaits, JobWaitsNot

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_THREADS = 4


class AsyncClient:
    """As `Client`, for coroutines; jobs are values, and questions are methods of the client."""

    def __init__(self, server: str | None = None, **options: Any) -> None:
        self._client = Client(server, **options)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lodesman")
        self._watcher: Watcher = self._client.core.watcher()

    def using(self, **options: Any) -> AsyncClient:
        """As `Client.using`."""
        made = copy(self)
        made._client = self._client.using(**options)  # noqa: SLF001 - a copy of this one
        return made

    @overload
    async def submit(self, what: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    async def submit(self, what: str | Path | Mapping[str, Any] | Sequence[str]) -> Jobs[None]: ...
    async def submit(self, what: Any, *args: Any, **kwargs: Any) -> Any:
        """As `Client.submit`."""
        return await self._run(lambda: self._client.submit(what, *args, **kwargs))

    async def map(self, function: Callable[..., R], *iterables: Iterable[Any], **options: Never) -> Jobs[R]:
        """As `Client.map`."""
        return await self._run(lambda: self._client.map(function, *iterables, **options))

    async def jobs(self, which: Which | None = None, **filters: Any) -> Jobs[Any]:
        """As `Client.jobs`."""
        return await self._run(lambda: self._client.jobs(which, **filters))

    async def wait(self, jobs: Iterable[Job[Any]], *, progress: Progress = False) -> None:
        """Until all have ended; a time limit is `asyncio.timeout`. `progress`: as of `Jobs.wait`. Raises LodesmanError."""
        waited = list(jobs)
        ended = asyncio.gather(*(self._ended(job) for job in waited))
        try:
            with progress_teller(progress) as tell:
                is_over = False
                while tell is not None and not is_over:
                    is_over = ended.done()
                    tell(await self._run(lambda: self._client.states(waited)))
                    await asyncio.wait([ended], timeout=TELL_SECONDS)
            await ended
        finally:
            ended.cancel()

    async def as_completed(self, jobs: Iterable[Job[R]]) -> AsyncIterator[Job[R]]:
        """The jobs as they end. Raises LodesmanError."""
        ended: asyncio.Queue[tuple[Job[R], Ended]] = asyncio.Queue()
        left = list(jobs)
        for job in left:
            self._when_ended(job, lambda result, job=job: ended.put_nowait((job, result)))  # type: ignore[misc]
        for _ in left:
            job, result = await ended.get()
            if isinstance(result, LodesmanError):
                raise result
            yield job

    async def result(self, job: Job[R]) -> R:
        """What a job's function returned. Raises as `Job.result`."""
        await self._ended(job)
        return await self._run(job.result)

    async def status(self, job: Job[Any]) -> JobInFull:
        """As `Job.status`."""
        return await self._run(job.status)

    async def states(self, jobs: Iterable[Job[Any]]) -> dict[JobState, int]:
        """As `Jobs.states`."""
        return await self._run(lambda: self._client.states(jobs))

    async def logs(self, job: Job[Any]) -> str:
        """As `Job.logs`."""
        return await self._run(job.logs)

    async def why(self, job: Job[Any]) -> JobWaits | JobWaitsNot:
        """As `Job.why`."""
        return await self._run(job.why)

    async def output(self, job: Job[Any], directory: str | Path) -> Path:
        """As `Job.output`."""
        return await self._run(lambda: job.output(directory))

    async def change(self, job: Job[Any], **attributes: Any) -> bool:
        """As `Job.change`."""
        return await self._run(lambda: job.change(**attributes))

    async def cancel(self, jobs: Iterable[Job[Any]], reason: str = "") -> int:
        """As `Jobs.cancel`."""
        return await self._run(lambda: self._client.cancel(jobs, reason))

    async def close(self) -> None:
        """As `Client.close`."""
        await self._run(self._client.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _ended(self, job: Job[Any]) -> None:
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._when_ended(job, lambda result: None if future.done() else future.set_result(result))
        result = await future
        if isinstance(result, LodesmanError):
            raise result

    def _when_ended(self, job: Job[Any], act: Callable[[Ended], object]) -> None:
        loop = asyncio.get_running_loop()

        def tell(result: Ended) -> None:
            """On the thread of the watcher."""
            if not loop.is_closed():
                loop.call_soon_threadsafe(act, result)

        self._watcher.when_ended(job.id, tell)
