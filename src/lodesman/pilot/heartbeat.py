"""The thread that tells the server how the payloads are, and hears what it wants ended."""

from __future__ import annotations

import threading
from typing import Any, Callable

from lodesman.errors import LodesmanError, Unauthorized
from lodesman.pilot.outcome import Stop
from lodesman.pilot.payload import Payload
from lodesman.pilot.protocol import KILLED, Key, Orders, label
from lodesman.pilot.roster import Roster
from lodesman.pilot.session import Session

RUNNING, IDLE, DRAINING = "running", "idle", "draining"
COMPLETING = "completing"
# While payloads run, somebody may want to see their output or to end them: orders and output travel by beats. Ten
# thousand busy pilots are under 700 small requests a second; a tail of 64 kB in each beat is 4 kB/s of a pilot.
BUSY_S = 15.0


class Heartbeat:
    """Beats every `every_s` seconds, at least every BUSY_S while payloads run; sooner, with jitter, after a beat that
    nobody heard.
    """

    def __init__(
        self,
        session: Session,
        roster: Roster,
        *,
        every_s: float,
        ticker: Callable[[], float],
        on_kill: Callable[[Key, Stop], Any],
        log: Callable[..., Any],
    ) -> None:
        self._session = session
        self._roster = roster
        self._every_s = every_s
        self._ticker = ticker
        self._on_kill = on_kill
        self._log = log
        self._client = session.client()
        self._closed = threading.Event()
        self._stirred = threading.Event()

    def run(self) -> None:
        """The heartbeat thread."""
        failures = 0
        while self._rest(failures):
            try:
                self.beat()
                failures = 0
            except Unauthorized:
                return
            except LodesmanError as fault:
                failures += 1
                self._log("heartbeat-failed", fault=str(fault))

    def beat(self) -> None:
        """One beat. Raises what the session raises."""
        now = self._ticker()
        payloads = self._roster.payloads()
        told = [_entry(payload, now) for payload in payloads]
        keys = {payload.job.key for payload in payloads}
        rest = [_brief(key, ended) for key, ended in self._roster.unreported().items() if key not in keys]
        load = self._roster.load()
        state = DRAINING if load.draining or load.stopping else RUNNING if load.running else IDLE
        orders = self._session.beat(self._client, [entry for entry, _ in told] + rest, state)
        for payload, (_, stamp) in zip(payloads, told):
            payload.heard(stamp)
        self._obey(orders)

    def stir(self) -> None:
        """Something changed: payloads may run now, and the next beat is not far."""
        self._stirred.set()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._stirred.set()
        self._client.abort()

    def _rest(self, failures: int) -> bool:
        """Wait until a beat is due; false when closed."""
        if failures:
            return not self._closed.wait(min(self._every_s, self._session.delay(failures)))
        self._stirred.clear()
        if self._closed.is_set():
            return False
        if not self._roster.payloads() and not self._stirred.wait(self._every_s):
            return True
        return not self._closed.wait(min(self._every_s, BUSY_S))

    def _obey(self, orders: Orders) -> None:
        for key, reason in orders.kill:
            self._log("kill-ordered", job=label(key), reason=reason)
            self._on_kill(key, Stop(KILLED, reason or "The server ended the job."))
        if orders.drain:
            self._roster.drain()


def _brief(key: Key, ended: bool) -> dict[str, Any]:
    """An attempt that does not run: it waits for room, or its end and its output are on their way."""
    entry: dict[str, Any] = {"id": key[0], "attempt": key[1]}
    if ended:
        entry["state"] = COMPLETING
    return entry


def _entry(payload: Payload, now: float) -> tuple[dict[str, Any], Any]:
    measured = payload.measured(now)
    stamp, tail = payload.news()
    entry: dict[str, Any] = {
        "id": payload.job.id,
        "attempt": payload.job.attempt,
        "cpu_seconds": round(measured.cpu_seconds, 3),
        "wall_seconds": round(measured.wall_seconds, 3),
        "rss_mb": round(measured.rss_mb, 1),
    }
    if tail is not None:
        entry["tail"] = tail
    return entry, stamp
