"""The keeper of one local pilot: starts it, and ends when the last process of its tree is gone.

Run as `python3 -I -S keeper.py DIRECTORY LOCK_FD CGROUP PLAN` in a session of its own. CGROUP may be empty, PLAN is
JSON (`namespaces`). It needs Python 3.9, Linux 5.3, and of this package `namespaces` and `base` alone.

Two subreapers hold the lock: the *keeper* starts the pilot and waits; the *guard*, its parent, does its work if it
is killed. If both are killed, the kernel kills the pilot with its PID namespace (PR_SET_PDEATHSIG); without one,
the backend sweeps what carries the mark `LODESMAN_STAMP`.

TERM, INT or HUP order the pilot to end and kill it after a time of grace; USR1 kills it at once.
"""

# pathlib would cost each keeper a quarter of its start.
# ruff: noqa: PTH105, PTH109, PTH110, PTH119, PTH120, PTH123

from __future__ import annotations

import binascii
import contextlib
import json
import os
import resource
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

if __name__ == "__main__":  # started as a file, without the place of its package
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
from lodesman.base import kernel
from lodesman.base.processes import (
    Process,
    descendants,
    kill_cgroup,
    kill_family,
    living_processes,
    read_children,
    read_process,
    remove_cgroup,
)
from lodesman.server.engines import namespaces

_STOP_ORDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILL_ORDER = signal.SIGUSR1
_NOT_STARTED = 127
_MOST_BYTES = 4 << 20
_OOM_SCORE = 300  # memory that runs out is taken from pilots before it is taken from the server


def _reap(note: Callable[[int, int], None]) -> bool:
    """Whether any child is left. A subreaper without children has no tree."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
            note(pid, status)
    except ChildProcessError:
        return False


def _chase_children(note: Callable[[int, int], None], rounds: int = 500) -> None:
    """Kill orphans as they arrive: a process that forks, ends and forks again lives too short for a scan of /proc."""
    while rounds and _reap(note):
        rounds -= 1
        children = read_children()
        if children is None:
            return
        for child in children:  # only this process can reap it, so the number is still its own
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)


def _kill_tree(cgroup: str | None, note: Callable[[int, int], None]) -> None:
    """Kill all descendants, and return when the last is gone. What waits for a dead disk is tried for ever, slowly."""
    me = os.getpid()

    def find() -> list[Process]:
        return descendants(living_processes(), [me])

    def between() -> None:
        if cgroup is not None:
            kill_cgroup(cgroup)
        _chase_children(note)

    between()
    while _reap(note):
        if kill_family(find, 5.0, between):
            select.select([], [], [], 1.0)
    if cgroup is not None:
        remove_cgroup(cgroup)


def seal(value: dict[str, Any]) -> bytes:
    """A record as its file has it, with a check sum."""
    return json.dumps({**value, "crc32": binascii.crc32(json.dumps(value).encode())}).encode()


def write_json(name: str, value: dict[str, Any]) -> None:
    """Write a private record as `durable` does, without its imports. Raises OSError."""
    draft = f"{name}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(seal(value))
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, name)
    folder = os.open(os.path.dirname(name) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_regular(name: str) -> BinaryIO:
    """Follows no links, waits for no writer of a FIFO. Raises OSError; ValueError if it is no file."""
    number = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return open(number, "rb")
    os.close(number)
    raise ValueError(f"{name} is no regular file")


def read_regular(name: str) -> bytes:
    """Raises ValueError if there is more than any record has."""
    with open_regular(name) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{name} is too large")
    return content


def read_json(name: str) -> dict[str, Any]:
    """A record that is whole; earlier releases wrote no check sum. Raises FileNotFoundError, OSError; ValueError
    for damage.
    """
    try:
        value = json.loads(read_regular(name))
        whole = isinstance(value, dict)
        if whole and "crc32" in value:
            whole = value.pop("crc32") == binascii.crc32(json.dumps(value).encode())
    except RecursionError as fault:
        raise ValueError(f"{name} is damaged") from fault
    if not whole:
        raise ValueError(f"{name} is damaged")
    return dict(value)


def _write_end(*, cause: str, code: int | None = None, started_at: float = 0.0, message: str = "") -> None:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    end = {"cause": cause, "exit_code": code, "started_at": started_at, "ended_at": time.time()}
    end |= {"cpu_seconds": used.ru_utime + used.ru_stime, "message": message}
    write_json("ended.json", {"stamp": os.path.basename(os.getcwd()), **end})


class _Output:
    """The pilot's stdout or stderr: a pipe whose last `cap` to 2 x `cap` bytes are on disk, in two files."""

    def __init__(self, name: str, cap: int) -> None:
        self.name, self.cap, self.size = name, cap, 0
        self.source, self.target = os.pipe()
        os.set_blocking(self.source, False)
        self.file = self.create()

    def create(self) -> int:
        """Waits for no reader of a FIFO."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW
        return os.open(self.name, flags, 0o600)

    def pump(self) -> bool:
        """False if nothing is there. A full disk loses output, never the pilot."""
        try:
            data = os.read(self.source, min(65536, self.cap))
        except BlockingIOError:
            return False
        with contextlib.suppress(OSError):
            if self.size + len(data) > self.cap:
                os.replace(self.name, self.name + ".1")
                full, self.file, self.size = self.file, self.create(), 0
                os.close(full)
            self.size += os.write(self.file, data)
        return bool(data)


class _Keeper:
    def __init__(self, entry: dict[str, Any], cgroup: str | None, plan: namespaces.Plan) -> None:
        self.entry, self.cgroup, self.plan = entry, cgroup, plan
        self.record: dict[str, Any] = {}
        self.pilot, self.report = 0, 0
        self.work = os.getcwd() + "/work"
        self.status: int | None = None
        self.cause = ""
        self.stop_at = self.kill_at = float("inf")

    def run(self, guard: Process, keeper: Process) -> None:
        # Signals arrive as bytes in a pipe: no race, no work inside handlers.
        self.wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        for signum in (*_STOP_ORDERS, KILL_ORDER, signal.SIGCHLD):
            signal.signal(signum, lambda *_: None)
        self.record = {
            name: self.entry[name] for name in ("stamp", "queue")
        }  # if entry.json is damaged later
        self.record |= {"keeper": keeper.ident, "guard": guard.ident, "started_at": time.time()}
        self.record |= {"cgroup": self.cgroup, "certain": self.plan["certain"], "boot": kernel.boot_id()}
        write_json("keeper.json", self.record)
        # After the record: a cancel that does not find the record has left its order before.
        if os.path.exists("cancel"):
            _kill_tree(self.cgroup, self.note)
            _write_end(cause="cancelled", message="cancelled before it started")
            return
        self.start(keeper.pid)
        self.watch()
        _kill_tree(self.cgroup, self.note)
        for output in self.outputs:
            while output.pump():
                pass
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        cause = self.cause or ("exit" if (code or 0) >= 0 else "signal")
        _write_end(cause=cause, code=code, started_at=self.record["started_at"])

    def start(self, keeper: int) -> None:
        """A fork of this small process is cheap."""
        cap = int(self.entry["output_cap"])
        self.outputs = [_Output("std.out", cap), _Output("std.err", cap)]
        account = self.plan.get("account")
        if account:
            for name in (
                "work/pilot.json",
                "work",
            ):  # once the folder is the account's, any name in it may be a link
                os.chown(name, account["uid"], account["gid"], follow_symlinks=False)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if self.plan["namespaces"]:
            try:
                self.pilot, self.report = namespaces.start(
                    self.plan, self.work, self.join_cgroup, self.become_pilot
                )
            except OSError as fault:
                os.write(self.outputs[1].target, f"the pilot cannot be isolated: {fault}\n".encode())
                self.status = _NOT_STARTED << 8
        else:
            self.pilot = os.fork()
            if self.pilot == 0:
                self.become_pilot(keeper)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for output in self.outputs:
            os.close(output.target)
        process = read_process(self.pilot)
        self.record["pilot"] = process.ident if process else None
        with contextlib.suppress(OSError):  # a full disk ends no pilot
            write_json("keeper.json", self.record)
        self.stop_at = time.monotonic() + (self.entry["wall_seconds"] or float("inf"))

    def join_cgroup(self) -> None:
        if self.cgroup is not None:
            with contextlib.suppress(OSError), open(self.cgroup + "/cgroup.procs", "w") as procs:
                procs.write("0")

    def become_pilot(self, keeper: int = 0) -> NoReturn:
        try:
            if keeper:
                self.join_cgroup()
            kernel.OomScore().change(_OOM_SCORE)
            os.setsid()
            for number, output in enumerate(self.outputs, start=1):
                os.dup2(output.target, number)
            for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError):
                    signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.chdir(self.work)
            if self.plan.get("account"):
                namespaces.become(self.plan["account"])
            if keeper:  # after the change of account, which forgets it
                kernel.set_attribute(kernel.PDEATHSIG, signal.SIGKILL)
                if os.getppid() != keeper:
                    os._exit(_NOT_STARTED)
            environment = {**self.entry["environment"], **self.plan["environment"]}
            os.execvpe(self.entry["argv"][0], self.entry["argv"], environment)  # noqa: S606
        except OSError as fault:
            os.write(2, f"cannot start {self.entry['argv'][0]!r}: {fault.strerror}\n".encode())
        finally:
            os._exit(_NOT_STARTED)

    def watch(self) -> None:
        poll = select.poll()
        for source in (self.wake, *(output.source for output in self.outputs)):
            poll.register(source, select.POLLIN)
        while self.status is None and time.monotonic() < self.kill_at:
            rest = min(self.stop_at, self.kill_at) - time.monotonic()
            ready = {fd for fd, _ in poll.poll(max(0, min(rest, 3600)) * 1000 + 1)}
            if self.wake in ready:
                signals = os.read(self.wake, 512)  # a child's end, or orders
                _reap(self.note)
                if any(signum in _STOP_ORDERS for signum in signals):
                    self.stop("stopped")
                if KILL_ORDER in signals:
                    self.cause = self.cause or "stopped"
                    self.kill_at = 0.0
            for output in self.outputs:
                if output.source in ready and not output.pump():
                    poll.unregister(output.source)
            if time.monotonic() >= self.stop_at:
                self.stop("wall")

    def note(self, pid: int, status: int) -> None:
        if pid == self.pilot:
            self.status = int((self.report and os.read(self.report, 16)) or status)

    def stop(self, cause: str) -> None:
        self.stop_at = float("inf")
        if not self.cause:
            self.cause = cause
            self.kill_at = time.monotonic() + self.entry["grace_seconds"]
        if self.status is None:
            os.kill(self.pilot, signal.SIGTERM)


def _guard(keeper: int, cgroup: str | None) -> int:
    for signum in (*_STOP_ORDERS, KILL_ORDER):
        signal.signal(signum, signal.SIG_IGN)
    _, status = os.waitpid(keeper, 0)
    if status == 0:
        return 0
    _kill_tree(cgroup, lambda *_: None)
    if os.path.exists("keeper.json") and not os.path.exists("ended.json"):
        _write_end(cause="keeper-lost", message="the keeper failed or was killed (see keeper.log)")
    return 1


def main(directory: str, lock: str, cgroup: str | None, plan: str) -> int:
    """Keep the pilot of this directory, with the inherited lock."""
    cgroup = cgroup or None
    os.umask(0o077)
    os.chdir(directory)
    os.set_inheritable(int(lock), False)
    os.closerange(int(lock) + 1, 1024)
    kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
    outer = read_process(os.getpid())
    keeper = os.fork()
    if keeper:
        return _guard(keeper, cgroup)
    kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)  # not inherited
    inner = read_process(os.getpid())
    if outer is None or inner is None:
        return _NOT_STARTED
    _Keeper(read_json("entry.json"), cgroup, json.loads(plan)).run(outer, inner)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
