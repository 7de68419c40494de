"""The pilot as a whole: supervision step by step, and its end."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
from dataclasses import replace
from typing import Any

from lodesman.base.errors import Unavailable
from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import (
    DRAINED,
    ERROR,
    PILOT,
    SIGTERM,
    SLOT_END,
    Slot,
    Stop,
    contact_lost,
    why_leave,
)
from lodesman.pilot.features import Features
from lodesman.pilot.jobstatus import StatusWriter
from lodesman.pilot.launch import remove_tree
from lodesman.pilot.nursery import LOST
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import NODE_FAULT, PILOT_SHUTDOWN, JoinReply
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.roster import Roster
from lodesman.pilot.server_threads import Claimer, Heartbeat
from lodesman.pilot.session import JoinRefused, ServerSession, find_queue
from lodesman.pilot.slots import KnownSlot, Promises, SlotHabits
from lodesman.pilot.threads import run_within
from lodesman.pilot.trial import NodeTrial
from lodesman.pilot.watch import Watch

# Exit codes of the pilot's process.
EXIT_IN_ORDER = 0  # idle, drained, or SIGTERM: all results were handed in
EXIT_FAULT = 1  # a fault of the pilot itself
EXIT_USAGE = 2  # arguments, the pilot's file, or a working directory that cannot be used
EXIT_REFUSED = 3  # the server refused the join
EXIT_NO_SERVER = 4  # no server accepted the pilot within join_patience_s
EXIT_DISOWNED = 5  # the server does not know the pilot any more (its lease was lost)
EXIT_UNDELIVERED = 6  # the pilot ended with results that no server accepted
EXIT_NODE = 7  # the node is of no use to payloads

# A node of no use may keep its pilot for that long when this has left.
_TIDY_S = 10.0


class _Wake:
    """Any thread may end this wait, and a signal handler, which may not use an Event."""

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        self._rings.put(None)

    def wait(self, timeout: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._rings.get(timeout=max(0.0, timeout))
            while True:
                self._rings.get_nowait()


class PilotProcess:
    """Joins, runs jobs, leaves. `run` belongs to the main thread."""

    def __init__(self, context: PilotContext, *, node_fault: str = "") -> None:
        """`node_fault`: what is known to be wrong with the node; the pilot joins to report it."""
        self._context = context
        self._node_fault, self._pilot_fault = node_fault, ""
        self._options = context.options
        self._wake = _Wake()
        self._due = 0.0
        self._signals = 0  # how often SIGTERM came
        self._signals_seen = 0
        self._notices: list[float] = []  # in how many seconds the slot ends
        self._crashed = False
        self._why = ""
        self._deadline = float("inf")
        self._session = ServerSession(context, on_lost=self._wake.ring)
        self._features = context.features()
        self._promises = Promises()
        self._known = _slot_of(context, self._features)

    def run(self) -> int:
        """Returns the exit code."""
        context = self._context
        place = find_queue(context.pilot_file, context.environment)
        slot, nonce = self._known.slot, secrets.token_urlsafe(18)
        left = slot.life_left(context.ticker())
        node = replace(context.node, life_s=left, cpu_scaling_factor=slot.scaling)
        try:
            terms = self._session.join(node, nonce=nonce, wait=self._wait_to_join, queue=place)
        except JoinRefused as fault:
            context.log("join-refused", fault=str(fault))
            return EXIT_REFUSED
        except Unavailable as fault:
            context.log("no-server", fault=str(fault), **fault.data)
            return EXIT_IN_ORDER if self._signals else EXIT_NO_SERVER
        facts: dict[str, Any] = {} if place is None else {"queue": "/".join(place)}
        file = self._session.file
        if place is not None and file.submit_pools is not None:
            facts.update(submit_pools=len(file.submit_pools), pools_pass=file.pools_pass)
        if terms.bound_job:
            facts.update(bound_job=terms.bound_job)
        context.log("joined", pilot=terms.pilot, lease_s=terms.lease_s, **facts)
        if not self._try_node():
            return self._leave_node()
        self._assemble(terms)
        for target, arguments in (
            (self._claimer.run, ()),
            (self._heartbeat.run, ()),
            (self._outbox.run_uploads, (self._session,)),
            (self._outbox.run_reports, (self._session, self._roster.share)),
        ):
            threading.Thread(target=target, args=arguments, name=target.__qualname__, daemon=True).start()
        self._writer.start()
        try:
            while (code := self.tick(now := context.ticker())) is None:
                self._wake.wait(self._due - now)
            return self._end(code)
        finally:
            self._reaper.kill_rest()
            self._writer.leave()

    def terminate(self) -> None:
        """End in good order; called again: at once. Safe in a signal handler."""
        self._signals += 1
        self._wake.ring()

    def notice(self, seconds: float) -> None:
        """The batch system ends the slot then or a little later. Safe in a signal handler."""
        self._notices.append(seconds)
        self._wake.ring()

    def crash(self) -> None:
        """A thread of the pilot died: end everything."""
        self._crashed = True
        self._wake.ring()

    def tick(self, now: float) -> int | None:
        """An exit code when it is time to end."""
        self._follow_slot(now)
        self._decide_to_stop(now)
        if not self._roster.pilot_fault and self._reaper.is_lost():
            self._roster.drain(PILOT, fault=LOST)
        self._roster.return_overdue(now)
        payloads = self._roster.payloads()
        self._due = min(self._watch.tick(payloads, now), now + self._options.watch_s)
        with self._roster.changed:
            self._roster.changed.notify_all()  # the claim thread: time may have changed what it may ask for
        load = self._roster.load()
        if self._session.lost and not (load.running or load.backlog or load.unsent):
            return EXIT_DISOWNED  # until then the last attempts are reported (ADR 0022)
        if now > self._deadline:
            for payload in payloads:
                payload.abandoned = True
            self._why = self._why or ERROR
            return EXIT_DISOWNED if self._session.lost else EXIT_UNDELIVERED
        session, last_end = self._session, self._roster.last_end
        silence = {"last_contact": session.last_contact, "last_end": last_end, "lease_s": session.lease_s}
        if not load.running and load.unsent and contact_lost(now, **silence):
            self._why = ERROR
            return EXIT_UNDELIVERED
        leave = why_leave(self._roster.slot, load, now, idle_s=self._terms.idle_s)
        if not leave or load.held_up:
            # For a lease, or until the slot ends, the server may get space for what it has none for.
            over = now - last_end >= session.lease_s or self._roster.slot.seconds_left(now) <= 0
            self._outbox.hurry(on=bool(self._why or (leave and over)))
            return None
        return self._code_of(leave)

    def _code_of(self, leave: str) -> int:
        roster = self._roster
        if leave == DRAINED:
            leave = NODE_FAULT if roster.node_fault else ERROR if roster.pilot_fault else leave
        self._why = self._why or leave
        if self._why == NODE_FAULT:
            return EXIT_NODE
        return EXIT_FAULT if self._crashed or self._why == ERROR else EXIT_IN_ORDER

    def _wait_to_join(self, seconds: float) -> bool:
        self._wake.wait(seconds)
        return self._signals > 0

    def _decide_to_stop(self, now: float) -> None:
        signals = self._signals
        if signals > self._signals_seen:
            self._signals_seen = signals
            self._stop_all(SIGTERM, "The pilot was asked to end.", now, at_once=signals > 1)
        elif self._why:
            return
        elif self._crashed:
            self._stop_all(ERROR, "The pilot failed.", now)
        elif self._session.lost:
            self._stop_all(ERROR, "The server disowned the pilot.", now)
        elif self._is_due(now) and self._roster.payloads():
            self._stop_all(DRAINED, "The slot ends.", now)

    def _is_due(self, now: float) -> bool:
        promised, grace_s = self._promises.gone_by(), self._options.kill_grace_s
        over = promised is not None and self._context.clock() >= promised - grace_s
        return over or self._roster.slot.seconds_left(now) <= 0

    def _follow_slot(self, now: float) -> None:
        features, context = self._context.features(), self._context
        noticed = bool(self._notices)
        while self._notices:
            seconds = self._notices.pop()
            context.log("notice", seconds=seconds)
            context.read_features()  # the site may say more exactly when
            self._known.notice(seconds, context.clock())
        if noticed or features is not self._features:
            self._features = features
            if self._known.follow(features, clock=context.clock(), tick=now):
                slot = self._known.slot
                left = None if slot.ends is None else round(slot.ends - now)
                context.log("slot-end", seconds_left=left, announced=slot.shutdown is not None)
                self._roster.resize(slot)
        self._roster.drain(SLOT_END, holds=self._roster.slot.is_over(now))

    def _stop_all(self, why: str, message: str, now: float, *, at_once: bool = False) -> None:
        grace_s = 0.0 if at_once else self._options.kill_grace_s
        self._why = why
        self._deadline = now + grace_s + self._options.flush_s
        left = self._roster.slot.left_to_end(now)
        if left is not None and why == DRAINED:
            # Half of what is left is for the results, and all is handed in before the end.
            grace_s = max(0.0, min(grace_s, left / 2))
            self._deadline = min(self._deadline, now + max(left - 1.0, self._options.flush_s / 2))
        self._context.log("stopping", reason=why, message=message)
        self._claimer.close()
        self._outbox.hurry()
        self._roster.stop_all(Stop(PILOT_SHUTDOWN, message), grace_s=grace_s)

    def _try_node(self) -> bool:
        if not self._node_fault:
            context = self._context
            self._reaper = Reaper(context.nursery)
            trial = NodeTrial(context.directory, context.environment, self._reaper, folder=context.folder)
            fault = trial.fault()
            # A batch system signals all at once, the trial, too.
            self._node_fault, self._pilot_fault = ("", "") if self._signals else (fault, trial.pilot_fault)
            if self._node_fault or self._pilot_fault:
                self._reaper.kill_rest()
        return not (self._node_fault or self._pilot_fault)

    def _leave_node(self) -> int:
        is_nodes = bool(self._node_fault)
        code, reason = (EXIT_NODE, NODE_FAULT) if is_nodes else (EXIT_FAULT, ERROR)
        self._leave(code, reason, self._node_fault or self._pilot_fault)

        def tidy() -> None:
            remove_tree(self._context.directory / "work")
            with contextlib.suppress(OSError):  # an earlier pilot may have left results in it
                (self._context.directory / "outbox").rmdir()

        with contextlib.suppress(OSError):
            run_within(_TIDY_S, tidy)
        return code

    def _leave(self, code: int, reason: str, message: str) -> int:
        heard = self._session.leave(reason, message)
        self._context.log("left", reason=reason, message=message, heard=heard, exit_code=code)
        return code

    def _assemble(self, terms: JoinReply) -> None:
        context, session = self._context, self._session
        self._terms = terms
        self._outbox = Outbox(context)
        payloads = PayloadContext(
            context, self._reaper, self._outbox, lambda: session.client(rounds=10), terms.site
        )
        self._roster = Roster(self._known.slot, payloads, on_change=self._on_change, promises=self._promises)
        self._writer = StatusWriter(context, self._roster, self._promises)
        self._watch = Watch(context, self._reaper, session)
        self._claimer = Claimer(context, session, self._roster, idle_s=terms.idle_s)
        self._heartbeat = Heartbeat(context, session, self._roster, every_s=terms.heartbeat_s)

    def _on_change(self, goes_on: bool) -> None:
        self._writer.stir()
        if goes_on:
            return
        self._claimer.renew()
        self._heartbeat.stir()
        self._wake.ring()

    def _end(self, code: int) -> int:
        """Hand in what is left, also to a server that lost the pilot."""
        self._claimer.close()
        self._outbox.hurry()
        left = min(self._deadline - self._context.ticker(), self._options.flush_s)
        sent = code != EXIT_UNDELIVERED and self._outbox.wait_empty(max(0.0, left))
        if not sent and code != EXIT_DISOWNED:
            code = EXIT_UNDELIVERED
        self._writer.leave()
        self._heartbeat.close()
        self._outbox.close()
        if code != EXIT_DISOWNED:
            words = "" if code == EXIT_IN_ORDER else f"exit code {code}"
            faults = {NODE_FAULT: self._roster.node_fault, ERROR: self._roster.pilot_fault}
            self._leave(code, self._why, faults.get(self._why) or words)
        if sent:
            remove_tree(self._context.directory / "outbox")
        remove_tree(self._context.directory / "work")
        return code


def _slot_of(context: PilotContext, features: Features) -> KnownSlot:
    options, ignored = context.options, features.over(context.clock())
    if ignored is not None:
        context.log("shutdown-ignored", shutdowntime=ignored, why="It is before the start of this pilot.")
    slot = Slot(
        cores=context.node.cores,
        memory_mb=context.node.memory_mb,
        jobs_at_once=options.jobs_at_once or context.node.cores,
        scaling=options.cpu_scaling_factor,
    )
    habits = SlotHabits(options.life_seconds, options.retire_s, options.kill_grace_s, options.flush_s)
    return KnownSlot(slot, habits, features, clock=context.clock(), tick=context.ticker())
