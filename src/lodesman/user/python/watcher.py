"""One thread waits for all jobs of this process, by one request at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.user.access.caller import Caller
from lodesman.wire import job_calls
from lodesman.wire.client import Aborted
from lodesman.wire.waiting import MOST_ENDED, MOST_RANGES, EndedJob, Waited, WaitQuery

Ended = EndedJob | LodesmanError
_AGAIN_S: Final = 2.0


def ranges_of(jobs: Iterable[int]) -> str:
    """`12,15,20-22`: the lowest ids, in at most MOST_RANGES ranges."""
    spans: list[list[int]] = []
    for job in sorted(jobs):
        if spans and job == spans[-1][1] + 1:
            spans[-1][1] = job
        elif len(spans) == MOST_RANGES:
            break
        else:
            spans.append([job, job])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def ended_of(caller: Caller, jobs: Iterable[int], *, seconds: int) -> Waited:
    """Wait `seconds` at most until a job has ended. Raises LodesmanError."""
    query = WaitQuery(jobs=ranges_of(jobs), any=True, seconds=seconds, limit=MOST_ENDED)
    return caller.call(job_calls.WAIT, query)


class Watcher:
    """Calls a function, on its own thread, once a job ends or cannot be waited for."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._wanted: dict[int, list[Callable[[Ended], None]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def when_ended(self, job: int, act: Callable[[Ended], None]) -> None:
        """Any thread may ask."""
        with self._changed:
            client = self._caller.client  # made once, whichever thread comes first
            new = job not in self._wanted
            self._wanted.setdefault(job, []).append(act)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lodesman-watcher", daemon=True)
                self._thread.start()
            self._changed.notify()
        if new:
            client.abort()  # the question that is under way does not name it

    def close(self) -> None:
        """No function is called any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._caller.client.abort()
            if self._thread is not threading.current_thread():
                self._thread.join()
        self._caller.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted)
                if self._closed:
                    return
                self._caller.client.rearm()
                jobs = list(self._wanted)
            with suppress(Aborted):
                self._ask(jobs)

    def _ask(self, jobs: list[int]) -> None:
        try:
            answer = ended_of(self._caller, jobs, seconds=50)
        except Aborted:
            raise
        except Unavailable:
            # It restarts, or is away: jobs go on.
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=_AGAIN_S)
            return
        except LodesmanError as fault:
            self._tell(dict.fromkeys(jobs, fault))
            return
        self._tell({job.id: job for job in answer.jobs})

    def _tell(self, ended: dict[int, EndedJob] | dict[int, LodesmanError]) -> None:
        with self._changed:
            acts = [(self._wanted.pop(job, []), result) for job, result in ended.items()]
        for functions, result in acts:
            for act in functions:
                act(result)
