"""The pilot as a whole: what it is made of, one step of its supervision, and how it ends."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable

from lodesman.errors import Unavailable
from lodesman.pilot import protocol
from lodesman.pilot.batch_queue import BatchQueue, find_queue
from lodesman.pilot.claims import Claimer
from lodesman.pilot.features import Features
from lodesman.pilot.heartbeat import Heartbeat
from lodesman.pilot.journal import Journal
from lodesman.pilot.launch import Outside
from lodesman.pilot.life import DRAINED, LOST, SIGTERM, Slot, contact_lost, reserve_s, why_leave
from lodesman.pilot.node import Node
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.outcome import Stop
from lodesman.pilot.payload import Bench, remove_tree
from lodesman.pilot.pilot_file import PilotFile
from lodesman.pilot.protocol import Broken, Key, Report
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.roster import Roster
from lodesman.pilot.session import PATIENT, Chance, JoinRefused, Session, Terms
from lodesman.pilot.wake import Wake
from lodesman.pilot.watch import Watch

# Exit codes of the pilot's process.
EXIT_IN_ORDER = 0  # idle, drained, or SIGTERM: all results were handed in
EXIT_FAULT = 1  # a fault of the pilot itself
EXIT_USAGE = 2  # arguments, the pilot's file, or a working directory that cannot be used
EXIT_REFUSED = 3  # the server refused the join
EXIT_NO_SERVER = 4  # no server took the pilot in all its patience
EXIT_DISOWNED = 5  # the server does not know the pilot any more (its lease was lost)
EXIT_UNDELIVERED = 6  # the pilot ended with results that no server took


@dataclass(frozen=True)
class Surroundings:
    """What the pilot finds around it. `clock` gives UNIX seconds, `ticker` monotonic ones."""

    directory: Path
    environment: Mapping[str, str]
    node: Node
    features: Features
    log: Callable[..., Any]
    rng: random.Random
    adopts: bool
    clock: Callable[[], float] = time.time
    ticker: Callable[[], float] = time.monotonic


class Pilot:
    """Joins, runs jobs, leaves. `run` belongs to the main thread; `terminate` may come from a signal."""

    # These come with the join.
    _terms: Terms
    _reaper: Reaper
    _journal: Journal
    _outbox: Outbox
    _roster: Roster
    _claimer: Claimer
    _heartbeat: Heartbeat
    _watch: Watch

    def __init__(self, papers: PilotFile, around: Surroundings) -> None:
        self._papers = papers
        self._around = around
        self._options = papers.options
        self._wake = Wake()
        self._due = 0.0
        self._terms_asked = 0  # how often SIGTERM came
        self._terms_seen = 0
        self._crashed = False
        self._why = ""
        self._deadline = float("inf")
        self._session = Session(papers, Chance(around.ticker, around.rng), on_lost=self._wake.ring)
        self._slot = slot_for(papers, around)

    def run(self) -> int:
        """Live a pilot's life; returns the exit code."""
        try:
            nonce = secrets.token_urlsafe(18)
            queue = find_queue(self._papers, self._around.environment)
            terms = self._session.join(self._node(), nonce=nonce, wait=self._wait_to_join, queue=queue)
        except JoinRefused as fault:
            self._around.log("join-refused", fault=str(fault))
            return EXIT_REFUSED
        except Unavailable as fault:
            self._around.log("no-server", fault=str(fault), **fault.data)
            return EXIT_IN_ORDER if self._terms_asked else EXIT_NO_SERVER
        self._around.log("joined", pilot=terms.pilot, lease_s=terms.lease_s, **_where(queue, self._session))
        self._assemble(terms)
        for target in self._threads():
            threading.Thread(target=target, name=target.__qualname__, daemon=True).start()
        try:
            return self._end(self._supervise())
        finally:
            self._reaper.kill_rest()

    def _node(self) -> Node:
        """The node with what is left of the pilot's life."""
        left = self._slot.life_left(self._around.ticker())
        return replace(self._around.node, life_s=left, cpu_scaling_factor=self._slot.scaling)

    def _supervise(self) -> int:
        while True:
            now = self._around.ticker()
            code = self.tick(now)
            if code is not None:
                return code
            self._wake.wait(self._due - now)

    def terminate(self) -> None:
        """End in good order; called again: at once. Safe in a signal handler."""
        self._terms_asked += 1
        self._wake.ring()

    def crash(self) -> None:
        """A thread of the pilot died of a fault: end everything."""
        self._crashed = True
        self._wake.ring()

    def tick(self, now: float) -> int | None:
        """One step of supervision; returns an exit code when it is time to end."""
        self._decide_to_stop(now)
        payloads = self._roster.payloads()
        self._due = min(self._watch.tick(payloads, now), now + self._options.watch_s)
        with self._roster.changed:
            self._roster.changed.notify_all()  # the claim thread: time may have changed what it may ask for
        load = self._roster.load()
        if self._session.lost and not (load.running or load.backlog or load.unsent):
            return EXIT_DISOWNED  # until then the server is told how its last attempts ended (ADR 0022)
        if now > self._deadline:
            for payload in payloads:
                payload.abandon()
            self._why = self._why or LOST
            return EXIT_DISOWNED if self._session.lost else EXIT_UNDELIVERED
        if not load.running and load.unsent and self._is_out_of_contact(now):
            self._why = LOST
            return EXIT_UNDELIVERED
        leave = why_leave(self._slot, load, now, idle_s=self._terms.idle_s)
        if not leave:
            return None
        self._why = self._why or leave
        return EXIT_FAULT if self._crashed else EXIT_IN_ORDER

    def _decide_to_stop(self, now: float) -> None:
        asked = self._terms_asked
        if asked > self._terms_seen:
            grace_s = self._options.kill_grace_s if asked == 1 else 0.0
            self._stop_all(SIGTERM, "The pilot was asked to end.", grace_s=grace_s, now=now)
            self._terms_seen = asked
        elif self._why:
            return
        elif self._crashed:
            self._stop_all(LOST, "The pilot failed.", grace_s=self._options.kill_grace_s, now=now)
        elif self._session.lost:
            self._stop_all(
                LOST, "The server disowned the pilot.", grace_s=self._options.kill_grace_s, now=now
            )
        elif self._slot.seconds_left(now) <= 0 and self._roster.payloads():
            self._stop_all(DRAINED, "The slot ends.", grace_s=self._options.kill_grace_s, now=now)

    def _stop_all(self, why: str, message: str, *, grace_s: float, now: float) -> None:
        self._why = why
        self._deadline = now + grace_s + self._options.flush_s
        self._around.log("stopping", reason=why, message=message)
        self._claimer.close()
        self._outbox.hurry()
        for job in self._roster.stop_all(Stop(protocol.PILOT_SHUTDOWN, message), grace_s=grace_s):
            self._report_unstarted(job.key, protocol.RELEASED, protocol.PILOT_SHUTDOWN, message)

    def _kill_one(self, key: Key, stop: Stop) -> None:
        job = self._roster.stop_one(key, stop, grace_s=self._options.kill_grace_s)
        if job is not None:
            self._report_unstarted(key, protocol.FAILED, stop.cause, stop.message)
        self._wake.ring()

    def _report_broken(self, jobs: Iterable[Broken]) -> None:
        for job in jobs:
            message = f"The pilot cannot read this job: {job.message}"
            self._report_unstarted(job.key, protocol.FAILED, protocol.NOT_STARTED, message)

    def _report_unstarted(self, key: Key, state: str, cause: str, message: str) -> None:
        report = Report(key, state, cause, message, ended=self._around.clock())
        self._outbox.put(report, None)

    def _is_out_of_contact(self, now: float) -> bool:
        return contact_lost(
            self._slot,
            now,
            last_contact=self._session.last_contact,
            last_end=self._roster.last_end,
            lease_s=self._session.lease_s,
        )

    def _wait_to_join(self, seconds: float) -> bool:
        self._wake.wait(seconds)
        return self._terms_asked > 0

    def _assemble(self, terms: Terms) -> None:
        around, options, session = self._around, self._options, self._session
        self._terms = terms
        self._reaper = Reaper(self._papers.stamp, adopts=around.adopts)
        self._journal = Journal(around.directory / "attempts.journal")
        self._outbox = Outbox(around.directory / "outbox", delay=session.delay, log=around.log)
        bench = Bench(
            directory=around.directory,
            outside=Outside(self._papers.stamp, around.environment, options.cpu_scaling_factor),
            reaper=self._reaper,
            outbox=self._outbox,
            new_client=lambda: session.client(retry=PATIENT),
            clock=around.clock,
            ticker=around.ticker,
            log=around.log,
        )
        self._roster = Roster(self._slot, bench, on_change=self._on_change)
        self._claimer = Claimer(
            session,
            self._roster,
            self._journal,
            idle_s=terms.idle_s,
            ticker=around.ticker,
            on_broken=self._report_broken,
            log=around.log,
        )
        self._heartbeat = Heartbeat(
            session,
            self._roster,
            every_s=terms.heartbeat_s,
            ticker=around.ticker,
            on_kill=self._kill_one,
            log=around.log,
        )
        self._watch = Watch(
            self._reaper,
            session,
            scaling=options.cpu_scaling_factor,
            usual_s=options.watch_s,
            grace_s=options.kill_grace_s,
            log=around.log,
        )

    def _threads(self) -> Sequence[Callable[[], None]]:
        def uploads() -> None:
            client = self._session.client()
            upload = self._session.upload
            self._outbox.run_uploads(lambda path, file, sha256: upload(client, path, file, sha256))

        def reports() -> None:
            client = self._session.client()
            self._outbox.run_reports(lambda records: self._session.report(client, records))

        return (self._claimer.run, self._heartbeat.run, uploads, reports)

    def _on_change(self) -> None:
        self._claimer.renew()
        self._heartbeat.stir()
        self._wake.ring()

    def _end(self, code: int) -> int:
        """Leave: hand in what is left (a server takes the last results of a pilot that it lost), say goodbye, tidy up."""
        self._claimer.close()
        self._outbox.hurry()
        left = min(self._deadline - self._around.ticker(), self._options.flush_s)
        sent = code != EXIT_UNDELIVERED and self._outbox.wait_empty(max(0.0, left))
        if not sent and code != EXIT_DISOWNED:
            code = EXIT_UNDELIVERED
        self._heartbeat.close()
        self._outbox.close()
        if code != EXIT_DISOWNED:
            heard = self._session.leave(self._why, "" if code == EXIT_IN_ORDER else f"exit code {code}")
            self._around.log("left", reason=self._why, heard=heard, exit_code=code)
        self._journal.close()
        if sent:
            remove_tree(self._around.directory / "outbox")
        remove_tree(self._around.directory / "work")
        return code


def _where(queue: BatchQueue | None, session: Session) -> dict[str, Any]:
    """Where it runs, for the log."""
    if queue is None:
        return {}
    served = session.served
    known = {} if served is None else {"submit_pools": len(served.pools), "pools_pass": served.number}
    return {"queue": "/".join(queue), **known}


def slot_for(papers: PilotFile, around: Surroundings) -> Slot:
    """The slot as the file and the site describe it; whichever end comes first counts."""
    options, now = papers.options, around.ticker()
    lives = [float(options.life_seconds)] if options.life_seconds else []
    ends = around.features.ends(around.clock())
    if ends is not None:
        lives.append(ends - around.clock())
    life_s = min(lives) if lives else None
    return Slot(
        cores=around.node.cores,
        memory_mb=around.node.memory_mb,
        jobs_at_once=options.jobs_at_once or around.node.cores,
        scaling=options.cpu_scaling_factor,
        ends=None if life_s is None else now + life_s,
        reserve_s=0.0 if life_s is None else reserve_s(life_s),
    )
