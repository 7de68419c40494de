"""One local pilot as its directory shows it: stored, started, kept, ended.

All state of a pilot is in its directory, so that a backend that was killed finds everything again:

* the directory, named by the stamp: it was submitted (it is written under another name and then renamed);
* `lock` is locked: its keeper or its guard lives, or is being started (an open file description lock, inherited
  without a gap, and freed by the kernel); `entry.json`: what was submitted;
* `keeper.json`: the pilot may have been started, so it is never started again;
* `cancel`: it must not start; `ended.json`: no process of it is left. This is final;
* `uncertain`: it ended, but processes of it may be left, and its slot stays taken until an administrator removes this
  file, or until the machine was started anew, which the file's text shows.

The pilot has `work` to itself, with its own file in it; it may see nothing else of this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from lodesman import kernel
from lodesman.batch.backend import NativeState, NativeStatus
from lodesman.batch.keeper import write_json
from lodesman.batch.process_tree import Process, read_process
from lodesman.resources import QueueId

STAMP: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ENTRY: Final = "entry.json"
_FLOCK: Final = "hhqqi"  # struct flock: type, whence, start, length, pid
_WHOLE_FILE: Final = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class Entry(Struct, frozen=True, kw_only=True):
    """What was submitted. `order` rises with each submission: the lowest of a queue starts first."""

    stamp: str
    queue: QueueId
    order: int
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    wall_seconds: int
    grace_seconds: float
    output_cap: int


class PilotDirectory(Struct, frozen=True):
    """The directory of one pilot, named by its stamp."""

    path: Path

    @property
    def stamp(self) -> str:
        """The pilot's stamp."""
        return self.path.name

    def create(self, entry: Entry, pilot_file: bytes, *, mode: int = 0o700) -> None:
        """Store a new pilot, whole or not at all. Raises FileExistsError for a used stamp, or OSError."""
        if self.path.exists():
            raise FileExistsError(errno.EEXIST, "this stamp was submitted before", str(self.path))
        draft = self.path.with_name(f".new-{self.stamp}")
        draft.mkdir(mode=0o700)
        try:
            draft.chmod(mode)
            (draft / "work").mkdir(mode=0o700)
            (draft / "lock").touch(0o600)
            _write_new(draft / "work" / "pilot.json", pilot_file)
            _write_new(draft / ENTRY, json.dumps(asdict(entry)).encode())
            draft.rename(self.path)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def entry(self) -> Entry:
        """What was submitted. Raises OSError; ValueError for a file that a power cut left half written."""
        values = json.loads((self.path / ENTRY).read_bytes())
        try:
            return Entry(queue=QueueId(*values.pop("queue")), argv=tuple(values.pop("argv")), **values)
        except (AttributeError, KeyError, TypeError) as fault:
            raise ValueError(f"{self.path / ENTRY} is damaged") from fault

    # --- where it stands ---------------------------------------------------------------------------

    def state(self) -> NativeState:
        """UNKNOWN is a pilot whose keeper and guard were killed and which has not been swept yet."""
        kept = self.kept()
        # In this order: a keeper writes its records before it frees the lock.
        if self.is_ended():
            return NativeState.ENDED
        if kept:
            return NativeState.RUNNING
        waits = (self.path / "lock").exists() and not self.was_started()
        return NativeState.WAITING if waits else NativeState.UNKNOWN

    def status(self, now: float) -> NativeStatus:
        """The state with what is known about the end. Raises OSError."""
        state, started_at = self.state(), self.started_at()
        host = "" if started_at is None else os.uname().nodename
        if state is not NativeState.ENDED:
            return NativeStatus(
                state=state, observed_at=now, detail=_DETAIL[state], word=state.value,
                host=host, started_at=started_at,
            )  # fmt: skip
        end = self.end()
        code, cause = end.get("exit_code"), str(end.get("cause", ""))
        if not isinstance(code, int):
            code = None
        detail = str(end.get("message") or _CAUSE.get(cause, cause))
        if code is not None:
            detail += f": exit code {code}" if code >= 0 else f": signal {-code}"
            code = code if code >= 0 else 128 - code
        return NativeStatus(
            state=state, observed_at=now, exit_code=code, detail=detail, word=cause, started_at=started_at,
            host=host, ended_at=end.get("ended_at"),
        )  # fmt: skip

    def kept(self) -> bool:
        """Whether a keeper, a guard or a starting backend holds the lock. Changes nothing."""
        with contextlib.suppress(FileNotFoundError), (self.path / "lock").open("rb", 0) as lock:
            answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _WHOLE_FILE)
            return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
        return False

    def is_ended(self) -> bool:
        """Whether no process of it is left and none will ever start."""
        return (self.path / "ended.json").exists()

    def was_started(self) -> bool:
        """Whether the pilot may have been started."""
        return (self.path / "keeper.json").exists()

    def started_at(self) -> float | None:
        """When its keeper started it, in UNIX seconds; None if none did."""
        with contextlib.suppress(OSError):
            return (self.path / "keeper.json").stat().st_mtime
        return None

    def output(self, most: int) -> bytes | None:
        """The end of what it wrote, standard output before standard error; None if nothing was started."""
        if not self.was_started():
            return None
        parts = [_end_of(self.path / name, most) for name in ("std.out", "std.err")]
        return b"".join(parts)[-most:]

    def end(self) -> dict[str, Any]:
        """The record of the end; empty if there is none."""
        return self._read("ended.json")

    def record(self) -> dict[str, Any]:
        """The record of the start: keeper, guard and pilot as [pid, start]; empty if there is none."""
        return self._read("keeper.json")

    def processes(self) -> list[Process]:
        """Keeper and guard, as far as these very processes live."""
        record = self.record()
        found = []
        for name in ("keeper", "guard"):
            pid, start = record.get(name) or (0, 0)
            process = read_process(pid)
            if process is not None and process.start == start:
                found.append(process)
        return found

    def _read(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            value = json.loads((self.path / name).read_bytes())
            if isinstance(value, dict):
                return value
        return {}

    # --- changes; the backend's lock is held ---------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[int | None]:
        """Hold the pilot's lock, or None if it is kept. What inherits the descriptor goes on holding it."""
        with (self.path / "lock").open("r+b", 0) as file:
            # A high number, so that a keeper can inherit it beside the standard streams.
            lock = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 10)
        try:
            held: int | None = lock
            try:
                fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            except BlockingIOError:
                held = None
            yield held
        finally:
            os.close(lock)

    def is_uncertain(self) -> bool:
        """Whether processes of it may be left since the machine was started."""
        with contextlib.suppress(OSError):
            return (self.path / "uncertain").read_text() == _this_boot()
        return False

    def ends_for_certain(self) -> bool:
        """Whether nothing of it outlives keeper and guard: they said so, or the machine was started anew."""
        record = self.record()
        return bool(record.get("certain")) or record.get("boot", _this_boot()) != _this_boot()

    def write_uncertain_end(self) -> None:
        """Record that keeper and guard were killed where no PID namespace ended what they kept."""
        with contextlib.suppress(FileExistsError):
            _write_new(self.path / "uncertain", _this_boot().encode())
        remedy = f"end what is left of it, then remove {self.path / 'uncertain'}"
        self.write_end("keeper-lost", f"its keeper was killed and may have left processes; {remedy}")

    def write_end(self, cause: str, message: str = "") -> None:
        """Record an end that no keeper can record."""
        end = {"cause": cause, "exit_code": None, "ended_at": time.time(), "message": message}
        write_json(str(self.path / "ended.json"), end)

    def remove(self) -> None:
        """Remove the directory, atomically for its readers, whatever modes payloads gave its parts."""
        gone = self.path.with_name(f".gone-{self.stamp}")
        self.path.rename(gone)
        remove_tree(gone)


_DETAIL: Final = {
    NativeState.WAITING: "waits for a slot of its queue",
    NativeState.RUNNING: "runs under its keeper",
    NativeState.UNKNOWN: "its keeper is lost; what it left is being removed",
}

_CAUSE: Final = {
    "exit": "ended",
    "signal": "killed",
    "stopped": "stopped by order",
    "wall": "stopped at the wall clock limit of its queue",
    "cancelled": "cancelled before it started",
}


def _this_boot() -> str:
    """What names the time since the machine was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def remove_tree(path: Path) -> None:
    """Remove a tree of any depth, directories without permissions too; links are not followed."""
    kernel.remove_tree(str(path))


def _end_of(path: Path, most: int) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)
    return b""


def _write_new(path: Path, content: bytes) -> None:
    """It is on the disk then."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
