"""One look at all payloads: who is over a limit, who had time enough to tidy up, when to look again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from lodesman.pilot.life import exclusive_must_end
from lodesman.pilot.limits import excess, next_look_s
from lodesman.pilot.outcome import Stop
from lodesman.pilot.payload import Payload
from lodesman.pilot.protocol import MEMORY_LIMIT, PILOT_SHUTDOWN
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.session import Session


class Watch:
    """Holds payloads to their limits. Used by the main thread only."""

    def __init__(
        self,
        reaper: Reaper,
        session: Session,
        *,
        scaling: float,
        usual_s: float,
        grace_s: float,
        log: Callable[..., Any],
    ) -> None:
        self._reaper = reaper
        self._session = session
        self._scaling = scaling
        self._usual_s = usual_s
        self._grace_s = grace_s
        self._log = log
        self._next = 0.0

    def tick(self, payloads: Sequence[Payload], now: float) -> float:
        """Look if it is time; returns when the next look is due."""
        if not payloads:
            # A payload that starts later is looked at a usual time after its start.
            self._next = now + self._usual_s
            return self._next
        if now >= self._next:
            self._next = now + self._look(payloads, now)
        for payload in payloads:
            if payload.kill_at is not None and now >= payload.kill_at:
                self._reaper.kill(payload.job.key)
        kills = [payload.kill_at for payload in payloads if payload.kill_at is not None]
        return min([self._next, *(at for at in kills if at > now)])

    def _look(self, payloads: Sequence[Payload], now: float) -> float:
        """Seconds until the next look."""
        used = self._reaper.look()
        waits = [self._usual_s]
        for payload in payloads:
            payload.usage = used.get(payload.job.key, payload.usage)
            if not payload.stopping:
                self._hold(payload, now)
            limits = payload.job.limits
            waits.append(
                next_look_s(payload.measured(now), limits, scaling=self._scaling, usual_s=self._usual_s)
            )
        return min(waits)

    def _hold(self, payload: Payload, now: float) -> None:
        contact = self._session.last_contact
        if payload.job.exclusive and exclusive_must_end(
            now=now, last_contact=contact, lease_s=self._session.lease_s
        ):
            message = "The server was not heard for 0.9 of the lease, and the job must not run twice."
            payload.stop(Stop(PILOT_SHUTDOWN, message), grace_s=self._grace_s)
            return
        over = excess(payload.measured(now), payload.job.limits, scaling=self._scaling)
        if over is None or (over.cause == MEMORY_LIMIT and self._is_shared(payload)):
            return
        self._log("limit-passed", job=payload.job.label, cause=over.cause)
        payload.stop(Stop(over.cause, over.message), grace_s=0.0 if over.at_once else self._grace_s)

    def _is_shared(self, payload: Payload) -> bool:
        """RSS counts pages that processes share once for each of them: look closer before a kill."""
        held_mb = self._reaper.shared_mb(payload.job.key)
        return held_mb is not None and held_mb <= payload.job.limits.memory_mb
