"""The checks that hold payloads to their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lodesman.pilot import protocol
from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import Stop, excess, next_check_s
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.session import ServerSession

# Processes are not looked for while no payload has run for this time.
_TOO_SHORT_S = 1.0


class Watch:
    """Holds payloads to their limits. Belongs to the main thread."""

    def __init__(self, context: PilotContext, reaper: Reaper, session: ServerSession) -> None:
        self._context = context
        self._reaper = reaper
        self._session = session
        self._next = 0.0

    def tick(self, payloads: Sequence[PayloadRun], now: float) -> float:
        """Returns when the next check is due."""
        if not payloads:
            # A payload that starts later is checked the usual time after its start.
            self._next = now + self._context.options.watch_s
            return self._next
        longest = max(0.0 if payload.began is None else now - payload.began for payload in payloads)
        if now >= self._next and longest < _TOO_SHORT_S:
            self._next = now + _TOO_SHORT_S - longest
        if now >= self._next:
            used, usual_s = self._reaper.measure(), self._context.options.watch_s
            waits = [usual_s]
            for payload in payloads:
                job = payload.job
                payload.usage = used.get(job.key, payload.usage)
                if not payload.stopping:
                    self._hold_to_limits(payload, now)
                waits.append(
                    next_check_s(payload.measured(now), job.limits, cores=job.cores, usual_s=usual_s)
                )
            self._next = now + min(waits)
        kills = [(payload.kill_at, payload) for payload in payloads if payload.kill_at is not None]
        for at, payload in kills:
            if now >= at:
                self._reaper.kill(payload.job.key)
        return min([self._next, *(at for at, _ in kills if at > now)])

    def _hold_to_limits(self, payload: PayloadRun, now: float) -> None:
        job, grace_s = payload.job, self._context.options.kill_grace_s
        if job.exclusive and now - self._session.last_contact >= 0.9 * self._session.lease_s:
            message = "The server did not answer for 0.9 of the lease, and the job must not run twice."
            payload.stop(Stop(protocol.PILOT_SHUTDOWN, message), grace_s=grace_s)
            return
        used = payload.measured(now)
        over = excess(used, job.limits)
        if over is not None and over.cause == protocol.MEMORY_LIMIT:
            # RSS counts pages often that processes share: what counts is each page once.
            held_mb = self._reaper.shared_mb(job.key)
            over = over if held_mb is None else excess(replace(used, rss_mb=held_mb), job.limits)
        if over is not None:
            self._context.log("limit-passed", job=str(job.key), cause=over.cause)
            # What harms others ends at once.
            payload.stop(
                over, grace_s=0.0 if over.cause in (protocol.MEMORY_LIMIT, protocol.OUTPUT_LIMIT) else grace_s
            )
