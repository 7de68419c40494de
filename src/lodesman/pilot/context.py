"""What the parts of a pilot share: file, folder, node, log and clocks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import random
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, TextIO

from lodesman.base.errors import InvalidConfig, InvalidRequest
from lodesman.pilot.decisions import is_of_node
from lodesman.pilot.features import Features
from lodesman.pilot.node import WorkerNode
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.protocol import read_as, read_record
from lodesman.wire.client import Retry, parse_server

_CHANGED = "Its folder was locked or changed by a job"


class OwnFolder:
    """Gives the pilot back its folder, which others of its account can lock: payloads without namespaces, and other pilots'.
    Any thread may `unlock`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = (directory, directory / "work", directory / "outbox")
        self._seen: set[Path] = set()
        # How often something was found locked: what fails while this grows is no fault of the node, nor of a job's input.
        self.changes = 0

    def __str__(self) -> str:
        """What is wrong with it."""
        return f"{_CHANGED}: {self._directory}"

    def unlock(self, *more: Path) -> None:
        """Let the pilot do all in its folders and in `more`, and pass those of its account above."""
        for folder in reversed(self._directory.parents):
            self._unlock(folder, stat.S_IXUSR)
        for folder in (*self._own, *more):
            self._unlock(folder, stat.S_IRWXU)

    def _unlock(self, folder: Path, needed: int) -> None:
        try:
            if folder in self._own[1:]:
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=0o700)
            # No link is followed, whoever put it there.
            descriptor = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as fault:
            is_other = fault.errno in (errno.ENOTDIR, errno.ELOOP) or folder in self._seen
            self.changes += folder in self._own and is_other and not is_of_node(fault.errno)
            return
        self._seen.add(folder)
        try:
            entry = os.fstat(descriptor)
            if entry.st_uid == os.geteuid() and entry.st_mode & needed != needed:
                # It may be a folder of many: it loses nothing.
                os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(entry.st_mode) | needed)  # noqa: PTH101
                self.changes += 1
        except OSError:
            return
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class PilotOptions:
    """How this pilot behaves; 0 and the empty text mean: find out."""

    cores: int = 0
    memory_mb: int = 0
    life_seconds: int = 0  # from the pilot's start
    cpu_scaling_factor: float = 1.0  # norm_cpu_seconds per cpu_seconds
    idle_s: float = 120.0  # it leaves after this time without a payload
    heartbeat_s: float = 60.0
    jobs_at_once: int = 0  # most payloads at a time, 0: one per core
    platform: str = ""
    kill_grace_s: float = 10.0  # between SIGTERM and SIGKILL
    join_patience_s: float = 600.0  # timeout of the join
    flush_s: float = 10.0  # timeout for the last results
    watch_s: float = 1.0  # between two checks of the payloads
    features_s: float = 0.0  # between two readings of the Machine/Job Features
    retire_s: float = 1800.0  # no jobs are asked for this long before an announced shutdown
    jobstatus_directory: str = ""  # for its own $JOBSTATUS if the site gives none
    home_writable: bool = False  # payloads may write in the home of the account


@dataclass(frozen=True)
class PilotFile:
    """The servers, the pilot's identity and its options."""

    servers: tuple[str, ...]
    join_token: str  # good once
    stamp: str
    options: PilotOptions
    site: str = ""
    ce: str = ""
    queue: str = ""
    submit_pools: tuple[str, ...] | None = None  # what its queue served at the submission; None: ask
    pools_pass: int = 0  # the server's pass that they are from
    ca_file: str | None = None
    url_file: str | None = None  # where a server of this machine writes its address


def parse_pilot_file(text: str, copy: int = 0) -> PilotFile:
    """Unknown names are ignored. Raises InvalidConfig.

    The copies of a submission share a file with `submission` and `secret`: these and `copy` give stamp and join token.
    """
    try:
        record = read_record(json.loads(text), "it")
        if copy:
            record = {**record, **_identity(str(record.get("submission")), str(record.get("secret")), copy)}
        options = read_as(PilotOptions, read_record(record.get("options", {}), "`options`"))
        file = read_as(PilotFile, record, options=options)
        servers = [parse_server(server) for server in file.servers]
    except (ValueError, RecursionError):
        raise InvalidConfig("The pilot's file is not JSON.") from None
    except InvalidRequest as fault:
        raise InvalidConfig(f"The pilot's file: {fault.message}") from None
    if not file.join_token or not file.stamp:
        raise InvalidConfig("The pilot's file: `join_token` or `stamp` is empty.")
    if file.options.cpu_scaling_factor <= 0:
        raise InvalidConfig("The option cpu_scaling_factor must be more than 0.")
    for server in servers:
        if not server.is_private:
            raise InvalidConfig(f"The pilot's tokens would travel to {server} in the clear.")
    return file


def _identity(submission: str, secret: str, copy: int) -> dict[str, str]:
    token = hmac.new(secret.encode(), str(copy).encode(), hashlib.sha256).hexdigest()
    return {"stamp": f"{submission}-{copy}", "join_token": token}


@dataclass(frozen=True)
class PilotContext:
    """One pilot and where it runs."""

    pilot_file: PilotFile
    node: WorkerNode
    directory: Path
    environment: Mapping[str, str]
    log: Callable[..., Any]
    nursery: Nursery = field(default_factory=Nursery)  # makes the wardens of payloads
    rng: random.Random = field(default_factory=random.SystemRandom)
    features: Callable[[], Features] = Features  # what the site declares now
    read_features: Callable[[], object] = Features  # has that read again
    clock: Callable[[], float] = time.time  # UNIX seconds
    ticker: Callable[[], float] = time.monotonic  # monotonic seconds

    @property
    def options(self) -> PilotOptions:
        """How the pilot behaves."""
        return self.pilot_file.options

    @cached_property
    def folder(self) -> OwnFolder:
        """The directory, as others can lock it."""
        return OwnFolder(self.directory)

    def delay(self, failures: int) -> float:
        """Seconds to wait after a number of failures in a row, with jitter."""
        return Retry().delay(failures, self.rng)


class Log:
    """Writes one JSON line per event, without tokens and job contents."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], **always: Any) -> None:
        self._stream = stream
        self._clock = clock
        self._always = always
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        """`facts` are JSON values."""
        line = {"time": round(self._clock(), 3), "event": event, **self._always, **facts}
        text = json.dumps(line, default=str) + "\n"
        # The batch system may close the stream; the pilot goes on.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
