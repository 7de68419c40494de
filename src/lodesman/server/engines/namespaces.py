"""How a local pilot is kept from the server and from other pilots, by the plan of `Isolation.plan`.

With namespaces its mounts show empty places where the server's data are, but for its own `work`; it is the second
process of a PID namespace, which ends with its keeper. Standard library only, Python 3.9+; run as a program it
tries a plan.
"""

# ruff: noqa: PTH103, PTH110, PTH112, PTH116, PTH120
from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

if __name__ == "__main__":  # started as a file, without the place of its package
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
from lodesman.base import kernel

Plan = dict[str, Any]
_SMALL = "size=1m,nr_inodes=1k,mode=755"


def enclose(plan: Plan, work: str) -> None:
    """Move this process to mounts of its own; its next child is the first of a PID namespace. `work` is absolute.
    Raises OSError.
    """
    kernel.separate()
    account = plan.get("account")
    shown = [path for path in plan["shown"] if os.path.exists(path)]
    covers = {path for path in plan["hidden"] if os.path.isdir(path)}
    if account:
        covers |= {closed for path in (work, *shown) for closed in _closed_above(path, account)}
    else:
        closed = [path for path in plan["read_only"] if os.path.exists(path)]
        # A mount of its own below one that is read-only would not be: parents first, and each as the one above it.
        for path in sorted({*closed, *_pins([*covers, *closed])}):
            kernel.bind(path, path, read_only=any(_is_in(path, top) for top in closed) or None)
    kept = {
        path: os.open(path, os.O_PATH) for path in (work, *shown) if any(_is_in(path, top) for top in covers)
    }
    made: list[str] = []
    for top in sorted(covers):  # parents first
        if os.path.isdir(top) and not any(_is_in(top, other) for other in made):
            kernel.mount("none", top, "tmpfs", flags=kernel.NO_SUID | kernel.NO_DEVICES, data=_SMALL)
            made.append(top)
    mask = os.umask(0o022)  # what leads to a place that is shown must let the account pass
    for path, descriptor in kept.items():
        os.makedirs(path, 0o755, exist_ok=True)
        kernel.bind(f"/proc/self/fd/{descriptor}", path, read_only=path != work)
        os.close(descriptor)
    os.umask(mask)
    for path in plan["hidden"]:
        if os.path.exists(path) and not os.path.isdir(path):
            kernel.bind(os.devnull, path)
    for top in made:
        kernel.mount("none", top, flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | kernel.NO_SUID)


def _is_in(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _above(path: str) -> list[str]:
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]


def _closed_above(path: str, account: dict[str, Any]) -> list[str]:
    for place in _above(path):
        entry = os.stat(place)
        bit = 0o100 if entry.st_uid == account["uid"] else 0o010 if entry.st_gid == account["gid"] else 0o001
        if not entry.st_mode & bit:
            return [place]
    return []


def _pins(paths: list[str]) -> set[str]:
    """The directories above that this account could rename. A mount cannot be renamed."""
    above = {place for path in paths for place in _above(path)}
    return {place for place in above if os.access(os.path.dirname(place), os.W_OK)}


def become(account: dict[str, Any]) -> None:
    """Give up root for this account. Raises OSError."""
    os.setgroups([])
    os.setgid(account["gid"])
    os.setuid(account["uid"])


def start(
    plan: Plan, work: str, prepare: Callable[[], None], become_pilot: Callable[[], NoReturn]
) -> tuple[int, int]:
    """Start a pilot in namespaces: the pid of the first process there, a child of this one, and a descriptor that
    brings the pilot's wait status, unless that process is killed. Signals are blocked. Raises OSError.
    """
    (go, alive), (reports, report), (births, birth) = os.pipe(), os.pipe(), os.pipe()
    between = os.fork()
    if between == 0:
        try:
            os.close(alive)
            prepare()
            enclose(plan, work)
            first = os.fork()
            if first == 0:
                _be_first(go, report, become_pilot)
            os.write(birth, b"%d" % first)
        except OSError as fault:
            os.write(birth, str(fault).encode())
        finally:
            os._exit(0)  # and this process adopts the first one
    for descriptor in (go, report, birth):
        os.close(descriptor)
    os.waitpid(between, 0)
    answer = os.read(births, 4096)
    if not answer.isdigit():
        raise OSError(answer.decode() or "it was killed")
    with contextlib.suppress(BrokenPipeError):
        os.write(alive, b"g")
    return int(answer), reports


def _be_first(go: int, report: int, become_pilot: Callable[[], NoReturn]) -> NoReturn:
    """Start the second process, pass on orders, and report its wait status. `go` gets a byte when the keeper is the
    parent, and its other end is the keeper's alone.
    """
    try:
        os.read(go, 1)
        kernel.set_attribute(kernel.PDEATHSIG, signal.SIGKILL)
        poll = select.poll()
        poll.register(go, 0)
        if poll.poll(0):  # the keeper is dead already
            os._exit(1)
        os.chdir("/")
        kernel.mount_proc()
        second = os.fork()
        if not second:
            become_pilot()
        signal.set_wakeup_fd(-1)  # that is the keeper's
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda number, _: _pass_on(second, number))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        while True:
            pid, status = os.wait()
            if pid == second:
                os.write(report, b"%d" % status)
                os._exit(0)  # and the kernel ends all others
    finally:
        os._exit(1)


def _pass_on(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def main(plan: Plan, work: str, command: list[str]) -> int:
    """Run a command in `work` as a pilot would be run; its exit code."""

    def start() -> NoReturn:
        try:
            if plan.get("account"):
                become(plan["account"])
            os.chdir(work)
            os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
        except OSError as fault:
            os.write(2, f"{fault.strerror}: {fault.filename or command[0]}\n".encode())
        finally:
            os._exit(127)

    os.umask(0o077)  # as a keeper
    if plan["namespaces"]:
        enclose(plan, work)
        first = os.fork()
        if first:
            return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        kernel.mount_proc()
    second = os.fork()
    if not second:
        start()
    return os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])


if __name__ == "__main__":
    try:
        code = main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:])
    except OSError as fault:
        sys.exit(fault.strerror or str(fault))
    sys.exit(code)
