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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lodesman.batch.backend import NativeState
from lodesman.batch.pilot_directory import ENTRY, STAMP, Entry, PilotDirectory
from lodesman.batch.processes import sweep
from lodesman.resources import QueueId

_SWEEP_SECONDS: Final = 2.0
# What a system has no more of is the fault of no directory.
_OF_SYSTEM: Final = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EAGAIN, errno.EINTR,
)  # fmt: skip

Found = tuple[PilotDirectory, Entry, NativeState | None]
"""A pilot, what was submitted, and its state; None if its directory cannot be read now."""


class KnownPilots:
    """The pilots in `root`. `damaged`: what is damaged, in words. One thread at a time changes something."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._ended: set[str] = set()
        self._lost: dict[str, QueueId] = {}

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
        for stamp in sorted(self.stamps() - self._ended):
            pilot, found, is_read = PilotDirectory(self.root / stamp), None, False
            with self.alone(stamp):
                found, is_read = self._look(pilot), True
            if found is not None:
                yield found
            elif not is_read and (entry := self._entries.get(stamp)):
                yield pilot, entry, None

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
        elif not pilot.kept() and not (pilot.was_started() and sweep([pilot], timeout=_SWEEP_SECONDS)):
            with contextlib.suppress(FileNotFoundError):  # purged meanwhile
                pilot.write_end("not-started", f"its stored submission is damaged: {ENTRY} of {stamp}")
        return None

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
                    if not self.note_lost(pilot):
                        clean.add(pilot.stamp)
        return clean

    def note_lost(self, pilot: PilotDirectory) -> bool:
        """Whether processes of one that ended may be left, which keep its slot taken. Raises OSError."""
        is_lost = pilot.is_uncertain()
        if is_lost and (entry := pilot.known()):
            self._lost[pilot.stamp] = entry.queue
        return is_lost

    def uncertain(self) -> Counter[QueueId]:
        """The slots of pilots that may have left processes. Raises OSError."""
        for stamp in list(self._lost):
            with self.alone(stamp):
                if not PilotDirectory(self.root / stamp).is_uncertain():
                    del self._lost[stamp]
        return Counter(self._lost.values())

    def read_again(self, stamp: str) -> None:
        """What was submitted is damaged: it is read again, and then named."""
        del self._entries[stamp]

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
            if fault.errno in _OF_SYSTEM:
                raise
            self.name(f"the directory of pilot {stamp} ({fault.strerror})")

    def name_damaged(self, pilot: PilotDirectory) -> None:
        """Name the files of a pilot that are damaged. Raises OSError."""
        if names := pilot.damaged():
            self.name(f"{', '.join(names)} of pilot {pilot.stamp}")

    def name(self, damaged: str) -> None:
        """Name something damaged, once."""
        if damaged not in self.damaged:
            self.damaged.append(damaged)
