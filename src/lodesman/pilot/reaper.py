"""Starts payloads, waits for them, and ends their trees: the door to processes.

Payloads are started without preexec_fn, so that a large pilot does not pay for a fork. One lock keeps a
picture of the processes, what is booked from it, and the start of new ones apart.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from lodesman.pilot import proc
from lodesman.pilot.protocol import Key
from lodesman.pilot.tree import (
    ZOMBIE,
    Account,
    Ident,
    Process,
    Suspicion,
    Usage,
    descendants,
    owners,
    strays,
)

# A tree that forks faster than it is looked at is stopped first; so many looks at most.
_FREEZE_LOOKS = 50
_CLEAR_WAIT_S = 0.005


@dataclass(frozen=True)
class Exit:
    """How the first process ended: by an exit code or by a signal."""

    code: int | None
    signal: int | None


@dataclass(frozen=True)
class Streams:
    """Open file descriptors for the standard streams of a payload."""

    stdin: int
    stdout: int
    stderr: int


class Reaper:
    """All processes of all payloads of this pilot. Every method may be called by any thread.

    `stamp` names this pilot in the environment of its payloads. `adopts`: this process is a subreaper, so
    what a payload leaves behind becomes its own child.
    """

    def __init__(self, stamp: str, *, adopts: bool) -> None:
        self._stamp = stamp
        self._adopts = adopts
        self._lock = threading.RLock()
        self._me = os.getpid()
        self._roots: dict[int, Key] = {}
        self._sessions: dict[int, Key] = {}
        self._accounts: dict[Key, Account] = {}
        self._known: dict[Ident, Key] = {}
        self._suspicion = Suspicion()
        self._strangers: set[Ident] = set()
        self._pause = threading.Event()

    def spawn(
        self, key: Key, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, streams: Streams
    ) -> int:
        """Start a payload's first process in its own session; returns its pid. Raises OSError, ValueError."""
        with self._lock:
            process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=cwd,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                start_new_session=True,
            )
            # From here on only `wait` asks for it; subprocess must never.
            process.returncode = 0
            self._roots[process.pid] = key
            self._sessions[process.pid] = key
            self._accounts[key] = Account(
                ticks_per_second=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE")
            )
            return process.pid

    def wait(self, pid: int) -> Exit:
        """Wait for a payload's first process; its CPU time is booked."""
        # Left as it is until the lock is held: a pid that was given back may be used again at once.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            _, status, used = os.wait4(pid, 0)
            key = self._roots.pop(pid)
            self._accounts[key].reaped(used.ru_utime + used.ru_stime)
        if os.WIFSIGNALED(status):
            return Exit(None, os.WTERMSIG(status))
        return Exit(os.WEXITSTATUS(status), None)

    def look(self) -> dict[Key, Usage]:
        """What each payload has used, as of now."""
        with self._lock:
            trees = self._trees()
            return {key: account.look(trees.get(key, ())) for key, account in self._accounts.items()}

    def shared_mb(self, key: Key) -> float | None:
        """Memory of a tree where pages shared between its processes count once; None if unknown."""
        with self._lock:
            pids = [process.pid for process in self._trees().get(key, ()) if process.state != ZOMBIE]
        return proc.proportional_mb(pids)

    def signal(self, key: Key, number: int) -> None:
        """Send a signal to every process of a payload."""
        with self._lock:
            for process in self._trees().get(key, ()):
                _send(process, number)

    def kill(self, key: Key) -> None:
        """Stop a payload's tree until no new process turns up in it, then kill all of it."""
        with self._lock:
            stopped: set[Ident] = set()
            for _ in range(_FREEZE_LOOKS):
                new = [process for process in self._trees().get(key, ()) if process.ident not in stopped]
                for process in new:
                    _send(process, signal.SIGSTOP)
                stopped.update(process.ident for process in new)
                if not new:
                    break
            for process in self._trees().get(key, ()):
                _send(process, signal.SIGKILL)

    def clear(self, key: Key, give_up: Callable[[], bool]) -> bool:
        """Kill what is left of a tree whose first process has ended; true when all of it is gone."""
        while True:
            # Two looks: a process that forks and ends may slip through the time that one look takes.
            if self._is_gone(key) and self._is_gone(key):
                return True
            self.kill(key)
            if give_up():
                return False
            # Only a tree that outlives its first process gets here; a killed process needs a moment.
            self._pause.wait(_CLEAR_WAIT_S)

    def forget(self, key: Key) -> Usage:
        """Close the account of a payload whose tree is gone; returns what it used in all."""
        with self._lock:
            usage = self._accounts.pop(key).usage
            self._sessions = {number: owner for number, owner in self._sessions.items() if owner != key}
            self._known = {ident: owner for ident, owner in self._known.items() if owner != key}
            return usage

    def kill_rest(self) -> None:
        """At the very end: nothing that descends from this process stays, whosever it was."""
        for _ in range(_FREEZE_LOOKS):
            table = proc.processes()
            left = [process for process in descendants(table, self._me) if process.state != ZOMBIE]
            if not left:
                return
            for process in left:
                _send(process, signal.SIGKILL)
            self._pause.wait(_CLEAR_WAIT_S)

    def _is_gone(self, key: Key) -> bool:
        """Whether nothing is left of a tree whose first process has been waited for."""
        with self._lock:
            if self._adopts and proc.has_no_child_but(self._roots):
                # Whatever were left would descend from a child of this process.
                return True
            return all(process.state == ZOMBIE for process in self._trees().get(key, ()))

    def _trees(self) -> dict[Key, list[Process]]:
        """Look at all processes, wait for dead orphans, and sort the rest by payload."""
        table = proc.processes()
        owned = owners(table, self._sessions, self._known, me=self._me)
        self._claim_strays(table, owned)
        self._known = {table[pid].ident: key for pid, key in owned.items()}
        trees: dict[Key, list[Process]] = {}
        for pid, key in owned.items():
            if not self._reap(table[pid], key):
                trees.setdefault(key, []).append(table[pid])
        return trees

    def _claim_strays(self, table: Mapping[int, Process], owned: dict[int, Key]) -> None:
        """Find the payloads of processes that neither descent nor session explains."""
        found = strays(table, owned, me=self._me if self._adopts else None)
        new = [one for one in found if one.ident not in self._strangers]
        told = {one.ident: proc.environment_of(one.pid) for one in new}
        marks = {one.ident: proc.mark_in(told[one.ident] or [], self._stamp) for one in new}
        owned.update({one.pid: key for one in new if (key := marks[one.ident]) in self._accounts})
        unmarked = {one.ident: one for one in found if one.pid not in owned}
        if not self._adopts:
            # Any process of the machine: without a mark nothing speaks against it. One with no environment may
            # be on its way to another program and is asked again; what is in no session is no payload's.
            unsure = {one.ident for one in new if told[one.ident] == [] and one.session}
            self._strangers = set(unmarked) - unsure
            return
        settled = self._suspicion.settle(list(unmarked), list(self._accounts))
        for ident, process in unmarked.items():
            key = settled.get(ident)
            if key in self._accounts:
                owned[process.pid] = key
            elif key is not None:
                _send(process, signal.SIGKILL)
            elif process.state == ZOMBIE:
                self._reap(process, None)

    def _reap(self, process: Process, key: Key | None) -> bool:
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


def _send(process: Process, number: int) -> None:
    if process.state == ZOMBIE:
        return
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
