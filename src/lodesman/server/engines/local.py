"""The local backend: this machine's own processes as a batch system with queues and slots.

Each queue runs at most `slots` pilots at once, first come, first served. All state is in the pilots' directories; a
file lock makes several backends on one root safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from lodesman.base.errors import BackendFault
from lodesman.base.processes import Process, signal_process
from lodesman.decide.resources import QueueId
from lodesman.server.engines import backend
from lodesman.server.engines.backend import (
    CancelOutcome,
    NativeState,
    NativeStatus,
    SubmitRefusal,
    SubmitResult,
)
from lodesman.server.engines.damage import is_of_system, open_lock, remove
from lodesman.server.engines.isolation import Isolation
from lodesman.server.engines.local_pilots import FoundPilot, LocalPilots, folder_of
from lodesman.server.engines.pilot_directory import PilotDirectory
from lodesman.server.engines.pilot_processes import (
    MARK,
    ROOT_MARK,
    keep_program,
    launch,
    limit_open_files,
    root_mark,
    stop_kept,
)
from lodesman.server.engines.pilot_records import Entry

_OUTPUT_CAP: Final = 1 << 20
# More than a pilot needs: it ends its payloads (10 s), hands in their results (10 s) and leaves; a test compares it.
GRACE_SECONDS: Final = 30.0

# The server's own environment may hold secrets: a pilot gets these, what its submission gives, and its mark.
_INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")


@dataclass(eq=False)
class LocalBackend:
    """The queues of this machine."""

    root: Path  # becomes a directory that only this user can read
    slots: Mapping[QueueId, int]  # a queue without takes no pilots and starts none
    _: KW_ONLY
    programs: Path | None = None  # where zipapps of pilots are kept, for all to read; None: in `root`
    grace_seconds: float = GRACE_SECONDS  # of a pilot that is ordered to end
    python: str = sys.executable  # runs the keepers
    cgroups: bool = True  # false: none are made even where that is allowed
    open_files: int = 0  # the soft limit that pilots get; 0: that of this process
    isolation: Isolation = field(default_factory=Isolation)
    closed: Callable[[], str] = str  # why no pilot may run here now
    fate_of: Callable[[str], str] = lambda _: ""  # as of `LocalPilots`
    stored: Callable[[], object] = lambda: None  # called when there are new pilots
    clock: Callable[[], float] = time.time
    sizes: backend.Sizes = field(default_factory=backend.Sizes)
    known: LocalPilots = field(init=False)
    # Whether the last tick left nothing that another one could start or end.
    is_idle: bool = field(default=False, init=False)
    _last_order: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.root = self.root.absolute()
        self.known = LocalPilots(self.root, self.fate_of)
        with contextlib.suppress(OSError):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(self.isolation.folder_mode)

    @property
    def damaged(self) -> list[str]:
        """The files that were found damaged, in words. Any thread may ask."""
        return self.known.damaged[:]

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, spec: backend.PilotSpec) -> SubmitResult:
        """Store the copies, then start what has a slot. A full disk refuses copies for now only."""
        stamps = spec.stamps()
        is_known = spec.queue in self.slots
        reason = self.closed() or (
            backend.why_unusable(spec) if is_known else f"no local queue {'/'.join(spec.queue)!r}"
        )
        if reason:
            return SubmitResult(refused={stamp: _refusal(reason) for stamp in stamps.values()})
        accepted: dict[str, str] = {}
        refused: dict[str, SubmitRefusal] = {}
        try:
            with self._exclusive():
                program = self._program(spec.program)
                for number, stamp in stamps.items():
                    fault = self._store(spec, number, program)
                    if fault is None:
                        accepted[stamp] = stamp
                    else:
                        refused[stamp] = fault
        except OSError as fault:
            left = (stamp for stamp in stamps.values() if stamp not in accepted)
            refused |= {stamp: _refusal(fault) for stamp in left}
        with contextlib.suppress(BackendFault):  # the copies are safe and start at a later tick
            self.tick()
        self.stored()
        return SubmitResult(accepted=accepted, refused=refused)

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        """One observation for each stamp, which is the native id, too."""
        now = self.clock()
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail="not known here")
        with _as_backend_fault():
            statuses = dict.fromkeys(pilots, unknown)
            for stamp, native_id in pilots.items():
                if pilot := self.known.find(stamp, native_id):
                    statuses[stamp] = replace(unknown, detail="its directory cannot be read")
                    with self.known.alone(stamp):
                        statuses[stamp] = self.known.status(pilot, now)
            return statuses

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """End waiting pilots here, and order the keepers of running ones to end theirs."""
        with _as_backend_fault(), self._exclusive():
            kept = {stamp: self.known.find(stamp, native_id) for stamp, native_id in pilots.items()}
            return {stamp: self._cancel(pilot) for stamp, pilot in kept.items()}

    def census(self) -> dict[str, str]:
        """Every pilot whose directory exists."""
        with _as_backend_fault():
            return {stamp: stamp for stamp in self.known.stamps()}

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, backend.BatchLoad]:
        """A pilot whose keeper is lost still fills its slot."""
        now = self.clock()
        with _as_backend_fault():
            states = Counter((entry.queue, state) for _, entry, state in self.known.pilots())
            lost = self.known.uncertain()
        running = (NativeState.RUNNING, NativeState.UNKNOWN, None)
        return {
            queue: backend.BatchLoad(
                waiting=states[queue, NativeState.WAITING],
                running=sum(states[queue, state] for state in running) + lost[queue] + self.known.unknown,
                held=0,
                others_waiting=0,
                others_running=0,
                observed_at=now,
                slots=self.slots.get(queue),
            )
            for queue in queues
        }

    def check(self, spec: backend.PilotSpec) -> backend.Check:
        """A queue of this machine runs every pilot that has its slot."""
        slots = self.slots.get(spec.queue)
        return backend.Check(possible=bool(slots), detail="" if slots else "it has no slots")

    def output(self, stamp: str, native_id: str) -> bytes | None:
        """The end of its standard output and error."""
        with _as_backend_fault():
            pilot = self.known.find(stamp, native_id)
            return None if pilot is None else pilot.output(backend.OUTPUT_BYTES)

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Remove the directories of pilots that ended for certain."""
        with _as_backend_fault(), self._exclusive():
            for stamp, native_id in pilots.items():
                with self.known.alone(stamp):
                    pilot = self.known.find(stamp, native_id)
                    if pilot is not None and pilot.is_ended() and not pilot.is_uncertain():
                        self.known.remove(pilot)

    # --- upkeep -----------------------------------------------------------------------------------

    def tick(self) -> tuple[str, ...]:
        """Sweep after lost keepers and start waiting pilots where slots are free; their stamps. Raises BackendFault."""
        with _as_backend_fault(), self._exclusive():
            self.known.begun.reap()
            for path in self.root.iterdir():
                if path.name.startswith((".new-", ".gone-")):  # a submit or purge that was killed
                    with self.known.alone(path.name):
                        remove(path)
            pilots = list(self.known.pilots())
            is_sure = not self.known.unknown and not self.known.uncertain()
            self.is_idle = is_sure and all(state is NativeState.ENDED for *_, state in pilots)
            self.known.begun.keep_counts({pilot.stamp for pilot, _, _ in pilots})
            swept = self.known.sweep([pilot for pilot, _, state in pilots if state is NativeState.UNKNOWN])
            swept |= self.known.end_displaced()
            idle = (NativeState.WAITING, NativeState.ENDED)
            used = self.known.uncertain() + Counter(
                entry.queue
                for pilot, entry, state in pilots
                if state not in idle and pilot.stamp not in swept
            )
            if reason := self.closed():
                self._end_all(pilots, reason)
                return ()
            started = []
            for pilot, entry, state in sorted(pilots, key=lambda row: row[1].order):
                free = self.slots.get(entry.queue, 0) - self.known.unknown - used[entry.queue]
                if state is NativeState.WAITING and free > 0:
                    # It is tried again at a later tick.
                    with contextlib.suppress(OSError), self.known.alone(pilot.stamp):
                        if self.known.may_start(pilot) and self._start(pilot):
                            used[entry.queue] += 1
                            started.append(entry.stamp)
            return tuple(started)

    def purge(self, before: float) -> tuple[str, ...]:
        """Remove the pilots that ended before this time (UNIX seconds); their stamps."""
        gone: list[str] = []
        with _as_backend_fault(), self._exclusive():
            for stamp in self.known.stamps():
                pilot = PilotDirectory(self.root / stamp)
                with self.known.alone(stamp):
                    old = pilot.is_ended() and float(pilot.end().get("ended_at", 0.0)) < before
                    if old and not pilot.is_uncertain():
                        self.known.remove(pilot)
                        gone.append(stamp)
        return tuple(gone)

    def stop_all(self, *, grace_seconds: float = 5.0, deadline_seconds: float = 15.0) -> tuple[str, ...]:
        """End everything: waiting pilots never start, running ones are ordered to end, then killed, then swept.
        Returns stamps whose processes are left (by a dead disk).
        """
        self.slots = {}  # nothing starts any more
        with _as_backend_fault():
            with self._exclusive():
                pilots = [PilotDirectory(self.root / stamp) for stamp in self.known.stamps()]
                for pilot in pilots:
                    self._cancel(pilot)
            stop_kept(pilots, grace_seconds=grace_seconds, deadline_seconds=deadline_seconds)
            with self._exclusive():
                left = self.known.end_rest()
                self.known.sweep(
                    [pilot for pilot, _, state in self.known.pilots() if state is NativeState.UNKNOWN]
                )
                left |= {pilot.stamp for pilot in pilots if self._is_left(pilot)}
                self.known.begun.reap_ended()
        return tuple(sorted(left))

    # --- inside -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        lock, was_damaged = open_lock(self.root / ".lock")
        if was_damaged:
            self.known.name("the lock of local pilots, which was made again")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _program(self, program: bytes) -> Path:
        try:
            path, was_damaged = keep_program(self.programs or self.root / ".programs", program)
        except OSError as fault:
            if not is_of_system(fault):
                self.known.name(f"the folder of programs of local pilots ({fault.strerror})")
            raise
        if was_damaged:
            self.known.name(f"{path.name} of local pilots, which was written again")
        return path

    def _store(self, spec: backend.PilotSpec, number: int, program: Path) -> SubmitRefusal | None:
        stamp = backend.stamp_of(spec.submission, number)
        pilot = PilotDirectory(self.root / stamp)
        file = str(pilot.path / "work" / "pilot.json")
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._last_order = max(self._last_order + 1, time.time_ns())
        entry = Entry(
            stamp=stamp,
            queue=spec.queue,
            order=self._last_order,
            argv=(spec.python, "-I", str(program), "--file", file, "--copy", str(number)),
            environment={**inherited, **spec.environment, MARK: stamp, ROOT_MARK: root_mark(self.root)},
            wall_seconds=spec.wall_seconds,
            grace_seconds=self.grace_seconds,
            output_cap=_OUTPUT_CAP,
        )
        try:
            pilot.create(entry, spec.pilot_file, mode=self.isolation.folder_mode)
        except FileExistsError:
            return _refusal("this stamp was submitted before")
        except OSError as fault:
            return _refusal(fault)
        return None

    def _cancel(self, pilot: PilotDirectory | None) -> CancelOutcome:
        """Under the backend's lock, so that nothing starts meanwhile."""
        if pilot is None:
            return CancelOutcome.UNKNOWN
        try:
            state = pilot.state()
            if state is NativeState.ENDED:
                return CancelOutcome.ENDED
            if state is NativeState.WAITING and not self._find_keepers(pilot):
                pilot.write_end("cancelled")
                return CancelOutcome.REMOVED
            # In this order: a keeper that starts just now writes its record, then looks for the order.
            pilot.order_end()
            for process in self._find_keepers(pilot):
                signal_process(process, signal.SIGTERM)
        except OSError:
            return CancelOutcome.FAILED
        return CancelOutcome.ORDERED

    def _find_keepers(self, pilot: PilotDirectory) -> list[Process]:
        return pilot.processes()[:1] or self.known.keepers_elsewhere(pilot)

    def _end_all(self, pilots: Sequence[FoundPilot], reason: str) -> None:
        for pilot, _, state in pilots:
            if state is NativeState.WAITING:
                with self.known.alone(pilot.stamp):
                    pilot.write_end("cancelled", reason)
            else:
                self._cancel(pilot)

    def _is_left(self, pilot: PilotDirectory) -> bool:
        is_gone = False
        with self.known.alone(pilot.stamp):
            is_gone = pilot.is_ended() and not pilot.kept()
        return not is_gone

    def _start(self, pilot: PilotDirectory) -> bool:
        if self.known.begun.is_spent(pilot.stamp):
            pilot.write_end("not-started", "its keeper cannot start (see keeper.log)")
            return False
        folder = folder_of(pilot.path)
        try:
            pid = launch(pilot, python=self.python, cgroups=self.cgroups, isolation=self.isolation)
        except ValueError as fault:
            if not self.known.name_damaged(pilot):
                self.known.name(str(fault))
            pilot.write_end("not-started", f"it cannot be started, since this is damaged: {fault}")
            return False
        if pid is not None:
            limit_open_files(pid, self.open_files)
            self.known.begun.add_launch(pilot.stamp, folder, pid)
        return True


@contextlib.contextmanager
def _as_backend_fault() -> Iterator[None]:
    """The system cannot be asked now: that says nothing about any pilot."""
    try:
        yield
    except OSError as fault:
        raise BackendFault(f"The local backend cannot be used: {_reason(fault)}.", transient=True) from fault


def _refusal(why: str | OSError) -> SubmitRefusal:
    """Only a fault of the system may be gone later."""
    transient = isinstance(why, OSError)
    return SubmitRefusal(reason=_reason(why) if isinstance(why, OSError) else why, transient=transient)


def _reason(fault: OSError) -> str:
    return f"{fault.strerror} ({fault.filename})" if fault.filename else str(fault.strerror or fault)
