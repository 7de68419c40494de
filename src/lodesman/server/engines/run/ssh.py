"""Commands on another machine by SSH: one connection is kept and shared by all (OpenSSH's ControlMaster).

No password is asked for, and a machine whose key is not in `known_hosts` is not talked to. Words are quoted for the
remote shell.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import select
import shlex
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from lodesman.base.errors import BackendFault
from lodesman.server.engines.run import CommandResult
from lodesman.server.engines.run.here import Here

_SSH_FAILED: Final = 255
_OUT_OF_TIME: Final = 124
"""The exit code of `timeout`."""
_SECONDS_TO_END: Final = 5.0
_SOCKET_PATH: Final = 104 - len("/0123456789ab.0123456789abcdef")
"""Bytes that the path of the folder of sockets may have: a socket's own path is short, and ssh adds to it."""


class Ssh(Struct, frozen=True, kw_only=True):
    """One account of one host. '', 0 and None: as ssh's own configuration says."""

    host: str
    known_hosts: Path
    sockets: Path  # a folder for connections, made with mode 0700
    user: str = ""
    port: int = 0
    identity: Path | None = None  # a key without passphrase
    environment: Mapping[str, str] = field(default_factory=dict)  # added to that of the remote account
    connect_seconds: int = 10
    keep_seconds: int = 60  # after which an unused connection ends

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 60.0) -> CommandResult:
        """One that takes too long is killed over there too. Raises BackendFault."""
        self._prepare()
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        limit = ["timeout", "-k", "2", str(math.ceil(seconds))]
        remote = shlex.join(["env", "LC_ALL=C", *variables, *limit, *words])
        most = seconds + self.connect_seconds + _SECONDS_TO_END
        began = time.monotonic()
        done = Here().run([*self._ssh(), "--", self.host, remote], stdin=stdin, seconds=most)
        failed = done.code == _SSH_FAILED and not _is_of(words[0], done.err)
        late = time.monotonic() - began >= seconds
        if done.code == _OUT_OF_TIME or (failed and late and not done.err):
            message = f"{words[0]} on {self.host} did not end within {seconds:g} s."
            raise BackendFault(message, transient=True)
        if failed:
            raise BackendFault(f"{self.host} is not reached by SSH: {_last_line(done.err)}.", transient=True)
        return done

    def close(self) -> None:
        """End the connection and wait for its process; running commands fail. ssh answers before it removes its
        socket: it would remove that of the next connection.
        """
        running = re.search(r"pid=([0-9]+)", Here().run([*self._ssh(), "-O", "check", "--", self.host]).err)
        if running is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(int(running[1]))
            try:
                Here().run([*self._ssh(), "-O", "exit", "--", self.host])
                select.select([process], [], [], _SECONDS_TO_END)
            finally:
                os.close(process)

    def _ssh(self) -> list[str]:
        """Options are stronger than any configuration of ssh."""
        options = {
            "BatchMode": "yes",
            "ClearAllForwardings": "yes",
            "ConnectTimeout": self.connect_seconds,
            "ControlMaster": "auto",
            "ControlPath": f'"{self._socket()}"',
            "ControlPersist": self.keep_seconds,
            "ForwardAgent": "no",
            "GlobalKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "PermitLocalCommand": "no",
            "RequestTTY": "no",
            "SendEnv": "-*",
            "ServerAliveCountMax": 3,
            "ServerAliveInterval": 5,
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
            "UserKnownHostsFile": f'"{self.known_hosts}"',
        }
        words = ["ssh", *(f"-o{key}={value}" for key, value in options.items())]
        words += [f"-l{self.user}"] if self.user else []
        words += [f"-p{self.port}"] if self.port else []
        return words + (["-oIdentitiesOnly=yes", f"-i{self.identity}"] if self.identity else [])

    def _socket(self) -> Path:
        whole = f"{self.user}@{self.host}:{self.port}"
        return self._folder() / hashlib.sha256(whole.encode()).hexdigest()[:12]

    def _folder(self) -> Path:
        path = os.fsencode(self.sockets)
        if len(path) <= _SOCKET_PATH:
            return self.sockets
        name = hashlib.sha256(path).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"lode-ssh-{os.geteuid()}-{name}"

    def _prepare(self) -> None:
        """Raises BackendFault if the folder is another account's, or known_hosts is not there."""
        if not self.known_hosts.is_file():
            message = f"The file {self.known_hosts} with the key of {self.host} is not there."
            raise BackendFault(message, hint=f"Compare and store it: ssh-keyscan {self.host}", transient=True)
        folder = self._folder()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            entry = folder.lstat()
        except OSError as fault:
            message = f"The folder {folder} cannot be made: {fault.strerror}."
            raise BackendFault(message, transient=True) from None
        private = entry.st_uid == os.geteuid() and stat.S_IMODE(entry.st_mode) == stat.S_IRWXU
        if not private or not stat.S_ISDIR(entry.st_mode):
            message = f"The folder {folder} is not this account's alone."
            raise BackendFault(message, hint=f"chmod 0700 {folder}", transient=False)


def _is_of(program: str, text: str) -> bool:
    """Whether a program says why it ended: some, such as sbatch, end with 255 too. One that was killed says
    nothing.
    """
    return any(line.startswith(f"{program}:") for line in text.splitlines())


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "ssh gives no reason"
