"""One running script, a process group of its own with three pipes.

A file without `#!` is refused by the system, and gets `/bin/sh PATH`, as from Grid Engine.
"""

from __future__ import annotations

import errno
import os
import pwd
import resource
import select
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from lodesman.base.errors import InvalidConfig
from lodesman.base.processes import TICKS_PER_SECOND, kill_group, read_process
from lodesman.server.jsv.chain import JsvUrl
from lodesman.server.jsv.parameters import JsvContext

# The tree in which scripts find the libraries that they were written for, as `$SGE_ROOT`.
OWN_LIBRARIES: Final = Path(__file__).parent / "lib"

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_TOKEN: Final = "LODE_TOKEN"
_CHUNK: Final = 1 << 16
_MOST_BYTES: Final = (64 << 20) + 1  # more than the protocol reads: it refuses such a line
_MOST_STDERR: Final = 1 << 16
_REST_OF_STDERR_SECONDS: Final = 0.1
_CAN_SET_IDS: Final = (1 << 6) | (1 << 7)  # CAP_SETGID, CAP_SETUID


class ScriptLimits(Struct, frozen=True, kw_only=True):
    """What a script may use."""

    memory_mb: int = 4_096
    cpu_seconds: int = 60  # of one job
    file_size_mb: int = 1_024
    processes: int = 256  # of all of its account, if it has one of its own


class ScriptSettings(Struct, frozen=True, kw_only=True):
    """How scripts are run."""

    sge_root: str = str(OWN_LIBRARIES)  # where scripts find libraries
    sge_cell: str = "default"
    account: str = ""  # for a server's script without `user@`; needed if the server is root
    time_out_seconds: float = 10.0  # between two lines of a script
    quit_seconds: float = 5.0
    threshold_ms: int = 5_000  # a longer dialogue is noted
    strict_accept: bool = False
    limits: ScriptLimits = field(default_factory=ScriptLimits)


@dataclass(slots=True)
class HeardLines:
    """What a script said. Without any of it, it was silent."""

    lines: list[str]
    complaints: list[str]  # on stderr
    ended: bool  # it can say no more


def check_script(url: JsvUrl) -> None:
    """Raises InvalidConfig, in the words of Grid Engine, unless the file can be executed."""
    path = Path(url.path)
    if not (path.is_file() and os.access(path, os.X_OK)):
        hint = f"Make it executable: chmod +x {url.path}" if path.is_file() else ""
        raise InvalidConfig(
            f'JSV "{url.path}" is either not a file or not executable.', hint=hint, jsv=url.path
        )


def account_of(url: JsvUrl, context: JsvContext, settings: ScriptSettings) -> pwd.struct_passwd | None:
    """None: that of this process. Raises InvalidConfig, also for a server's script that would be root."""
    if context is JsvContext.CLIENT:
        return None
    name, able = url.user or settings.account, _can_change_user()
    if not name:
        if able:
            raise InvalidConfig(
                f'JSV "{url.path}" would run as root.',
                hint="Name an account: script:account@/path.",
                jsv=url.path,
            )
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InvalidConfig(
            f'JSV "{url.path}" is to run as {name!r}: there is no such account.', jsv=url.path
        ) from None
    if able and entry.pw_uid == 0:
        raise InvalidConfig(f'JSV "{url.path}" must not run as root.', jsv=url.path)
    if entry.pw_uid == os.geteuid():
        return None
    if not able:
        raise InvalidConfig(
            "process has not the necessary permission to start JSV as different user", jsv=url.path
        )
    return entry


def _can_change_user() -> bool:
    if os.geteuid():
        return False
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        capabilities = next((line for line in lines if line.startswith("CapEff:")), "CapEff: 0")
    return int(capabilities.split()[1], 16) & _CAN_SET_IDS == _CAN_SET_IDS


def _own_environment() -> dict[str, str]:
    """Of a user's own script, as from `qsub`: all but the token."""
    return {name: text for name, text in os.environ.items() if name != _TOKEN}


def _bare_environment(account: pwd.struct_passwd | None) -> dict[str, str]:
    """Of a server's script: nothing of the server."""
    home = account.pw_dir if account else os.environ.get("HOME", "/")
    return {"PATH": _PATH, "HOME": home, "LANG": os.environ.get("LANG", "C.UTF-8")}


class ScriptProcess:
    """A script that runs. One thread at a time may use it."""

    __slots__ = (
        "_close_stdin", "_limits", "_looked_at_cpu", "_out", "_pending", "_poll", "_process", "_stderr",
        "_stdin", "_stdout", "_waits_to_write",
    )  # fmt: skip

    def __init__(self, url: JsvUrl, context: JsvContext, settings: ScriptSettings) -> None:
        account = account_of(url, context, settings)
        self._limits = settings.limits
        self._process = self._started(url, context, settings, account)
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in pipes if pipe)
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self._out = bytearray()
        self._pending = b""
        self._waits_to_write = False
        self._close_stdin = False
        self._looked_at_cpu = 0.0
        # In this order: what is on stderr before a line is on stdout is then never seen after it.
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        self._poll.register(self._stderr, select.POLLIN)
        self._limit(separate_account=account is not None)

    @staticmethod
    def _started(
        url: JsvUrl, context: JsvContext, settings: ScriptSettings, account: pwd.struct_passwd | None
    ) -> subprocess.Popen[bytes]:
        environment = _own_environment() if context is JsvContext.CLIENT else _bare_environment(account)
        environment |= {"SGE_ROOT": settings.sge_root, "SGE_CELL": settings.sge_cell}
        try:
            with Path(url.path).open("rb") as script:
                words = [url.path] if script.read(2) == b"#!" else ["/bin/sh", url.path]
        except PermissionError:
            words = [url.path]  # its account may do more than this process
        except OSError as fault:
            raise _cannot_start(url, fault) from None
        try:
            return subprocess.Popen(
                words, env=environment, cwd="/" if context is JsvContext.SERVER else None, bufsize=0, close_fds=True,
                start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                user=account.pw_uid if account else None, group=account.pw_gid if account else None,
                extra_groups=os.getgrouplist(account.pw_name, account.pw_gid) if account else None,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as fault:
            raise _cannot_start(url, fault) from None

    def _limit(self, *, separate_account: bool) -> None:
        """Set from here, before START: code between fork and exec is not safe in a process with threads."""
        limits = self._limits
        most_of = {
            resource.RLIMIT_AS: limits.memory_mb << 20,
            resource.RLIMIT_FSIZE: limits.file_size_mb << 20,
            resource.RLIMIT_CORE: 0,
        }
        if separate_account:
            most_of[resource.RLIMIT_NPROC] = limits.processes
        for kind, most in most_of.items():
            self._set_limit(kind, most, both=True)

    def _set_limit(self, kind: int, most: int, *, both: bool = False) -> None:
        with suppress(OSError):  # it has ended
            hard = resource.prlimit(self._process.pid, kind)[1]
            if hard != resource.RLIM_INFINITY:
                most = min(most, hard)
            resource.prlimit(self._process.pid, kind, (most, most if both else hard))

    def allow_cpu(self, now: float) -> None:
        """For the next job: the kernel counts for the whole process."""
        if now - self._looked_at_cpu < 1.0:
            return
        self._looked_at_cpu = now
        process = read_process(self._process.pid)
        if process is not None:
            used = process.own_ticks // TICKS_PER_SECOND
            self._set_limit(resource.RLIMIT_CPU, used + self._limits.cpu_seconds + 1)

    def send(self, lines: Iterable[str]) -> None:
        """What the pipe does not take at once is written while the script is heard."""
        text = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
        self._pending = self._pending + text if self._pending else text
        self._write()

    def _write(self) -> None:
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._stdin, self._pending) :]
        except BlockingIOError:
            pass
        except OSError as fault:
            if fault.errno != errno.EPIPE:
                raise
            self._pending = b""  # it has closed its stdin; that it ended is heard on stdout
        if self._close_stdin and not self._pending and self._process.stdin:
            if self._waits_to_write:
                self._poll.unregister(self._stdin)
                self._waits_to_write = False
            self._process.stdin.close()
        elif bool(self._pending) != self._waits_to_write:
            self._waits_to_write = bool(self._pending)
            if self._waits_to_write:
                self._poll.register(self._stdin, select.POLLOUT)
            else:
                self._poll.unregister(self._stdin)

    def is_quiet(self) -> bool:
        """Whether there is nothing to hear, not even its end."""
        return not self._poll.poll(0)

    def hear(self, seconds: float) -> HeardLines:
        """Wait `seconds` at most for a line. A line on stderr goes before all that is on stdout."""
        deadline = time.monotonic() + seconds
        left = seconds
        while True:
            ready = {fd for fd, _ in self._poll.poll(left * 1_000)}
            if self._stdin in ready:
                self._write()
            lines: list[str] = []
            ended = False
            if self._stdout in ready:
                chunk = os.read(self._stdout, _CHUNK)
                ended = not chunk  # nothing will ever come again
                lines = self._lines(chunk)
            complaints = self._complaints() if self._stderr in ready else []
            if lines or complaints or ended:
                return HeardLines(lines, complaints, ended)
            left = deadline - time.monotonic()
            if left <= 0:
                return HeardLines([], [], ended=False)

    def _lines(self, chunk: bytes) -> list[str]:
        """Whole lines; all of it at the end, or if one line is too long."""
        if self._out or not chunk.endswith(b"\n"):
            self._out += chunk
            whole = not chunk or len(self._out) > _MOST_BYTES
            # What was there before has no line end: a long line is not searched again with each piece of it.
            rest = len(chunk) - chunk.rfind(b"\n") - 1 if b"\n" in chunk else len(self._out)
            end = len(self._out) - (0 if whole else rest)
            chunk = bytes(self._out[:end])
            del self._out[:end]
        return chunk.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n") if chunk else []

    def _complaints(self) -> list[str]:
        """A program that ends with an error writes several lines, in more than one piece."""
        raw = os.read(self._stderr, _CHUNK)
        if not raw:  # closed: it would be reported as ready for ever
            self._poll.unregister(self._stderr)
            return []
        more = select.poll()
        more.register(self._stderr, select.POLLIN)
        deadline = time.monotonic() + 10 * _REST_OF_STDERR_SECONDS
        while (
            len(raw) < _MOST_STDERR
            and time.monotonic() < deadline
            and more.poll(_REST_OF_STDERR_SECONDS * 1_000)
        ):
            chunk = os.read(self._stderr, _CHUNK)
            if not chunk:
                break
            raw += chunk
        return [line for line in raw.decode("utf-8", "surrogateescape").split("\n") if line.strip()] or [
            "(empty line)"
        ]

    def stop(self, seconds: float) -> None:
        """Say QUIT, close stdin, wait, kill the group: some libraries run for ever at the end of stdin."""
        self.send(["QUIT"])
        self._close_stdin = True
        self._write()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.hear(left).ended:
                break
        self.kill()

    def kill(self) -> None:
        """End the process group at once, and close the pipes."""
        kill_group(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


def _cannot_start(url: JsvUrl, fault: Exception) -> InvalidConfig:
    why = fault.strerror if isinstance(fault, OSError) else str(fault)
    return InvalidConfig(f'JSV "{url.path}" cannot be started: {why}.', jsv=url.path)
