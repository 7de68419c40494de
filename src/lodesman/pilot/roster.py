"""What this pilot runs, what waits for room, and what is decided about the whole of it; one lock."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable

from lodesman.pilot.life import Load, Slot, fits
from lodesman.pilot.outcome import Stop
from lodesman.pilot.payload import Bench, Payload
from lodesman.pilot.protocol import Job, Key


class Roster:
    """The payloads of a pilot. Every method may be called by any thread.

    `on_change` is called, without the lock, whenever room became free, jobs came, or a decision fell.
    """

    def __init__(self, slot: Slot, bench: Bench, *, on_change: Callable[[], None]) -> None:
        self.slot = slot
        self.changed = threading.Condition()
        self._bench = bench
        self._on_change = on_change
        self._running: dict[Key, Payload] = {}
        self._finishing: dict[Key, Payload] = {}
        self._backlog: list[Job] = []
        self._idle_since = bench.ticker()
        self._told_nothing = False
        self._draining = False
        self._stopping = False
        self.last_end = bench.ticker()

    def load(self) -> Load:
        """What is in hand now, as values."""
        with self.changed:
            return Load(
                running=[_need(payload) for payload in self._running.values()],
                backlog=len(self._backlog),
                unsent=len(self._finishing) + self._bench.outbox.count(),
                idle_since=self._idle_since,
                told_nothing=self._told_nothing,
                draining=self._draining,
                stopping=self._stopping,
            )

    def payloads(self) -> list[Payload]:
        """Those that hold their room."""
        with self.changed:
            return list(self._running.values())

    def unreported(self) -> dict[Key, bool]:
        """Attempts that hold no room but whose end the server does not know: whether they are being handed in."""
        with self.changed:
            waiting = {job.key: False for job in self._backlog}
            return {**waiting, **dict.fromkeys([*self._finishing, *self._bench.outbox.keys()], True)}

    def admit(self, jobs: Sequence[Job]) -> None:
        """Start jobs that were claimed; what has no room waits for it, in order."""
        with self.changed:
            self._told_nothing = not jobs
            self._backlog.extend(jobs)
            self._fill()
        self._on_change()

    def drain(self) -> None:
        """Ask for nothing more, and leave when all is done."""
        with self.changed:
            known, self._draining = self._draining, True
        if not known:
            self._changed()

    def stop_all(self, stop: Stop, *, grace_s: float) -> list[Job]:
        """End everything; returns the jobs that were never started."""
        with self.changed:
            self._stopping = True
            dropped, self._backlog = self._backlog, []
            payloads = list(self._running.values())
        for payload in payloads:
            payload.stop(stop, grace_s=grace_s)
        self._changed()
        return dropped

    def stop_one(self, key: Key, stop: Stop, *, grace_s: float) -> Job | None:
        """End one attempt; returns its job if that was never started."""
        with self.changed:
            payload, finishing = self._running.get(key), self._finishing.get(key)
            dropped = [job for job in self._backlog if job.key == key]
            self._backlog = [job for job in self._backlog if job.key != key]
        if payload is not None:
            payload.stop(stop, grace_s=grace_s)
        if finishing is not None:
            finishing.drop_output()
        return dropped[0] if dropped else None

    def _fill(self) -> None:
        """Start what fits, in order; with the lock held."""
        while self._backlog and not self._stopping:
            job = self._backlog[0]
            if not fits(self.slot, Load(running=[_need(one) for one in self._running.values()]), job):
                return
            self._backlog.pop(0)
            self._start(job)

    def _start(self, job: Job) -> None:
        payload = Payload(job, self._bench)
        self._running[job.key] = payload
        threading.Thread(
            target=payload.run,
            args=(lambda: self._free(payload), lambda: self._done(payload)),
            name=job.label,
            daemon=True,
        ).start()

    def _free(self, payload: Payload) -> None:
        """Its tree is gone: its room is another's."""
        with self.changed:
            del self._running[payload.job.key]
            self._finishing[payload.job.key] = payload
            self._draining = self._draining or payload.node_failed
            self._idle_since = self.last_end = self._bench.ticker()
            self._told_nothing = False
            self._fill()
        self._changed()

    def _done(self, payload: Payload) -> None:
        with self.changed:
            self._finishing.pop(payload.job.key, None)
            self._draining = self._draining or payload.node_failed
        self._changed()

    def _changed(self) -> None:
        with self.changed:
            self.changed.notify_all()
        self._on_change()


def _need(payload: Payload) -> tuple[int, int]:
    return (payload.job.cores, payload.job.memory_mb)
