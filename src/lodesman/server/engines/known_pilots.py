"""The local pilots whose directories lie in one folder: which there are, where each stands, and which slots are lost.

What never changes again is read once. A fault of one directory costs that pilot alone: it is named, nothing is started or
removed there, and its slot stays taken.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from lodesman.base.errors import LodesmanError
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState
from lodesman.server.engines.damage import is_of_system
from lodesman.server.engines.pilot_directory import ENTRY, STAMP, PilotDirectory
from lodesman.server.engines.pilot_records import Entry
from lodesman.server.engines.process_tree import process_table
from lodesman.server.engines.processes import marked, stamps_here, sweep

_SWEEP_SECONDS: Final = 2.0
Found = tuple[PilotDirectory, Entry, NativeState | None]
"""A pilot, what was submitted, and its state; None if its directory cannot be read now."""


class KnownPilots:
    """The pilots in `root`. `damaged`: what is damaged, in words. One thread at a time changes something.

    `fate_of` says what the server knows of a stamp: that it "ran", "ended" before that, or neither, ''. The directory may be
    a copy of an earlier day.
    """

    def __init__(self, root: Path, fate_of: Callable[[str], str]) -> None:
        self.root, self._fate_of = root, fate_of
        self.damaged: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._ended: set[str] = set()
        self._lost: dict[str, QueueId | None] = {}
        self._vanished: dict[str, QueueId] = {}
        self._unknown: set[str] = set()
        # Those that live without a directory, and did so before this process began; None: not sought yet.
        self._strays: set[str] | None = None

    @property
    def unknown(self) -> int:
        """How many pilots may live of which no file says the queue: each may have a slot of any."""
        return len(self._unknown) + list(self._lost.values()).count(None) + len(self._strays or ())

    def stamps(self) -> set[str]:
        """All that have a directory. Raises OSError."""
        found = set()
        with os.scandir(self.root) as entries:
            for entry in entries:
                if STAMP.fullmatch(entry.name):
                    if entry.is_dir(follow_symlinks=False):
                        found.add(entry.name)
                    else:
                        self.name(f"the directory of pilot {entry.name}, which is none")
        return found

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

    def pilots(self) -> Iterator[Found]:
        """Those that have not ended, with their queue alone if what was submitted is damaged. Raises OSError."""
        stamps = self.stamps()
        if self._strays is None:
            self._strays = stamps_here(self.root, process_table()) - stamps
        self._look_for(self._entries.keys() - stamps)
        self._unknown.clear()
        for stamp in sorted(stamps - self._ended):
            pilot, found, is_read = PilotDirectory(self.root / stamp), None, False
            with self.alone(stamp):
                found, is_read = self._look(pilot), True
            if found is not None:
                yield found
            elif not is_read and (entry := self._entries.get(stamp)):
                yield pilot, entry, None
            elif not is_read:
                self._unknown.add(stamp)

    def _look_for(self, gone: Collection[str]) -> None:
        """Those whose directories are not there any more: another process removed it, or they run without it."""
        sought = {*gone, *(self._strays or ())}
        table = process_table() if sought else {}
        living = set(marked({stamp: self.root / stamp for stamp in sought}, table).values())
        self._strays = (self._strays or set()) & living
        self._vanished = {stamp: self._entries[stamp].queue for stamp in living.intersection(gone)}
        for stamp in living:
            self.name(f"the directory of pilot {stamp}, which is gone while it runs")
        for stamp in gone:
            if stamp not in living:
                del self._entries[stamp]

    def _look(self, pilot: PilotDirectory) -> Found | None:
        stamp = pilot.stamp
        if stamp not in self._entries:
            self.name_damaged(pilot)
        if pilot.is_ended():
            self.note_lost(pilot)
            self._ended.add(stamp)
            self._entries.pop(stamp, None)
        elif entry := self._entries.get(stamp) or pilot.known():
            self._entries[stamp] = entry
            return pilot, entry, pilot.state()
        # No file knows what was submitted.
        elif pilot.kept() or (pilot.was_started() and sweep([pilot], timeout=_SWEEP_SECONDS)):
            self._unknown.add(stamp)
        else:
            with contextlib.suppress(FileNotFoundError):  # purged meanwhile
                pilot.write_end("not-started", f"its stored submission is damaged: {ENTRY} of {stamp}")
        return None

    def may_start(self, pilot: PilotDirectory) -> bool:
        """Whether one that waits, by its directory, did not run or end before, as far as the server knows. One that ran is
        named, and ends when no process of it is left; until then it may have a slot of any queue. Raises OSError.
        """
        try:
            fate = self._fate_of(pilot.stamp)
        except LodesmanError:  # that cannot be known now
            return False
        if fate != "ran":
            if fate:
                pilot.write_end("cancelled", "the server ended it before it started")
            return not fate
        self.name(f"the directory of pilot {pilot.stamp}, which is older than what the server knows of it")
        if marked({pilot.stamp: pilot.path}, process_table()):
            self._strays = {*(self._strays or ()), pilot.stamp}
        else:
            pilot.write_end("keeper-lost", "it ran before, and the record of that is gone")
        return False

    def sweep(self, lost: Iterable[PilotDirectory]) -> set[str]:
        """Kill what lost keepers left, and record the end of those of which nothing is left; their stamps.

        Raises OSError.
        """
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

    def end_vanished(self) -> list[str]:
        """Kill what runs without its directory; the stamps of those of which something is left. Raises OSError."""
        stamps = (self._entries.keys() | (self._strays or set())) - self.stamps()
        gone = [PilotDirectory(self.root / stamp) for stamp in stamps]
        return sorted(sweep(gone, timeout=_SWEEP_SECONDS)) if gone else []

    def note_lost(self, pilot: PilotDirectory) -> None:
        """Of one that ended: if processes of it may be left, they keep its slot taken. Raises OSError."""
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

    @contextlib.contextmanager
    def alone(self, stamp: str) -> Iterator[None]:
        """A fault of one pilot's directory costs that pilot alone, and is named. Raises OSError for one of the system."""
        try:
            yield
        except OSError as fault:
            if is_of_system(fault):
                raise
            self.name(f"the directory of pilot {stamp} ({fault.strerror})")

    def name_damaged(self, pilot: PilotDirectory) -> bool:
        """Name the records of a pilot that are damaged; whether there are any. Raises OSError."""
        names = pilot.damaged()
        if names:
            self.name(f"{', '.join(names)} of pilot {pilot.stamp}")
        return bool(names)

    def name(self, damaged: str) -> None:
        """Name something damaged, once."""
        if damaged not in self.damaged:
            self.damaged.append(damaged)
