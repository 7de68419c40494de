"""The thread that asks for jobs: one long poll at a time, asked anew whenever room becomes free."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Callable

from lodesman.client import Aborted
from lodesman.errors import LodesmanError, Unauthorized, Unavailable
from lodesman.pilot.journal import Journal
from lodesman.pilot.life import Ask, Pause, what_to_ask
from lodesman.pilot.protocol import Broken, Claim, label
from lodesman.pilot.roster import Roster
from lodesman.pilot.session import Session

LONGEST_PAUSE_S = 30.0
SHORT_PAUSE_S = 1.0


class Claimer:
    """Asks, writes down what it got, and hands it to the roster.

    A claim token is kept until its answer has come: an answer lost on the way is asked for again, and a
    poll that was ended because room became free is asked again with more room.
    """

    def __init__(
        self,
        session: Session,
        roster: Roster,
        journal: Journal,
        *,
        idle_s: float,
        ticker: Callable[[], float],
        on_broken: Callable[[Sequence[Broken]], Any],
        log: Callable[..., Any],
    ) -> None:
        self._session = session
        self._roster = roster
        self._journal = journal
        self._idle_s = idle_s
        self._ticker = ticker
        self._on_broken = on_broken
        self._log = log
        self._client = session.client()
        self._token = ""
        self._closed = False
        self._asked: Ask | None = None
        self._longest_s = LONGEST_PAUSE_S

    def run(self) -> None:
        """The claim thread; ends after `close`, or when the server does not know the pilot any more."""
        failures = 0
        while not self._closed and not self._session.lost:
            ask = self._next()
            if ask is None:
                continue
            failures = 0 if self._claim(ask) else failures + 1
            if failures and not self._closed:
                with self._roster.changed:
                    self._roster.changed.wait(min(self._longest_s, self._session.delay(failures)))

    def renew(self) -> None:
        """Something changed: if more, or nothing, would be asked for now, end the poll under way."""
        with self._roster.changed:
            asked = self._asked
            if asked is None:
                return
            now = what_to_ask(self._roster.slot, self._roster.load(), self._ticker(), idle_s=self._idle_s)
            other = isinstance(now, Pause) or _offer(now) != _offer(asked)
        if other:
            self._client.abort()

    def close(self) -> None:
        """Ask for nothing more; the poll under way is ended."""
        self._closed = True
        self._client.abort()
        with self._roster.changed:
            self._roster.changed.notify_all()

    def _next(self) -> Ask | None:
        """Wait until there is room; None when it has to be looked at again."""
        with self._roster.changed:
            load = self._roster.load()
            ask = what_to_ask(self._roster.slot, load, self._ticker(), idle_s=self._idle_s)
            if isinstance(ask, Pause):
                self._roster.changed.wait()
                return None
            # With the lock held: whoever makes room after this ends the poll by `renew`.
            self._asked = ask
            if not self._closed:
                self._client.rearm()
            return ask

    def _claim(self, ask: Ask) -> bool:
        """Ask once; false if it makes sense to wait before the next time."""
        self._token = self._token or secrets.token_urlsafe(18)
        self._longest_s = LONGEST_PAUSE_S
        began = self._ticker()
        try:
            claim = self._session.claim(self._client, ask, self._token)
        except (Aborted, Unauthorized):
            return True
        except Unavailable as fault:
            self._log("claim-failed", fault=str(fault))
            return False
        except LodesmanError as fault:
            # The answer came, and is no: the next question is a new one.
            self._token = ""
            self._log("claim-refused", fault=str(fault))
            return False
        finally:
            self._asked = None
        if not claim.jobs and self._ticker() - began < 0.5 * max(ask.wait_s, 1.0):
            # An answer that did not wait must not make this thread turn round and round.
            self._longest_s = SHORT_PAUSE_S
            self._take(claim)
            return False
        return self._take(claim)

    def _take(self, claim: Claim) -> bool:
        try:
            jobs = self._journal.take(claim.jobs)
        except OSError as fault:
            # What cannot be written down is not run; the same token brings it again.
            self._log("journal-failed", fault=str(fault))
            self._roster.drain()
            return False
        self._token = ""
        for job in claim.jobs:
            if job not in jobs:
                self._log("attempt-seen-before", job=label(job.key))
        self._roster.admit(jobs)
        if claim.broken:
            self._on_broken(claim.broken)
        if claim.drain:
            self._roster.drain()
        return True


def _offer(ask: Ask) -> tuple[int, int, int]:
    return (ask.count, ask.cores, ask.memory_mb)
