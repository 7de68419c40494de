"""One local pilot as its directory shows it: stored, started, kept, ended.

A backend that was killed finds everything again in the directory:

* the directory, named by the stamp: it was submitted (written under another name, then renamed);
* `lock` is locked: its keeper or its guard lives, or is being started (an open file description lock); `entry.json`:
  what was submitted;
* `keeper.json`, or anything that it wrote: the pilot may have been started, so it is never started again;
* `cancel`: it must not start; `ended.json`: no process of it is left. This is final;
* `uncertain`: it ended, but processes of it may be left, and its slot stays taken until an administrator removes this
  file, or the machine was started anew.

Each is on the disk before anything follows from it, and says nothing if it is damaged: then what another file knows counts.
A pilot that may have started and whose `ended.json` is damaged is swept, and ended again. It sees only `work` of this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from lodesman.base.durable import sync_directory, write_durably
from lodesman.base.kernel import boot_id
from lodesman.base.processes import Process, read_process
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState, NativeStatus
from lodesman.server.engines.damage import as_damage, end_of, is_there, make_way, remove, remove_tree
from lodesman.server.engines.keeper import open_regular, read_regular, seal, write_json
from lodesman.server.engines.pilot_records import (
    BOOT,
    LAST_SECOND,
    EndRecord,
    Entry,
    StartRecord,
    read_record,
    sayable,
)

STAMP: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ENTRY: Final = "entry.json"
PROGRAM: Final = "pilot.pyz"
_START, _END, _UNCERTAIN, _LOCK = "keeper.json", "ended.json", "uncertain", "lock"
_OUTPUTS: Final = ("std.out", "std.err")
_FLOCK: Final = "hhqqi"  # struct flock: type, whence, start, length, pid
_WHOLE_FILE: Final = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class PilotDirectory(Struct, frozen=True):
    """The directory of one pilot, named by its stamp."""

    path: Path

    @property
    def stamp(self) -> str:
        """The pilot's stamp."""
        return self.path.name

    def create(self, entry: Entry, pilot_file: bytes, *, mode: int = 0o700) -> None:
        """Store a new pilot, whole or not at all. Raises FileExistsError for a used stamp, OSError."""
        if is_there(self.path):
            raise FileExistsError(errno.EEXIST, "this stamp was submitted before", str(self.path))
        draft = self.path.with_name(f".new-{self.stamp}")
        remove(draft)  # of a submission that was killed
        draft.mkdir(mode=0o700)
        try:
            draft.chmod(mode)
            (draft / "work").mkdir(mode=0o700)
            (draft / _LOCK).touch(0o600)
            _write_new(draft / "work" / "pilot.json", pilot_file)
            whole = msgspec.structs.replace(
                entry, boot=boot_id(), digest=hashlib.sha256(pilot_file).hexdigest()
            )
            _write_new(draft / ENTRY, seal(asdict(whole)))
            sync_directory(draft)
            draft.rename(self.path)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def entry(self) -> Entry:
        """What was submitted. Raises OSError; ValueError for damage."""
        return msgspec.convert(self._whole(ENTRY, Entry), Entry)

    def known(self) -> Entry | None:
        """What was submitted, or if that is damaged its queue by the record of its start; None if no file knows it.
        Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError, ValueError):
            return self.entry()
        record = self.record()
        if (queue := record.get("queue")) is None:
            return None
        return Entry(
            stamp=self.stamp, queue=QueueId(*queue), order=0, argv=(), environment={},
            wall_seconds=0, grace_seconds=0.0, output_cap=0, boot=record["boot"],
        )  # fmt: skip

    def damaged(self) -> list[str]:
        """The names of its files that are missing or not whole. Raises OSError."""
        names = [] if self._uncertain_since() != "" else [_UNCERTAIN]
        for name, kind in _RECORDS.items():
            with contextlib.suppress(FileNotFoundError):
                try:
                    self._whole(name, kind)
                except ValueError:
                    names.append(name)
        missing = [] if is_there(self.path / ENTRY) else [ENTRY]
        if self.was_started() and not is_there(self.path / _START):
            missing.append(_START)
        return names + missing + ([] if self._has_lock() else [_LOCK])

    # --- where it stands ---------------------------------------------------------------------------

    def state(self) -> NativeState:
        """UNKNOWN: keeper and guard were killed, and it has not been swept yet."""
        kept = self.kept()
        # In this order: a keeper writes its records before it frees the lock.
        if self.is_ended():
            return NativeState.ENDED
        if kept:
            return NativeState.RUNNING
        may_start = not (self.was_started() or is_there(self.path / _END))
        return NativeState.WAITING if may_start and self._has_lock() else NativeState.UNKNOWN

    def status(self, now: float) -> NativeStatus:
        """The state, and what is known about the end. Raises OSError."""
        state, started_at = self.state(), self.started_at()
        host = "" if started_at is None else os.uname().nodename
        if state is not NativeState.ENDED:
            return NativeStatus(
                state=state, observed_at=now, detail=_DETAIL[state], word=state.value,
                host=host, started_at=started_at,
            )  # fmt: skip
        end = self.end()
        code, cause = end.get("exit_code"), str(end.get("cause", ""))
        detail = sayable(end.get("message") or _CAUSE.get(cause, cause))
        if code is not None:
            detail += f": exit code {code}" if code >= 0 else f": signal {-code}"
            code = code if code >= 0 else 128 - code
        return NativeStatus(
            state=state, observed_at=now, exit_code=code, detail=detail, word=cause, started_at=started_at,
            host=host, ended_at=end.get("ended_at"),
        )  # fmt: skip

    def kept(self) -> bool:
        """Whether a keeper, a guard or a starting backend holds the lock. Raises OSError."""
        with (
            contextlib.suppress(FileNotFoundError, ValueError),
            as_damage(),
            open_regular(str(self.path / _LOCK)) as lock,
        ):
            answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _WHOLE_FILE)
            return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
        return False

    def is_ended(self) -> bool:
        """Whether a whole record says that no process is left and none will start."""
        return bool(self.end())

    def was_started(self) -> bool:
        """Whether it may have been started: the record may be gone, and not what it wrote."""
        return any(is_there(self.path / name) for name in (_START, *_OUTPUTS))

    def started_at(self) -> float | None:
        """When its keeper started it, in UNIX seconds."""
        with contextlib.suppress(OSError):
            at = (self.path / _START).stat().st_mtime
            return at if 0 <= at < LAST_SECOND else None
        return None

    def output(self, most: int) -> bytes | None:
        """The end of what it wrote, standard output first; None if nothing was started."""
        if not self.was_started():
            return None
        parts = [end_of(self.path / name, most) for name in _OUTPUTS]
        return b"".join(parts)[-most:]

    def end(self) -> dict[str, Any]:
        """The record of the end; empty if none is whole."""
        return self._read(_END)

    def record(self) -> dict[str, Any]:
        """The record of the start: keeper, guard and pilot as [pid, start]; empty if none is whole."""
        return self._read(_START)

    def processes(self) -> list[Process]:
        """Keeper and guard, as far as these very processes live."""
        record = self.record()
        living = []
        for name in ("keeper", "guard"):
            pid, start = record.get(name) or (0, 0)
            process = read_process(pid)
            if process is not None and process.start == start:
                living.append(process)
        return living

    def _read(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return self._whole(name, _RECORDS[name])
        return {}

    def _whole(self, name: str, kind: type[Struct]) -> dict[str, Any]:
        with as_damage():
            return read_record(self.path / name, kind, self.stamp)

    def _uncertain_since(self) -> str | None:
        try:
            with as_damage():
                text = read_regular(str(self.path / _UNCERTAIN)).decode()
        except FileNotFoundError:
            return None
        except ValueError:
            return ""
        return text if BOOT.fullmatch(text) else ""

    def _has_lock(self) -> bool:
        with (
            contextlib.suppress(FileNotFoundError, ValueError),
            as_damage(),
            open_regular(str(self.path / _LOCK)),
        ):
            return True
        return False

    # --- changes; the backend's lock is held ---------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[int | None]:
        """Hold the pilot's lock, or None if it is kept. What inherits the descriptor goes on holding it."""
        with (self.path / _LOCK).open("r+b", 0) as file:
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

    def boot(self) -> str:
        """The start of the machine in which it was started or stored; '' if no file says it."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return str(self.record().get("boot") or self.entry().boot)
        return ""

    def is_of_this_boot(self) -> bool:
        """Whether no file shows that the machine was started anew."""
        return (self.boot() or boot_id()) == boot_id()

    def is_uncertain(self) -> bool:
        """Whether processes of it may be left since the machine was started. Raises OSError."""
        since = self._uncertain_since()
        return self.is_of_this_boot() if since == "" else since == boot_id()

    def ends_for_certain(self) -> bool:
        """Whether nothing of it outlives keeper and guard."""
        return bool(self.record().get("certain")) or not self.is_of_this_boot()

    def begin(self) -> None:
        """Before a keeper runs, check what was submitted, and store this start of the machine. Raises OSError;
        ValueError as `entry`, or with the name of what is damaged.
        """
        entry, own = self.entry(), self.path / "work" / "pilot.json"
        if own.parent.is_symlink() or (entry.digest and _digest_of(own) != entry.digest):
            raise ValueError(f"{own.name} of pilot {self.stamp}")
        for program in (Path(word) for word in entry.argv if word.endswith(f"/{PROGRAM}")):
            if not _digest_of(program).startswith(program.parent.name):
                raise ValueError(f"{PROGRAM} of local pilots")
        if entry.boot != boot_id():
            write_json(str(self.path / ENTRY), asdict(msgspec.structs.replace(entry, boot=boot_id())))

    def order_end(self) -> None:
        """Order a keeper that starts just now not to start the pilot. Raises OSError."""
        make_way(self.path / "cancel")
        (self.path / "cancel").touch(mode=0o600)
        sync_directory(self.path)

    def write_swept_end(self) -> None:
        """Record the end of a swept pilot, uncertain without a PID namespace. Raises OSError."""
        if not self.was_started():
            self.write_end("not-started", "it never started")
        elif self.ends_for_certain():
            self.write_end("keeper-lost", "its keeper was killed; all that it left was removed")
        else:
            make_way(self.path / _UNCERTAIN)
            write_durably(self.path / _UNCERTAIN, boot_id().encode())
            remedy = f"end what is left of it, then remove {self.path / _UNCERTAIN}"
            self.write_end("keeper-lost", f"its keeper was killed and may have left processes; {remedy}")

    def write_end(self, cause: str, message: str = "") -> None:
        """Record an end that no keeper can record, and which files are damaged. Raises OSError."""
        if broken := self.damaged():
            message = f"{message or _CAUSE.get(cause, cause)}; damaged: {', '.join(broken)}"
        end = {"stamp": self.stamp, "cause": cause, "exit_code": None, "ended_at": time.time()}
        make_way(self.path / _END)
        write_json(str(self.path / _END), {**end, "message": sayable(message)})

    def remove(self) -> None:
        """Remove the directory, atomically for its readers, whatever modes payloads gave its parts."""
        gone = self.path.with_name(f".gone-{self.stamp}")
        self.path.rename(gone)
        remove_tree(gone)


_RECORDS: Final[Mapping[str, type[Struct]]] = {ENTRY: Entry, _START: StartRecord, _END: EndRecord}

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


def _digest_of(path: Path) -> str:
    """'' if it is damaged, or not there. Raises OSError of the system."""
    with contextlib.suppress(FileNotFoundError, ValueError), as_damage():
        return hashlib.sha256(read_regular(str(path))).hexdigest()
    return ""


def _write_new(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
