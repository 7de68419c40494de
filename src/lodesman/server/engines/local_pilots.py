"""The local pilots in one folder: which there are, where each stands, and which slots are lost.

A fault of one directory costs that pilot alone: it is named, nothing is started or removed there, and its slot
stays taken.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from lodesman.base.errors import LodesmanError
from lodesman.base.processes import Process, living_processes
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState, NativeStatus
from lodesman.server.engines.damage import is_of_system
from lodesman.server.engines.pilot_directory import ENTRY, STAMP, PilotDirectory
from lodesman.server.engines.pilot_processes import find_keepers, find_marked, find_stamps, sweep
from lodesman.server.engines.pilot_records import Entry

MOST_LAUNCHES: Final = 3  # keepers that end before they start their pilot, until it is given up
REFUSED_CODE: Final = 3  # the exit code of a pilot that the server refused; a test compares it
_REAP_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 2.0
_TWIN: Final = "a second process of it was refused, and the first one lives"
# Device and inode of a directory: they stay if it is renamed, and those of a copy are others.
Folder = tuple[int, int]
# A pilot, what was submitted, and its state; None if its directory cannot be read now, or does not say where it stands.
FoundPilot = tuple[PilotDirectory, Entry, NativeState | None]


class StartedPilots:
    """Pilots that this process started or saw started: none is started again, whatever its directory says.

    If a keeper ended before it started its pilot, another may be launched, in the same directory alone.
    """

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._folders: dict[str, Folder] = {}  # in which a keeper was launched
        self._launches: Counter[str] = Counter()
        self._keepers: dict[int, str] = {}

    def add(self, stamps: Iterable[str]) -> None:
        """These were started."""
        self._begun.update(stamps)

    def has(self, pilot: PilotDirectory) -> bool:
        """Whether it was started, or a keeper was launched for it in another directory. Raises OSError."""
        if pilot.stamp in self._begun:
            return True
        folder = self._folders.get(pilot.stamp)
        with contextlib.suppress(FileNotFoundError):
            return folder is not None and folder_of(pilot.path) != folder
        return False

    def forget(self, stamp: str) -> None:
        """Its directory was removed in order."""
        self._begun.discard(stamp)
        self._folders.pop(stamp, None)

    def add_launch(self, stamp: str, folder: Folder, keeper: int) -> None:
        """A keeper was launched in this directory."""
        self._folders[stamp] = folder
        self._launches[stamp] += 1
        self._keepers[keeper] = stamp

    def is_spent(self, stamp: str) -> bool:
        """Whether the last of its keepers ended before it started it: it is given up."""
        return self._launches[stamp] >= MOST_LAUNCHES

    def keep_counts(self, stamps: Collection[str]) -> None:
        """Forget the launches of all others."""
        for stamp in self._launches.keys() - stamps:
            del self._launches[stamp]

    def reap(self) -> None:
        """Reap the keepers that ended; those of an earlier backend are init's."""
        for pid, stamp in list(self._keepers.items()):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # another part of the process waited for it
                ended, status = pid, -1
            if ended:
                del self._keepers[pid]
            if ended and status == 0:
                self._begun.add(stamp)

    def reap_ended(self) -> None:
        """Reap all that end within a second: the keeper of a pilot that is left may not."""
        until = time.monotonic() + _REAP_SECONDS
        self.reap()
        while self._keepers and time.monotonic() < until:
            select.select([], [], [], 0.01)
            self.reap()


def folder_of(path: Path) -> Folder:
    """What names a directory, and no copy of it. Raises OSError."""
    entry = path.lstat()
    return entry.st_dev, entry.st_ino


class LocalPilots:
    """The pilots in `root`. `damaged`: what is damaged, in words. One thread at a time changes something.

    `fate_of` says what the server knows of a stamp: it "ran", "ended" before that, or neither, ''. The directory
    may be a copy of an earlier day.
    """

    def __init__(self, root: Path, fate_of: Callable[[str], str]) -> None:
        self.root, self._fate_of = root, fate_of
        self.begun = StartedPilots()
        self.damaged: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._ended: set[str] = set()
        self._lost: dict[str, QueueId | None] = {}
        self._vanished: dict[str, QueueId] = {}
        self._unknown: set[str] = set()
        # Those that live without a directory, and did so before this process began; None: not sought yet.
        self._strays: set[str] | None = None
        # Those that were started, by a directory that does not say so: it is a copy, or lost the records.
        self._displaced: set[str] = set()
        self._living: set[str] | None = None  # as this pass found them; None: not sought yet

    @property
    def unknown(self) -> int:
        """How many pilots of an unknown queue may live: each may have a slot of any."""
        return len(self._unknown) + list(self._lost.values()).count(None) + len(self._strays or ())

    def stamps(self) -> set[str]:
        """All that have a directory. Raises OSError."""
        stamps = set()
        with os.scandir(self.root) as entries:
            for entry in entries:
                if STAMP.fullmatch(entry.name):
                    if entry.is_dir(follow_symlinks=False):
                        stamps.add(entry.name)
                    else:
                        self.name(f"the directory of pilot {entry.name}, which is none")
        return stamps

    def find(self, stamp: str, native_id: str) -> PilotDirectory | None:
        """The pilot of a stamp, which is its native id, too."""
        if stamp != native_id or not STAMP.fullmatch(stamp):
            return None
        pilot = PilotDirectory(self.root / stamp)
        try:
            is_there = stat.S_ISDIR(pilot.path.lstat().st_mode)
        except OSError as fault:  # its own calls raise any other
            is_there = fault.errno != errno.ENOENT
        return pilot if is_there else None

    def pilots(self) -> Iterator[FoundPilot]:
        """Those that have not ended; only their queue if what was submitted is damaged. Raises OSError."""
        stamps = self.stamps()
        self._strays = self._find_strays() - stamps
        self._living = None
        self._find_vanished(self._entries.keys() - stamps)
        self._unknown.clear()
        for stamp in sorted(stamps - self._ended):
            pilot, row, is_read = PilotDirectory(self.root / stamp), None, False
            with self.alone(stamp):
                row, is_read = self._look(pilot), True
            if row is not None:
                yield row
            elif not is_read and (entry := self._entries.get(stamp)):
                yield pilot, entry, None
            elif not is_read:
                self._unknown.add(stamp)

    def _find_strays(self) -> set[str]:
        if self._strays is None:
            self._strays = find_stamps(self.root, living_processes())
            self.begun.add(self._strays)
        return self._strays

    def _find_vanished(self, gone: Collection[str]) -> None:
        sought = {*gone, *(self._strays or ())}
        table = living_processes() if sought else {}
        living = set(find_marked({stamp: self.root / stamp for stamp in sought}, table).values())
        self._strays = (self._strays or set()) & living
        self._vanished = {stamp: self._entries[stamp].queue for stamp in living.intersection(gone)}
        for stamp in living:
            self.name(f"the directory of pilot {stamp}, which is gone while it runs")
        for stamp in gone:
            if stamp not in living:
                del self._entries[stamp]

    def _look(self, pilot: PilotDirectory) -> FoundPilot | None:
        stamp = pilot.stamp
        if stamp not in self._entries:
            self.name_damaged(pilot)
        if pilot.is_ended() and not self._may_be_twin(pilot):
            self.note_lost(pilot)
            self._ended.add(stamp)
            self._entries.pop(stamp, None)
        elif entry := self._entries.get(stamp) or pilot.known():
            self._entries[stamp] = entry
            return pilot, entry, self._state_of(pilot)
        # No file knows what was submitted.
        elif (
            pilot.kept()
            or find_keepers(pilot.path, living_processes())
            or (pilot.was_started() and sweep([pilot], timeout=_SWEEP_SECONDS))
        ):
            self._unknown.add(stamp)
        else:
            with contextlib.suppress(FileNotFoundError):  # purged meanwhile
                pilot.write_end("not-started", f"its stored submission is damaged: {ENTRY} of {stamp}")
        return None

    def status(self, pilot: PilotDirectory, now: float) -> NativeStatus:
        """What is observed of it. Raises OSError."""
        status = pilot.status(now)
        if status.state is NativeState.ENDED and self._may_be_twin(pilot):
            return NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail=_TWIN)
        return status

    def _may_be_twin(self, pilot: PilotDirectory) -> bool:
        """Whether what ended may be a refused second process of a pilot whose first one lives."""
        if pilot.end().get("exit_code") != REFUSED_CODE:
            return False
        if pilot.kept():  # its own keeper carries the mark, too
            return True
        lives = bool(find_marked({pilot.stamp: pilot.path}, living_processes()))
        if lives:
            self.name(f"the directory of pilot {pilot.stamp}, in which a second process of it ran")
        return lives

    def _state_of(self, pilot: PilotDirectory) -> NativeState | None:
        """None if it was started, and its directory does not say so."""
        was_begun, state = self.begun.has(pilot), pilot.state()  # in this order: a launch may come between
        if state is NativeState.ENDED:
            return None if self._may_be_twin(pilot) else state
        is_kept = state is NativeState.UNKNOWN and bool(find_keepers(pilot.path, living_processes()))
        if is_kept or (state is NativeState.WAITING and was_begun):
            self._displace(pilot)
            return None
        self._displaced.discard(pilot.stamp)
        if state is not NativeState.WAITING and not was_begun and pilot.was_started():
            self.begun.add([pilot.stamp])
        return state

    def _displace(self, pilot: PilotDirectory) -> None:
        self.begun.add([pilot.stamp])
        self._displaced.add(pilot.stamp)
        self.name(f"the directory of pilot {pilot.stamp}, which is older than what the server knows of it")

    def end_displaced(self) -> set[str]:
        """End those that were started in another directory, if no process is left. Raises OSError."""
        paths = {stamp: self.root / stamp for stamp in tuple(self._displaced)}
        living = set(find_marked(paths, living_processes()).values()) if paths else set()
        ended = set()
        for stamp in paths.keys() - living:
            with self.alone(stamp):
                self._displaced.discard(stamp)
                pilot = PilotDirectory(paths[stamp])
                if not (pilot.kept() or pilot.is_ended() or pilot.was_started()):
                    pilot.write_end("keeper-lost", "it ran before, and the record of that is gone")
                    ended.add(stamp)
        return ended

    def keepers_elsewhere(self, pilot: PilotDirectory) -> list[Process]:
        """Keeper and guard of a pilot whose directory does not name them; if none lives, all that carries its mark.
        Raises OSError.
        """
        self._find_strays()
        if not self.begun.has(pilot):
            return []
        table = living_processes()
        return find_keepers(pilot.path, table) or [
            table[pid] for pid in find_marked({pilot.stamp: pilot.path}, table)
        ]

    def may_start(self, pilot: PilotDirectory) -> bool:
        """Whether a waiting pilot never ran or ended: no process carries its mark, and the server knows of none.
        One that ran is named, and ends when no process is left. Raises OSError.
        """
        if self._living is None:
            self._living = find_stamps(self.root, living_processes())
        try:
            fate = "ran" if pilot.stamp in self._living else self._fate_of(pilot.stamp)
        except LodesmanError:  # that cannot be known now
            return False
        if fate != "ran":
            if fate:
                pilot.write_end("cancelled", "the server ended it before it started")
            return not fate
        self._displace(pilot)
        if find_marked({pilot.stamp: pilot.path}, living_processes()):
            self._strays = {*(self._strays or ()), pilot.stamp}
        else:
            self.end_displaced()
        return False

    def sweep(self, lost: Iterable[PilotDirectory]) -> set[str]:
        """Kill what lost keepers left; returns stamps whose end is recorded. Raises OSError."""
        pilots, clean = list(lost), set()
        left = sweep(pilots, timeout=_SWEEP_SECONDS) if pilots else set()
        for pilot in pilots:
            with self.alone(pilot.stamp):
                if pilot.stamp not in left:
                    self.name_damaged(pilot)
                    pilot.write_swept_end()
                    clean.add(pilot.stamp)
                    self.note_lost(pilot)
        return clean

    def end_rest(self) -> set[str]:
        """After those that are kept have ended, kill all that carries a mark; returns stamps of what is left.
        Raises OSError.
        """
        for _ in self.pilots():
            pass
        without = (self._entries.keys() | self._find_strays()) - self.stamps()
        stamps = without | self._displaced | find_stamps(self.root, living_processes())
        pilots = [PilotDirectory(self.root / stamp) for stamp in stamps]
        left = sweep(pilots, timeout=_SWEEP_SECONDS) if pilots else set()
        self.end_displaced()
        return left

    def note_lost(self, pilot: PilotDirectory) -> None:
        """Of an ended pilot: if processes may be left, its slot stays taken. Raises OSError."""
        if pilot.is_uncertain():
            entry = self._entries.get(pilot.stamp) or pilot.known()
            self._lost[pilot.stamp] = None if entry is None else entry.queue

    def uncertain(self) -> Counter[QueueId]:
        """The slots of pilots that may have left processes. Raises OSError."""
        for stamp in list(self._lost):
            with self.alone(stamp):
                if not PilotDirectory(self.root / stamp).is_uncertain():
                    del self._lost[stamp]
        return Counter(filter(None, [*self._lost.values(), *self._vanished.values()]))

    def remove(self, pilot: PilotDirectory) -> None:
        """Remove its directory. Raises OSError."""
        pilot.remove()
        self._ended.discard(pilot.stamp)
        self.begun.forget(pilot.stamp)

    @contextlib.contextmanager
    def alone(self, stamp: str) -> Iterator[None]:
        """A fault of one pilot's directory is named, and costs no other. Raises OSError of the system."""
        try:
            yield
        except OSError as fault:
            if is_of_system(fault):
                raise
            self.name(f"the directory of pilot {stamp} ({fault.strerror})")

    def name_damaged(self, pilot: PilotDirectory) -> bool:
        """Name the damaged records of a pilot; whether there are any. Raises OSError."""
        names = pilot.damaged()
        if names:
            self.name(f"{', '.join(names)} of pilot {pilot.stamp}")
        return bool(names)

    def name(self, damaged: str) -> None:
        """Name something damaged, once."""
        if damaged not in self.damaged:
            self.damaged.append(damaged)
