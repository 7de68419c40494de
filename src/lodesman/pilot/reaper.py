"""Starts payloads, waits for them, and ends their trees. One lock keeps scans of the processes and new starts apart."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import Callable

from lodesman.pilot import processes
from lodesman.pilot.launch import Launch
from lodesman.pilot.processes import ZOMBIE, Account, ProcessId, ProcessStat
from lodesman.pilot.protocol import AttemptKey, PayloadUsage

# A tree that forks faster than it is scanned is stopped first; the number of scans is bounded.
_FREEZE_SCANS = 50
_CLEAR_WAIT_S = 0.005


class Reaper:
    """All processes of all payloads of this pilot. Every method may be called by any thread.

    `stamp` names this pilot in its payloads' environment. `adopts`: it is a subreaper, so their orphans become its own.
    """

    def __init__(self, stamp: str, *, adopts: bool) -> None:
        self._stamp = stamp
        self._adopts = adopts
        self._lock = threading.RLock()
        self._me = os.getpid()
        self._roots: dict[int, AttemptKey] = {}
        self._sessions: dict[int, AttemptKey] = {}
        self._accounts: dict[AttemptKey, Account] = {}
        self._known: dict[ProcessId, AttemptKey] = {}
        # Strays without a mark: the payloads that ran when each was first seen, and run still.
        self._suspects: dict[ProcessId, frozenset[AttemptKey]] = {}
        self._pause = threading.Event()

    def spawn(self, key: AttemptKey, launch: Launch) -> int:
        """Start a payload's first process in its own session; returns its pid. Raises OSError, ValueError."""
        outputs = list(launch.outputs.values())
        with self._lock:
            process = subprocess.Popen(
                launch.argv,
                env=dict(launch.environment),
                cwd=launch.directory,
                stdin=launch.stdin,
                stdout=outputs[0],
                stderr=outputs[-1],
                start_new_session=True,
            )
            # From here on only `wait` asks for it; subprocess must never.
            process.returncode = 0
            self._roots[process.pid] = key
            self._sessions[process.pid] = key
            self._accounts[key] = Account()
            return process.pid

    def wait(self, pid: int) -> int:
        """Wait for a payload's first process and book its CPU time; its exit code, or minus a signal."""
        # Left unreaped until the lock is held: a pid that was given back may be used again at once.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            _, status, used = os.wait4(pid, 0)
            key = self._roots.pop(pid)
            self._accounts[key].reaped(used.ru_utime + used.ru_stime)
        return os.waitstatus_to_exitcode(status)

    def measure(self) -> dict[AttemptKey, PayloadUsage]:
        """What each payload has used, as of now."""
        with self._lock:
            trees = self._trees()
            return {key: account.measure(trees.get(key, ())) for key, account in self._accounts.items()}

    def shared_mb(self, key: AttemptKey) -> float | None:
        """Memory of a tree where pages shared between its processes count once; None if unknown."""
        with self._lock:
            pids = [process.pid for process in self._trees().get(key, ()) if process.state != ZOMBIE]
        return processes.proportional_mb(pids)

    def signal(self, key: AttemptKey, number: int) -> None:
        """Send a signal to every process of a payload."""
        with self._lock:
            for process in self._trees().get(key, ()):
                _send(process, number)

    def kill(self, key: AttemptKey) -> None:
        """Stop a payload's tree until no new process turns up in it, then kill all of it."""
        with self._lock:
            stopped: set[ProcessId] = set()
            for _ in range(_FREEZE_SCANS):
                new = [process for process in self._trees().get(key, ()) if process.ident not in stopped]
                for process in new:
                    _send(process, signal.SIGSTOP)
                stopped.update(process.ident for process in new)
                if not new:
                    break
            self.signal(key, signal.SIGKILL)

    def clear(self, key: AttemptKey, give_up: Callable[[], bool]) -> bool:
        """Kill what is left of a tree whose first process has ended; true when all of it is gone."""
        while True:
            # Twice: a process that forks and ends may slip through the time that one scan takes.
            if self._is_gone(key) and self._is_gone(key):
                return True
            self.kill(key)
            if give_up():
                return False
            # Only a tree that outlives its first process gets here; a killed process needs a moment.
            self._pause.wait(_CLEAR_WAIT_S)

    def forget(self, key: AttemptKey) -> PayloadUsage:
        """Close the account of a payload whose tree is gone; returns what it used in all."""
        with self._lock:
            usage = self._accounts.pop(key).usage
            self._sessions = {number: owner for number, owner in self._sessions.items() if owner != key}
            self._known = {ident: owner for ident, owner in self._known.items() if owner != key}
            return usage

    def kill_rest(self) -> None:
        """At the very end: kill all descendants of this process, whatever payload they belong to."""
        for _ in range(_FREEZE_SCANS):
            table = processes.read_processes()
            left = [one for one in processes.descendants(table, self._me) if one.state != ZOMBIE]
            if not left:
                return
            for process in left:
                _send(process, signal.SIGKILL)
            self._pause.wait(_CLEAR_WAIT_S)

    def _is_gone(self, key: AttemptKey) -> bool:
        """Whether nothing is left of a tree whose first process has been waited for."""
        with self._lock:
            if self._adopts and processes.has_no_child_but(self._roots):
                # Whatever were left would descend from a child of this process.
                return True
            return all(process.state == ZOMBIE for process in self._trees().get(key, ()))

    def _trees(self) -> dict[AttemptKey, list[ProcessStat]]:
        """Scan all processes, wait for dead orphans, and sort the rest by payload."""
        table = processes.read_processes()
        owned = processes.owners(table, self._sessions, self._known, me=self._me)
        self._claim_strays(table, owned)
        self._known = {table[pid].ident: key for pid, key in owned.items()}
        trees: dict[AttemptKey, list[ProcessStat]] = {}
        for pid, key in owned.items():
            if not self._reap(table[pid], key):
                trees.setdefault(key, []).append(table[pid])
        return trees

    def _claim_strays(self, table: Mapping[int, ProcessStat], owned: dict[int, AttemptKey]) -> None:
        """Find the payloads of processes that neither descent nor session explains."""
        # Orphans are children of a pilot that adopts them; else they may be anywhere.
        parent = self._me if self._adopts else None
        unmarked = {}
        for process in table.values():
            if process.pid not in owned and parent in (None, process.ppid):
                key = processes.mark_in(processes.environment_of(process.pid), self._stamp)
                if key in self._accounts:
                    owned[process.pid] = key
                else:
                    unmarked[process.ident] = process
        if self._adopts:
            self._settle(unmarked, owned)

    def _settle(self, unmarked: Mapping[ProcessId, ProcessStat], owned: dict[int, AttemptKey]) -> None:
        """Own children without a mark: by elimination; what belongs to no living payload is killed."""
        running, kept = frozenset(self._accounts), {}
        for ident, process in unmarked.items():
            before = self._suspects.get(ident, running)
            still = before & running
            if len(still) == 1:
                owned[process.pid] = min(still)
            elif before and not still:
                _send(process, signal.SIGKILL)
            else:
                kept[ident] = still
                if process.state == ZOMBIE:
                    self._reap(process, None)
        self._suspects = kept

    def _reap(self, process: ProcessStat, key: AttemptKey | None) -> bool:
        """Wait for a dead orphan that came to this process, and book its CPU time."""
        if process.state != ZOMBIE or process.ppid != self._me or process.pid in self._roots:
            return False
        try:
            pid, _, used = os.wait4(process.pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid and key in self._accounts:
            self._accounts[key].reaped(used.ru_utime + used.ru_stime)
        return bool(pid)


def _send(process: ProcessStat, number: int) -> None:
    if process.state != ZOMBIE:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)
