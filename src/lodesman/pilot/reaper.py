"""Starts payloads, waits for them, and ends their trees. One lock keeps scans and new starts apart.

A tree is what descends from its warden. A child of the pilot that is neither warden nor nursery has lost its warden: it is
killed, charged to no payload, and until it is gone no payload's end is certain.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Mapping
from typing import Callable

from lodesman.base import processes
from lodesman.base.processes import Process
from lodesman.pilot import usage
from lodesman.pilot.nursery import Nursery, PilotFault
from lodesman.pilot.protocol import AttemptKey, PayloadUsage
from lodesman.pilot.usage import Account
from lodesman.pilot.warden import End, Launch, NeverStarted, Warden, WardenFrame

# A tree that forks faster than it is scanned is stopped first; the number of scans is bounded.
_FREEZE_SCANS = 50
_CLEAR_WAIT_S = 0.0005
_LONGEST_CLEAR_WAIT_S = 0.02
_REST_S = 1.0


class Reaper:
    """All payloads' processes; the pilot is a subreaper. Any thread may call it."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._lock = threading.RLock()
        self._me = os.getpid()
        self._wardens: dict[AttemptKey, Warden] = {}  # those that have a payload, or will have one
        self._accounts: dict[AttemptKey, Account] = {}
        self._pause = threading.Event()
        with contextlib.suppress(OSError):  # the first payload will notice
            nursery.order()

    def take(self, key: AttemptKey, frame: WardenFrame) -> str:
        """Give a payload its warden; returns the folder for its things, '' for any. Raises NodeFault, PilotFault."""
        with self._lock:
            try:
                warden = self._nursery.take(frame)
            except PilotFault:
                raise
            except OSError as fault:
                raise NodeFault(fault.errno, fault.strerror) from None
            self._wardens[key] = warden
        return warden.folder

    def give(self, key: AttemptKey) -> None:
        """The payload was not started, or is gone with its folder: the warden may take the next."""
        with self._lock:
            warden = self._wardens.pop(key, None)
            if warden is not None:
                self._nursery.give(warden)

    def spawn(self, key: AttemptKey, launch: Launch) -> None:
        """Start a payload's first process. Raises NodeFault or PilotFault without a warden, NeverStarted, OSError if it
        cannot be executed.
        """
        with self._lock:
            if key not in self._wardens:
                self.take(key, launch.frame)
            warden, self._accounts[key] = self._wardens[key], Account()
        try:
            warden.start(launch)
        except (OSError, NeverStarted):
            with self._lock:
                _kill(warden.pid)
                os.waitpid(warden.pid, 0)
                self._wardens.pop(key).close()
                self.forget(key)
            raise
        finally:
            with self._lock, contextlib.suppress(OSError):  # the next payload will notice
                self._nursery.order()

    def is_lost(self) -> bool:
        """No more payloads can be started, and the node is not to blame."""
        with self._lock:
            return self._nursery.is_lost()

    def wait(self, key: AttemptKey) -> int | None:
        """Exit code, or minus a signal; None if the warden was killed."""
        end = self._wardens[key].wait()
        if end is None:
            return None
        if end.is_gone:
            self._close(key, end)
        return os.waitstatus_to_exitcode(end.status)

    def measure(self) -> dict[AttemptKey, PayloadUsage]:
        """What each payload has used so far."""
        with self._lock:
            trees = self._scan_trees()
            return {key: account.measure(trees.get(key, ())) for key, account in self._accounts.items()}

    def shared_mb(self, key: AttemptKey) -> float | None:
        """Shared pages counted once; None if unknown."""
        with self._lock:
            pids = [process.pid for process in self._members(key) if not process.is_dead]
        return usage.proportional_mb(pids)

    def signal(self, key: AttemptKey, number: int) -> None:
        """Signal every process of a payload."""
        with self._lock:
            for process in self._members(key):
                processes.signal_process(process, number)

    def kill(self, key: AttemptKey) -> None:
        """Kill a payload's tree; without a PID namespace it is stopped before."""
        with self._lock:
            warden = self._wardens.get(key)
            if warden is not None and warden.confined:
                warden.kill()
                return
            for process in processes.freeze(lambda: self._members(key), _FREEZE_SCANS) + self._members(key):
                processes.signal_process(process, signal.SIGKILL)

    def clear(self, key: AttemptKey, give_up: Callable[[], bool]) -> bool:
        """Kill what is left after the first process has ended; true when all is gone."""
        pause = _CLEAR_WAIT_S
        while not self._is_gone(key, pause):
            if pause > _CLEAR_WAIT_S:  # a warden without descendants says so by itself
                self.kill(key)
            if give_up():
                return False
            pause = min(2 * pause, _LONGEST_CLEAR_WAIT_S)
        return True

    def forget(self, key: AttemptKey) -> PayloadUsage:
        """Close the account of a tree that is gone; returns all that it used."""
        with self._lock:
            return self._accounts.pop(key).usage

    def kill_rest(self) -> None:
        """At the very end: kill all descendants of this process."""

        def find() -> list[Process]:
            below = processes.descendants(processes.read_processes(), [self._me])
            return [process for process in below if not process.is_dead]

        processes.kill_family(find, _REST_S)

    def _is_gone(self, key: AttemptKey, pause: float) -> bool:
        """The warden says so, or has ended, and no stray may have been its own."""
        warden = self._wardens.get(key)
        if warden is not None and not self._accounts[key].is_closed:
            end = warden.wait_gone(pause)
            if end is not None and end.is_gone:
                self._close(key, end)
        if self._accounts[key].is_closed:
            return True
        with self._lock:
            is_gone = self._has_ended(key, warden) and (
                self._has_no_strays() or not self._bury_strays(processes.read_processes())
            )
        if not is_gone:
            self._pause.wait(pause)  # a killed process needs a moment
        return is_gone

    def _has_ended(self, key: AttemptKey, warden: Warden | None) -> bool:
        if warden is None:
            return True
        pid, _, used = os.wait4(warden.pid, os.WNOHANG)
        if pid:
            self._accounts[key].reaped(used.ru_utime + used.ru_stime)
            self._wardens.pop(key).close()
        return pid != 0

    def _close(self, key: AttemptKey, end: End) -> None:
        with self._lock:
            self._accounts[key].close(end.cpu_seconds)

    def _own_children(self) -> set[int]:
        return {warden.pid for warden in self._wardens.values()} | self._nursery.pids()

    def _has_no_strays(self) -> bool:
        """False also where only a scan of all processes can find out."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        children = processes.read_children()
        return children is not None and self._own_children().issuperset(children)

    def _members(self, key: AttemptKey) -> list[Process]:
        warden = self._wardens.get(key)
        return [] if warden is None else processes.descendants(processes.read_processes(), [warden.pid])

    def _scan_trees(self) -> dict[AttemptKey, list[Process]]:
        self._own_children()  # a warden that is being made must be known before it is seen
        table = processes.read_processes()
        self._bury_strays(table)
        trees = {}
        for key, warden in self._wardens.items():
            process = table.get(warden.pid)
            own = [] if process is None else [usage.for_children(process, warden.earlier_seconds)]
            trees[key] = own + processes.descendants(table, [warden.pid])
        return trees

    def _bury_strays(self, table: Mapping[int, Process]) -> bool:
        own, left = self._own_children(), False
        for process in table.values():
            if process.parent == self._me and process.pid not in own:
                _kill(process.pid)
                with contextlib.suppress(ChildProcessError):
                    left = os.waitpid(process.pid, os.WNOHANG)[0] == 0 or left
        return left


class NodeFault(OSError):
    """The node cannot start payloads."""


def _kill(child: int) -> None:
    """It has not been waited for, so that its number is its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGKILL)
