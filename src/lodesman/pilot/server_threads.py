"""The threads that hear from the server: long polls for jobs, and heartbeats with orders to kill."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from lodesman.base.errors import LodesmanError, Unauthorized, Unavailable
from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import NODE, SERVER, ClaimRequest, Slot, Stop
from lodesman.pilot.protocol import KILLED, NOT_STARTED, AssignedJob, AttemptKey, ClaimReply, parse_key
from lodesman.pilot.roster import Roster
from lodesman.pilot.session import ServerSession
from lodesman.wire.client import Aborted, LocalFault

_LONG_PAUSE_S = 30.0
_SHORT_PAUSE_S = 1.0
# So long no jobs are claimed ahead after there were none: others may give some back.
_DRY_S = 0.25
# Output to show and orders to end travel with heartbeats. Ten thousand busy pilots make under 700 requests a second.
_BUSY_S = 15.0


# The server knows that an attempt has ended long before so many others have begun.
_REMEMBERED = 10_000


class _AttemptJournal:
    """On disk before the attempt starts, one `<id>.<attempt>` a line: none is ever run twice."""

    def __init__(self, file: Path) -> None:
        """An incomplete last line does not count."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(file, flags, 0o600)
        content = file.read_text("ascii", "replace")
        keys = [key for line in content.split("\n")[:-1] if (key := parse_key(line)) is not None]
        self._seen = dict.fromkeys(keys[-_REMEMBERED:])
        if content and not content.endswith("\n"):
            os.write(self._descriptor, b"\n")

    def take(self, jobs: Sequence[AssignedJob]) -> list[AssignedJob]:
        """Jobs never taken before. Raises OSError: none is taken."""
        new = {job.key: job for job in jobs if job.key not in self._seen}
        if new:
            os.write(self._descriptor, "".join(f"{key}\n" for key in new).encode())
            os.fdatasync(self._descriptor)
            self._seen.update(dict.fromkeys(new))
            for key in list(islice(self._seen, max(0, len(self._seen) - _REMEMBERED))):
                del self._seen[key]
        return list(new.values())


class Claimer:
    """Claims jobs, journals them, and hands them to the roster.

    A claim token is kept until its answer has come: a lost answer, or a poll that was ended because capacity became free, is
    asked for again.
    """

    def __init__(
        self, context: PilotContext, session: ServerSession, roster: Roster, *, idle_s: float
    ) -> None:
        self._context = context
        self._session = session
        self._roster = roster
        self._journal = _AttemptJournal(context.directory / "attempts.journal")
        self._idle_s = idle_s
        self._client = session.client()
        self._token = ""
        self._closed = False
        self._dry_until = context.ticker()  # until then no jobs are claimed ahead
        self._asked: ClaimRequest | None = None
        self._asked_of: Slot | None = None

    def run(self) -> None:
        """Ends after `close`, or when the server does not know the pilot."""
        failures = 0
        while not self._closed and not self._session.lost:
            request = self._next()
            if request is None:
                continue
            longest_s = self._claim(request)
            failures = failures + 1 if longest_s else 0
            if failures:
                pause_s = min(longest_s, self._context.delay(failures))
                with self._roster.changed:
                    self._roster.changed.wait_for(lambda: self._closed, pause_s)

    def renew(self) -> None:
        """End the poll if more, or nothing, would be asked for now."""
        with self._roster.changed:
            request = self._asked
            if request is None or not request.count:  # for jobs ahead alone, it is answered at once
                return
            now = self._next_request()
            moved = self._asked_of is not self._roster.slot
        # The same capacity, for a shorter time: the poll goes on, unless the slot's end is another one now.
        meanwhile: dict[str, Any] = {
            "norm_cpu_seconds": request.norm_cpu_seconds,
            "wait_s": request.wait_s,
            "last_end_s": request.last_end_s,
            "ahead": request.ahead,
        }
        if now is None or moved or replace(now, **meanwhile) != request:
            self._client.abort()

    def close(self) -> None:
        """Ask for nothing more; end the poll under way."""
        self._closed = True
        self._client.abort()
        with self._roster.changed:
            self._roster.changed.notify_all()

    def _next(self) -> ClaimRequest | None:
        with self._roster.changed:
            request = self._next_request()
            if request is None:
                self._roster.changed.wait()
                return None
            # With the lock held: a change after this ends the poll by `renew`.
            self._asked, self._asked_of = request, self._roster.slot
            if not self._closed:
                self._client.rearm()
            return request

    def _next_request(self) -> ClaimRequest | None:
        request = self._roster.next_claim(self._idle_s)
        is_early = request is not None and not request.count and self._context.ticker() < self._dry_until
        return None if is_early else request

    def _claim(self, request: ClaimRequest) -> float:
        """The longest pause in seconds before the next time."""
        self._token = self._token or secrets.token_urlsafe(18)
        began = self._context.ticker()
        try:
            reply = self._session.claim(self._client, request, self._token)
        except (Aborted, Unauthorized):
            return 0
        except (Unavailable, LocalFault) as fault:
            self._context.log("claim-failed", fault=str(fault))
            return _LONG_PAUSE_S
        except LodesmanError as fault:
            # The server has refused: the next claim is a new one.
            self._token = ""
            self._context.log("claim-refused", fault=str(fault))
            return _LONG_PAUSE_S
        finally:
            self._asked = None
        waited_s = self._context.ticker() - began
        if not self._take(reply):
            return _LONG_PAUSE_S
        if not request.count:
            self._dry_until = self._context.ticker() + (0.0 if reply.jobs else _DRY_S)
            return 0
        # A server that answers "no jobs" at once must not keep this thread busy.
        return _SHORT_PAUSE_S if not reply.jobs and waited_s < 0.5 * max(request.wait_s, 1.0) else 0

    def _take(self, reply: ClaimReply) -> bool:
        try:
            jobs = self._journal.take(reply.jobs)
        except OSError as fault:
            # Without an entry in the journal nothing is run; the same token brings it again.
            self._context.log("journal-failed", fault=str(fault))
            self._roster.drain(NODE, fault=f"{fault.strerror or fault} in {self._context.directory}")
            return False
        self._token = ""
        new = {job.key for job in jobs}
        for job in reply.jobs:
            if job.key not in new:
                self._context.log("attempt-seen-before", job=str(job.key))
        self._roster.admit(jobs)
        for key, why in reply.unreadable.items():
            self._roster.report_unstarted(key, NOT_STARTED, f"The pilot cannot read this job: {why}")
        self._roster.drain(SERVER, holds=reply.drain)
        return True


class Heartbeat:
    """Beats every `every_s` seconds, at least every 15 s while payloads run, and sooner, with jitter, after a failure."""

    def __init__(
        self, context: PilotContext, session: ServerSession, roster: Roster, *, every_s: float
    ) -> None:
        self._context = context
        self._session = session
        self._roster = roster
        self._every_s = every_s
        self._client = session.client()
        self._closed = threading.Event()
        self._stirred = threading.Event()

    def run(self) -> None:
        """The heartbeat thread."""
        failures = 0
        while self._wait_for_beat(failures):
            try:
                self.beat()
                failures = 0
            except Unauthorized:
                return
            except LodesmanError as fault:
                failures += 1
                self._context.log("heartbeat-failed", fault=str(fault))

    def beat(self) -> None:
        """Raises what the session raises."""
        now = self._context.ticker()
        entries: dict[AttemptKey, dict[str, Any]] = {}
        tails = {}
        for payload in self._roster.payloads():
            measured = payload.measured(now)
            tails[payload], tail = payload.new_tail()
            entries[payload.job.key] = {
                "cpu_seconds": round(measured.cpu_seconds, 3),
                "wall_seconds": round(measured.wall_seconds, 3),
                "rss_mb": round(measured.rss_mb, 1),
                **({} if tail is None else {"tail": tail}),
            }
        for key, ended in self._roster.unreported().items():
            entries.setdefault(key, {"state": "completing"} if ended else {})
        load = self._roster.load()
        state = "draining" if load.draining or load.stopping else "running" if load.running else "idle"
        jobs = [{**key._asdict(), **entry} for key, entry in entries.items()]
        reply = self._session.beat(self._client, jobs, state)
        for payload, version in tails.items():
            payload.delivered = version
        for key, reason in reply.kill.items():
            self._context.log("kill-ordered", job=str(key), reason=reason)
            self._roster.stop_one(key, Stop(KILLED, reason or "The server ended the job."))
        if reply.others_wait:
            self._roster.share()
        self._roster.drain(SERVER, holds=reply.drain)

    def stir(self) -> None:
        """The next beat is due soon: payloads may run now."""
        self._stirred.set()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._stirred.set()
        self._client.abort()

    def _wait_for_beat(self, failures: int) -> bool:
        if failures:
            return not self._closed.wait(min(self._every_s, self._context.delay(failures)))
        self._stirred.clear()
        if self._closed.is_set():
            return False
        if not self._roster.payloads() and not self._stirred.wait(self._every_s):
            return True
        return not self._closed.wait(min(self._every_s, _BUSY_S))
