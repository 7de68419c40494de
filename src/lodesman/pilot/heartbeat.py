"""The thread that reports the payloads' usage to the server and carries out its kill orders."""

from __future__ import annotations

import threading
from typing import Any, Callable

from lodesman.errors import LodesmanError, Unauthorized
from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import Stop
from lodesman.pilot.payload import PayloadRun, StreamVersion
from lodesman.pilot.protocol import KILLED, AttemptKey
from lodesman.pilot.roster import Roster
from lodesman.pilot.session import ServerSession

# While payloads run, users may want to see their output or to end them: both travel with heartbeats. Ten thousand busy
# pilots make under 700 small requests a second; a tail of 64 kB in each heartbeat is 4 kB/s per pilot.
_BUSY_S = 15.0


class Heartbeat:
    """Beats every `every_s` seconds, at least every 15 s while payloads run, and sooner, with jitter, after a failure."""

    def __init__(
        self,
        context: PilotContext,
        session: ServerSession,
        roster: Roster,
        *,
        every_s: float,
        on_kill: Callable[[AttemptKey, Stop], Any],
    ) -> None:
        self._context = context
        self._session = session
        self._roster = roster
        self._every_s = every_s
        self._on_kill = on_kill
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
                self._context.log("heartbeat-failed", fault=str(fault))

    def beat(self) -> None:
        """One beat. Raises what the session raises."""
        now = self._context.ticker()
        running = [(payload, *_usage_of(payload, now)) for payload in self._roster.payloads()]
        entries = [entry for _, entry, _ in running]
        keys = {payload.job.key for payload, _, _ in running}
        for key, ended in self._roster.unreported().items():
            if key not in keys:
                entries.append({**key._asdict(), **({"state": "completing"} if ended else {})})
        load = self._roster.load()
        state = "draining" if load.draining or load.stopping else "running" if load.running else "idle"
        reply = self._session.beat(self._client, entries, state)
        for payload, _, version in running:
            payload.tail_delivered(version)
        for key, reason in reply.kill.items():
            self._context.log("kill-ordered", job=str(key), reason=reason)
            self._on_kill(key, Stop(KILLED, reason or "The server ended the job."))
        if reply.drain:
            self._roster.drain()

    def stir(self) -> None:
        """Payloads may run now: the next beat is due soon."""
        self._stirred.set()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._stirred.set()
        self._client.abort()

    def _rest(self, failures: int) -> bool:
        """Wait until a beat is due; false when closed."""
        if failures:
            return not self._closed.wait(min(self._every_s, self._context.delay(failures)))
        self._stirred.clear()
        if self._closed.is_set():
            return False
        if not self._roster.payloads() and not self._stirred.wait(self._every_s):
            return True
        return not self._closed.wait(min(self._every_s, _BUSY_S))


def _usage_of(payload: PayloadRun, now: float) -> tuple[dict[str, Any], StreamVersion]:
    """The entry of a running payload, and the version of its tail."""
    measured = payload.measured(now)
    version, tail = payload.new_tail()
    entry = {
        **payload.job.key._asdict(),
        "cpu_seconds": round(measured.cpu_seconds, 3),
        "wall_seconds": round(measured.wall_seconds, 3),
        "rss_mb": round(measured.rss_mb, 1),
    }
    if tail is not None:
        entry["tail"] = tail
    return entry, version
