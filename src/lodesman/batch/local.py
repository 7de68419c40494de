"""The local backend: this machine's own processes as a batch system with queues and slots.

Each queue runs at most `slots` pilots at once and keeps the others waiting, first come, first served. All
state is in the directories of the pilots (`pilot_directory`), each running pilot is in the hands of a keeper
that outlives this process, and one file lock makes several backends on one root safe. Nothing happens by
itself: `tick` starts what may start; the daemon calls it, and `submit` does.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodesman.batch import keeper
from lodesman.batch.backend import (
    PILOT_FILE,
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotCopy,
    PilotSpec,
    QueueKey,
    QueueLoad,
    Refusal,
    SubmitResult,
    unusable,
)
from lodesman.batch.launch import launch, limit_open_files
from lodesman.batch.pilot_directory import STAMP, Entry, PilotDirectory, remove_tree
from lodesman.batch.shutdown import stop_kept
from lodesman.batch.sweep import MARK, sweep
from lodesman.errors import BackendFault

OUTPUT_CAP: Final = 1 << 20
LAUNCHES: Final = 3  # keepers that end before they start their pilot, until it is given up
SWEEP_PATIENCE: Final = 2.0
# More than a pilot itself takes: it ends its payloads (10 s), hands in what they left (10 s) and says goodbye. A test
# holds this against the pilot's own habits.
GRACE_SECONDS: Final = 30.0

# The server's own environment may hold secrets: a pilot gets these, what its submission gives, and its mark.
_INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """What one tick did, by stamp: started; swept (keeper lost, now ended); failed, with the reason."""

    started: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


class LocalBackend:
    """The queues of this machine. `root` becomes a directory that only this user can read.

    A pilot that is told to end has `grace_seconds`. A queue without `slots` takes no pilots and starts none.
    `python` runs the keepers; `cgroups=False` makes none even where that is allowed. `open_files` is the soft limit of
    open files that pilots get; 0: that of this process.
    """

    def __init__(
        self,
        root: Path,
        slots: Mapping[QueueKey, int],
        *,
        grace_seconds: float = GRACE_SECONDS,
        python: str = sys.executable,
        cgroups: bool = True,
        open_files: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.slots = dict(slots)
        self._root = root.absolute()
        self._grace_seconds = grace_seconds
        self._python = python
        self._cgroups = cgroups
        self._open_files = open_files
        self._clock = clock
        self._last_order = 0
        self._launches: Counter[str] = Counter()
        self._keepers: set[int] = set()
        # What never changes again, so that a tick reads it once.
        self._entries: dict[str, Entry] = {}
        self._ended: set[str] = set()
        with contextlib.suppress(OSError):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, spec: PilotSpec, copies: Sequence[PilotCopy]) -> SubmitResult:
        """Store the copies, then start what has a slot. A full disk refuses copies for now only."""
        reason = self._fault_of(spec)
        if reason:
            return SubmitResult(refused={c.stamp: Refusal(reason=reason, transient=False) for c in copies})
        accepted: dict[str, str] = {}
        refused: dict[str, Refusal] = {}
        try:
            with self._exclusive():
                for copy in copies:
                    refusal = self._store(spec, copy)
                    if refusal is None:
                        accepted[copy.stamp] = copy.stamp
                    else:
                        refused.setdefault(copy.stamp, refusal)
        except OSError as fault:
            refusal = Refusal(reason=_reason(fault), transient=True)
            refused.update((copy.stamp, refusal) for copy in copies if copy.stamp not in accepted)
        with contextlib.suppress(BackendFault):  # the copies are safe and start at a later tick
            self.tick()
        return SubmitResult(accepted=accepted, refused=refused)

    def status(self, native_ids: Sequence[str]) -> dict[str, NativeStatus]:
        """One observation for each id."""
        now = self._clock()
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail="not known here")
        answer: dict[str, NativeStatus] = {}
        with _no_news():
            for native_id in native_ids:
                directory = self._find(native_id)
                answer[native_id] = unknown if directory is None else directory.status(now)
        return answer

    def cancel(self, native_ids: Sequence[str]) -> dict[str, CancelOutcome]:
        """End waiting pilots here, and order the keepers of running ones to end theirs."""
        with _no_news(), self._exclusive():
            return {native_id: self._cancel(native_id) for native_id in native_ids}

    def census(self, stamps: Sequence[str] | None = None) -> dict[str, str]:
        """Every pilot whose directory exists. The native id of a local pilot is its stamp."""
        with _no_news():
            known = self._stamps()
        return {stamp: stamp for stamp in (known if stamps is None else known.intersection(stamps))}

    def load(self, queue: QueueKey) -> QueueLoad:
        """The load of one queue; a pilot whose keeper is lost still fills its slot."""
        now = self._clock()
        try:
            states = Counter(d.state() for d, entry in self._pilots() if entry.queue == queue)
        except OSError:
            return QueueLoad(waiting=None, running=None, observed_at=now)
        running = states[NativeState.RUNNING] + states[NativeState.UNKNOWN]
        return QueueLoad(waiting=states[NativeState.WAITING], running=running, observed_at=now)

    # --- upkeep -----------------------------------------------------------------------------------

    def tick(self) -> TickReport:
        """Sweep after lost keepers and start waiting pilots where slots are free. Raises BackendFault."""
        with _no_news(), self._exclusive():
            self._reap()
            self._drop_drafts()
            pilots = [(directory, entry, directory.state()) for directory, entry in self._pilots()]
            lost = [directory for directory, _, state in pilots if state is NativeState.UNKNOWN]
            swept = self._sweep(lost) if lost else ()
            taken = Counter(
                entry.queue
                for directory, entry, state in pilots
                if state in {NativeState.RUNNING, NativeState.UNKNOWN} and directory.stamp not in swept
            )
            waiting = [(entry, directory) for directory, entry, s in pilots if s is NativeState.WAITING]
            return self._start_waiting(sorted(waiting, key=lambda pair: pair[0].order), taken, swept)

    def purge(self, before: float) -> tuple[str, ...]:
        """Forget the pilots that ended before this time (UNIX seconds), files and all; their stamps."""
        gone: list[str] = []
        with _no_news(), self._exclusive():
            for stamp in self.census():
                directory = PilotDirectory(self._root / stamp)
                if directory.is_ended() and float(directory.end().get("ended_at", 0.0)) < before:
                    directory.remove()
                    self._ended.discard(stamp)
                    gone.append(stamp)
        return tuple(gone)

    def stop_all(self, *, grace_seconds: float = 5.0, deadline_seconds: float = 15.0) -> tuple[str, ...]:
        """End everything, for a Ctrl-C: waiting pilots never start; running ones are told to end, killed
        after `grace_seconds`, and hunted down after `deadline_seconds` whatever became of their keepers.
        Returns the stamps of which something is left even then (only a dead disk can do that).
        """
        self.slots = {}  # nothing starts any more
        with _no_news():
            with self._exclusive():
                directories = [PilotDirectory(self._root / stamp) for stamp in self._stamps()]
                for directory in directories:
                    self._cancel(directory.stamp)
            stop_kept(directories, grace_seconds=grace_seconds, deadline_seconds=deadline_seconds)
            with self._exclusive():
                self._sweep([d for d in directories if d.state() is NativeState.UNKNOWN])
                left = tuple(d.stamp for d in directories if d.kept() or not d.is_ended())
                self._reap(os.WNOHANG if left else 0)
        return left

    # --- inside -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Alone among all threads and processes that use this root. Raises OSError."""
        lock = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _stamps(self) -> set[str]:
        return {path.name for path in self._root.iterdir() if STAMP.fullmatch(path.name)}

    def _find(self, native_id: str) -> PilotDirectory | None:
        directory = PilotDirectory(self._root / native_id)
        known = STAMP.fullmatch(native_id) and directory.path.is_dir()
        return directory if known else None

    def _pilots(self) -> Iterator[tuple[PilotDirectory, Entry]]:
        """The pilots that have not ended, with what was submitted."""
        for stamp in sorted(self._stamps() - self._ended):
            directory = PilotDirectory(self._root / stamp)
            if directory.is_ended():
                self._ended.add(stamp)
                self._entries.pop(stamp, None)
                self._launches.pop(stamp, None)
            elif stamp in self._entries or self._read_entry(directory):
                yield directory, self._entries[stamp]

    def _read_entry(self, directory: PilotDirectory) -> bool:
        """Learn what was submitted; one that a power cut left half written has ended."""
        try:
            self._entries[directory.stamp] = directory.entry()
        except (FileNotFoundError, ValueError):
            with contextlib.suppress(FileNotFoundError):  # purged meanwhile
                directory.write_end("not-started", "what was stored of it is damaged")
            return False
        return True

    def _fault_of(self, spec: PilotSpec) -> str:
        """Why no copy of this can ever be accepted; empty if there is no reason."""
        if spec.queue not in self.slots:
            return f"no local queue {'/'.join(spec.queue)!r}"
        return unusable(spec)

    def _store(self, spec: PilotSpec, copy: PilotCopy) -> Refusal | None:
        """Write one pilot's directory."""
        if not STAMP.fullmatch(copy.stamp):
            reason = "a stamp has 1 to 64 letters, digits, '-' and '_'"
            return Refusal(reason=reason, transient=False)
        directory = PilotDirectory(self._root / copy.stamp)
        pilot_file = str(directory.path / "pilot.json")
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._last_order = max(self._last_order + 1, time.time_ns())
        entry = Entry(
            stamp=copy.stamp,
            queue=spec.queue,
            order=self._last_order,
            argv=tuple(part.replace(PILOT_FILE, pilot_file) for part in spec.command),
            environment={**inherited, **spec.environment, MARK: copy.stamp},
            wall_seconds=spec.wall_seconds,
            grace_seconds=self._grace_seconds,
            output_cap=OUTPUT_CAP,
        )
        try:
            directory.create(entry, copy.pilot_file)
        except FileExistsError:
            return Refusal(reason="this stamp was submitted before", transient=False)
        except OSError as fault:
            return Refusal(reason=_reason(fault), transient=True)
        return None

    def _cancel(self, native_id: str) -> CancelOutcome:
        """Under the backend's lock, so that nothing starts meanwhile."""
        directory = self._find(native_id)
        if directory is None:
            return CancelOutcome.UNKNOWN
        state = directory.state()
        if state is NativeState.ENDED:
            return CancelOutcome.ENDED
        try:
            if state is NativeState.WAITING:
                directory.write_end("cancelled")
                return CancelOutcome.REMOVED
            directory.forbid_start()
        except OSError:
            return CancelOutcome.FAILED
        for process in directory.processes()[:1]:
            keeper.signal_process(process, signal.SIGTERM)
        return CancelOutcome.ORDERED

    def _sweep(self, lost: Sequence[PilotDirectory]) -> tuple[str, ...]:
        """Kill what lost keepers left, and record the end of those of whom nothing is left."""
        if not lost:
            return ()
        cgroups = [str(cgroup) for d in lost if (cgroup := d.record().get("cgroup"))]
        paths = {directory.stamp: directory.path for directory in lost}
        left = sweep(paths, cgroups=cgroups, patience=SWEEP_PATIENCE)
        clean = [directory for directory in lost if directory.stamp not in left]
        for directory in clean:
            directory.write_end("keeper-lost", "its keeper was killed; all that it left was removed")
        return tuple(directory.stamp for directory in clean)

    def _start_waiting(
        self,
        waiting: Sequence[tuple[Entry, PilotDirectory]],
        taken: Counter[QueueKey],
        swept: tuple[str, ...],
    ) -> TickReport:
        """Start in order as long as a queue has slots."""
        started: list[str] = []
        failed: dict[str, str] = {}
        for entry, directory in waiting:
            if taken[entry.queue] >= self.slots.get(entry.queue, 0):
                continue
            try:
                self._start(directory)
            except OSError as fault:
                failed[entry.stamp] = _reason(fault)
                continue
            started.append(entry.stamp)
            taken[entry.queue] += 1
        return TickReport(started=tuple(started), swept=swept, failed=failed)

    def _start(self, directory: PilotDirectory) -> None:
        """Hand the pilot and its lock to a keeper. Raises OSError."""
        if self._launches[directory.stamp] >= LAUNCHES:
            directory.write_end("not-started", "its keeper cannot start (see keeper.log)")
            raise OSError(None, "given up: its keeper cannot start")
        pid = launch(directory, python=self._python, cgroups=self._cgroups)
        if pid is not None:
            limit_open_files(pid, self._open_files)
            self._launches[directory.stamp] += 1
            self._keepers.add(pid)

    def _reap(self, options: int = os.WNOHANG) -> None:
        """Take leave of the keepers that ended; those of an earlier backend are init's."""
        for pid in list(self._keepers):
            try:
                ended = os.waitpid(pid, options)[0]
            except ChildProcessError:  # somebody else waited for it
                ended = pid
            if ended:
                self._keepers.discard(pid)

    def _drop_drafts(self) -> None:
        """Remove what a killed submit or purge left half done."""
        for path in self._root.iterdir():
            if path.name.startswith((".new-", ".gone-")):
                remove_tree(path)


@contextlib.contextmanager
def _no_news() -> Iterator[None]:
    """The system cannot be asked now: that is no news about any pilot."""
    try:
        yield
    except OSError as fault:
        raise BackendFault(f"The local backend cannot be used: {_reason(fault)}.", transient=True) from fault


def _reason(fault: OSError) -> str:
    return f"{fault.strerror} ({fault.filename})" if fault.filename else str(fault.strerror or fault)
